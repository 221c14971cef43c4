//! Buffer of the items of a stream, filled by the thread of the links.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tidewire_engine::raw::{Fire, Mutex};
use tidewire_link::{Failure, Message, ReplyWaiter};
use tidewire_proto::generated::errors::ErrorCode;

use crate::calls::reply_slot::{CallOutcome, Payload};

const TOO_MANY: &[u8] = b"more items came than there was credit for: run versions that fit";

/// The items of one stream that have arrived, and its end.
pub struct ItemBuffer {
    /// Items that the writer may be ahead of the reader.
    window: u32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    items: VecDeque<Payload>,
    /// Items that may still come.
    credit: u32,
    /// Items that were read without credit for them yet.
    uncredited: u32,
    end: Option<CallOutcome>,
    /// No more items are read.
    unread: bool,
    /// Wakers of the waiters, by their numbers.
    waiting: Vec<(u64, Waker)>,
    numbers: u64,
}

/// The number of one waiter of a buffer. A new one has none.
#[derive(Default)]
pub struct ItemWait(u64);

impl ItemBuffer {
    /// A buffer for a stream whose writer may be `window` items ahead.
    pub fn new(window: u32) -> Arc<Self> {
        Arc::new(Self { window, state: Mutex::new(State { credit: window, ..State::default() }) })
    }

    /// The next item, and how many items more the writer may send now.
    ///
    /// # Errors
    /// The end of the stream: `Replied` if one value came instead. An error is returned once, and
    /// then the stream is over.
    pub fn poll_next(&self, wait: &mut ItemWait, context: &Context<'_>) -> Poll<Result<(Payload, u32), CallOutcome>> {
        let mut state = self.state.lock();
        if let Some(item) = state.items.pop_front() {
            state.uncredited += 1;
            let is_half = state.uncredited >= self.window.div_ceil(2);
            let more = if is_half { std::mem::take(&mut state.uncredited) } else { 0 };
            state.credit += more;
            return Poll::Ready(Ok((item, more)));
        }
        if state.unread {
            return Poll::Ready(Err(CallOutcome::Over));
        }
        if let Some(end) = state.end.take() {
            state.end = Some(CallOutcome::Over);
            return Poll::Ready(Err(end));
        }
        state.waits(wait, context.waker());
        Poll::Pending
    }

    /// Ready when there is an item, or the end.
    pub(crate) fn poll_any(&self, wait: &mut ItemWait, context: &Context<'_>) -> Poll<()> {
        self.poll(wait, context, |state| !state.items.is_empty() || state.end.is_some())
    }

    /// Ready at the end.
    pub fn poll_end(&self, wait: &mut ItemWait, context: &Context<'_>) -> Poll<()> {
        self.poll(wait, context, |state| state.end.is_some())
    }

    fn poll(&self, wait: &mut ItemWait, context: &Context<'_>, is_ready: fn(&State) -> bool) -> Poll<()> {
        let mut state = self.state.lock();
        if is_ready(&state) {
            return Poll::Ready(());
        }
        state.waits(wait, context.waker());
        Poll::Pending
    }

    /// Removes a waiter.
    pub fn forget(&self, wait: &ItemWait) {
        if wait.0 != 0 {
            self.state.lock().waiting.retain(|(number, _)| *number != wait.0);
        }
    }

    /// Reads no more. True if the stream has not ended.
    pub fn leave(&self) -> bool {
        let mut is_open = false;
        self.change(|state| {
            state.items.clear();
            state.unread = true;
            is_open = state.end.is_none();
        });
        is_open
    }

    /// Ends the stream at its reader.
    pub fn close(&self) {
        self.end(CallOutcome::Over);
    }

    fn end(&self, end: CallOutcome) {
        self.change(|state| {
            state.end.get_or_insert(end);
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let waiting = {
            let mut state = self.state.lock();
            change(&mut state);
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

impl State {
    fn waits(&mut self, wait: &mut ItemWait, waker: &Waker) {
        if wait.0 == 0 {
            self.numbers += 1;
            wait.0 = self.numbers;
        }
        match self.waiting.iter_mut().find(|(number, _)| *number == wait.0) {
            Some((_, known)) => known.clone_from(waker),
            None => self.waiting.push((wait.0, waker.clone())),
        }
    }
}

impl ReplyWaiter for ItemBuffer {
    fn replied(&self, reply: Message) {
        self.end(CallOutcome::Replied(reply.into()));
    }

    fn failed(&self, failure: Failure) {
        self.end(failure.into());
    }

    fn item(&self, item: Message) {
        self.change(|state| match state.credit.checked_sub(1) {
            _ if state.unread || state.end.is_some() => {}
            Some(credit) => {
                state.credit = credit;
                state.items.push_back(item.into());
            }
            None => {
                state.end = Some(CallOutcome::Failed(ErrorCode::WireError.number(), Some(TOO_MANY.to_vec().into())))
            }
        });
    }

    fn over(&self) {
        self.end(CallOutcome::Over);
    }
}

impl Fire for ItemBuffer {
    fn fire(self: Arc<Self>) {
        self.end(CallOutcome::Late);
    }
}
