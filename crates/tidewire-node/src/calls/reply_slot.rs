//! Slot for one reply, filled by the thread of the links.

use std::sync::Arc;
use std::time::Instant;

use tidewire_engine::raw::{Fire, Mutex};
use tidewire_link::{Failure, Message, ReplyWaiter};
use tidewire_proto::generated::errors::ErrorCode;

use crate::error::{Alive, Error};
use crate::pending::ValueSlot;
use crate::values;

/// A value as it came.
pub struct Payload {
    memory: Vec<u8>,
    begin: usize,
}

impl Payload {
    /// The encoded value.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.begin..]
    }

    /// A value that begins somewhere in the memory of a message.
    pub(crate) fn of_memory(memory: Vec<u8>, begin: usize) -> Self {
        Self { memory, begin }
    }

    /// The memory of the message, and where the value begins in it.
    pub fn into_memory(self) -> (Vec<u8>, usize) {
        (self.memory, self.begin)
    }
}

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
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
pub enum CallOutcome {
    /// The value.
    Replied(Payload),
    /// The number of the error, and its text or value; without one the link was lost.
    Failed(u16, Option<Payload>),
    /// A stream without items, or a subscription that is in force.
    Over,
    /// Its deadline has passed.
    Late,
}

impl From<Failure> for CallOutcome {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure.number, failure.message.map(Payload::from))
    }
}

impl CallOutcome {
    /// True if the callee may still be at work: nobody waits for it any more.
    pub fn leaves_callee(&self) -> bool {
        match self {
            Self::Late => true,
            Self::Failed(number, _) => *number == ErrorCode::WireError.number(),
            Self::Replied(_) | Self::Over => false,
        }
    }
}

/// Slot for the outcome of one call.
#[derive(Default)]
pub struct ReplySlot {
    /// Awaited by one task.
    pub outcome: ValueSlot<CallOutcome>,
    alive: Mutex<Option<Alive>>,
}

impl ReplySlot {
    /// The last sign of life of the callee.
    pub fn last_alive(&self) -> Option<Alive> {
        *self.alive.lock()
    }

    /// Number and text of the error of the call, unless its caller has that.
    pub fn failure(&self) -> Option<(u16, Vec<u8>)> {
        self.outcome.look(|outcome| match outcome {
            CallOutcome::Failed(number, Some(text)) => Some((*number, text.bytes().to_vec())),
            _ => None,
        })
    }
}

/// Waits until a subscription is active.
pub(crate) async fn in_force(place: Arc<ReplySlot>, title: String) -> Result<(), Error> {
    let outcome = std::future::poll_fn(|context| place.outcome.poll(context)).await;
    match outcome {
        CallOutcome::Replied(_) | CallOutcome::Over => Ok(()),
        CallOutcome::Failed(number, Some(payload)) => Err(values::read_error(&title, number, payload.bytes())),
        CallOutcome::Failed(_, None) | CallOutcome::Late => Err(Error::lost(&title)),
    }
}

impl ReplyWaiter for ReplySlot {
    fn replied(&self, reply: Message) {
        self.outcome.end(CallOutcome::Replied(reply.into()));
    }

    fn failed(&self, failure: Failure) {
        self.outcome.end(failure.into());
    }

    fn over(&self) {
        self.outcome.end(CallOutcome::Over);
    }

    fn alive(&self, blocked_ms: u32) {
        *self.alive.lock() = Some((Instant::now(), blocked_ms));
    }
}

impl Fire for ReplySlot {
    fn fire(self: Arc<Self>) {
        self.outcome.end(CallOutcome::Late);
    }
}
