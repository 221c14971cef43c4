//! The life of an inbound call: cancelled, out of time, out of credit, or answered.

use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tidewire_engine::raw::{Fire, Mutex};
use tidewire_link::Exchange;

use crate::services::instance::ServiceInstance;

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

#[derive(Default)]
struct State {
    ended: Option<Ended>,
    /// Its caller has cancelled.
    is_gone: bool,
    /// Items that the caller takes.
    credit: u64,
    task: Option<Waker>,
    /// Where the call waits for its turn.
    line: Option<Weak<ServiceInstance>>,
}

impl InboundCallState {
    pub fn new(credit: u32) -> Arc<Self> {
        let state = State { credit: credit.into(), ..State::default() };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// The call is queued: the service instance releases it if its caller leaves.
    pub fn waits(&self, host: &Arc<ServiceInstance>) {
        self.state.lock().line = Some(Arc::downgrade(host));
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let waker = {
            let mut state = self.state.lock();
            change(&mut state);
            state.task.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
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
        let mut state = self.state.lock();
        if let Some(ended) = state.ended {
            return Poll::Ready(ended);
        }
        state.task = Some(context.waker().clone());
        Poll::Pending
    }

    /// Ready when the caller has cancelled, or at a time at which this is woken.
    pub fn poll_gone(&self, until: Instant, context: &Context<'_>) -> Poll<bool> {
        let mut state = self.state.lock();
        if state.is_gone || Instant::now() >= until {
            return Poll::Ready(state.is_gone);
        }
        state.task = Some(context.waker().clone());
        Poll::Pending
    }

    /// Ready when an item may be sent.
    pub fn poll_credit(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if state.credit > 0 {
            return Poll::Ready(());
        }
        state.task = Some(context.waker().clone());
        Poll::Pending
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
        if let Some(host) = line.and_then(|host| host.upgrade()) {
            host.gone(self);
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
