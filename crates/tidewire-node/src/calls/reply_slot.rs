//! Slot for one reply, filled by the thread of the links.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tidewire_engine::raw::{Fire, Mutex};
use tidewire_link::{Failure, Message, ReplyWaiter};

use crate::error::Alive;

/// A value as it came.
pub(crate) struct Payload {
    memory: Vec<u8>,
    begin: usize,
}

impl Payload {
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.begin..]
    }
}

impl From<Message> for Payload {
    fn from(message: Message) -> Self {
        let (memory, begin) = message.into_payload();
        Self { memory, begin }
    }
}

impl From<Vec<u8>> for Payload {
    fn from(memory: Vec<u8>) -> Self {
        Self { memory, begin: 0 }
    }
}

/// Outcome of a call.
pub(crate) enum CallOutcome {
    Replied(Payload),
    /// The number of the error, and its text or value; without one the link was lost.
    Failed(u16, Option<Payload>),
    /// A stream without items, or a subscription that is in force.
    Over,
    /// Its deadline has passed.
    Late,
}

/// Slot for the outcome of one call.
#[derive(Default)]
pub(crate) struct ReplySlot {
    state: Mutex<(Option<CallOutcome>, Option<Waker>)>,
    alive: Mutex<Option<Alive>>,
}

impl ReplySlot {
    /// The first outcome counts.
    pub fn end(&self, outcome: CallOutcome) {
        let waker = {
            let mut state = self.state.lock();
            if state.0.is_some() {
                return;
            }
            state.0 = Some(outcome);
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Puts an outcome back that was taken out.
    pub fn put_back(&self, outcome: CallOutcome) {
        self.state.lock().0.get_or_insert(outcome);
    }

    pub fn last_alive(&self) -> Option<Alive> {
        *self.alive.lock()
    }

    pub fn poll(&self, context: &Context<'_>) -> Poll<CallOutcome> {
        let mut state = self.state.lock();
        match state.0.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                state.1 = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl ReplyWaiter for ReplySlot {
    fn replied(&self, reply: Message) {
        self.end(CallOutcome::Replied(reply.into()));
    }

    fn failed(&self, failure: Failure) {
        self.end(CallOutcome::Failed(failure.number, failure.message.map(Payload::from)));
    }

    fn over(&self) {
        self.end(CallOutcome::Over);
    }

    fn alive(&self, blocked_ms: u32) {
        *self.alive.lock() = Some((Instant::now(), blocked_ms));
    }
}

impl Fire for ReplySlot {
    fn fire(self: Arc<Self>) {
        self.end(CallOutcome::Late);
    }
}
