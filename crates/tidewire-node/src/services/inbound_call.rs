//! The life of an inbound call: cancelled, out of time, out of credit, or answered.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tidewire_engine::raw::{Fire, Mutex, clock};
use tidewire_link::{Call, Exchange, OutgoingPayload};
use tidewire_proto::generated::errors::ErrorCode;

pub(crate) const STOPPED: &str = "the service has stopped";

/// Reason for the end of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Nobody waits for the answer any more.
    Gone,
    /// Its reader takes no more items, and waits for its end.
    Unread,
    /// Its deadline has passed.
    Late,
    /// The service ends.
    Stopping,
}

/// A call that is handled.
#[derive(Default)]
pub(crate) struct InboundCallState {
    state: Mutex<State>,
}

/// Releases a queued call.
type Release = dyn FnOnce(&InboundCallState) + Send;

#[derive(Default)]
struct State {
    ended: Option<Ended>,
    /// Its caller has cancelled.
    is_gone: bool,
    /// Items that the caller takes.
    credit: u64,
    task: Option<Waker>,
    /// Where the call waits for its turn.
    line: Option<Box<Release>>,
}

impl InboundCallState {
    pub fn new(credit: u32) -> Arc<Self> {
        let state = State { credit: credit.into(), ..State::default() };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// The call is queued: the service instance releases it if its caller leaves.
    pub fn waits(&self, release: impl FnOnce(&Self) + Send + 'static) {
        self.state.lock().line = Some(Box::new(release));
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let waker = {
            let mut state = self.state.lock();
            change(&mut state);
            state.task.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    /// Ends the handler. The first reason counts.
    pub fn end(&self, why: Ended) {
        self.change(|state| {
            state.ended.get_or_insert(why);
        });
    }

    pub fn ended(&self) -> Option<Ended> {
        self.state.lock().ended
    }

    /// Ready when the handler is to end.
    pub fn poll_ended(&self, context: &Context<'_>) -> Poll<Ended> {
        self.poll(context, |state| state.ended)
    }

    /// Ready when the caller has cancelled, or at a time at which this is woken.
    pub fn poll_gone(&self, until: Instant, context: &Context<'_>) -> Poll<bool> {
        self.poll(context, |state| (state.is_gone || clock::now() >= until).then_some(state.is_gone))
    }

    /// Ready when an item may be sent.
    pub fn poll_credit(&self, context: &Context<'_>) -> Poll<()> {
        self.poll(context, |state| (state.credit > 0).then_some(()))
    }

    fn poll<T>(&self, context: &Context<'_>, look: impl FnOnce(&State) -> Option<T>) -> Poll<T> {
        let mut state = self.state.lock();
        let found = look(&state);
        if found.is_none() {
            state.task = Some(context.waker().clone());
        }
        found.map_or(Poll::Pending, Poll::Ready)
    }

    /// An item is sent.
    pub fn spend(&self) {
        let mut state = self.state.lock();
        state.credit = state.credit.saturating_sub(1);
    }
}

impl Exchange for InboundCallState {
    fn cancelled(&self) {
        let mut line = None;
        self.change(|state| {
            state.is_gone = true;
            state.ended.get_or_insert(Ended::Gone);
            line = state.line.take();
        });
        if let Some(release) = line {
            release(self);
        }
    }

    fn wanted(&self, items: u32) {
        if items == 0 {
            return self.end(Ended::Unread);
        }
        self.change(|state| state.credit += u64::from(items));
    }

    fn writable(&self) {
        self.change(|_| {});
    }
}

impl Fire for InboundCallState {
    fn fire(self: Arc<Self>) {
        self.end(Ended::Late);
    }
}

/// Answers a call that no handler sees.
pub(crate) fn refuse(call: Call, code: ErrorCode, text: &str) {
    let flusher = call.flusher();
    call.fail(code, OutgoingPayload::from(text.as_bytes()));
    flusher.flush();
}
