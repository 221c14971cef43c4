//! Envelope: one message in a mailbox, with its metadata.

use std::any::Any;
use std::sync::Arc;

use crate::actor::id::ActorId;
use crate::ask_slot::AskHandle;

/// A message and its metadata.
///
/// Most messages are plain, and take as little space in a mailbox as possible. The largest part of
/// the cost of a message is the move of the mailbox's memory from the sender's core to the actor's.
pub enum Envelope<M> {
    /// Only the message.
    Plain(M),
    /// The message, or a change of behaviour, with what only some messages need.
    With(Box<Meta<M>>),
}

impl<M> Envelope<M> {
    /// An envelope with `meta` around a message.
    pub fn with(message: M, meta: Meta<M>) -> Self {
        Self::With(Box::new(Meta { message: Some(message), ..meta }))
    }

    /// The message apart from the rest. No message means a change of behaviour.
    #[inline]
    pub fn split(self) -> (Option<M>, Option<Box<Meta<M>>>) {
        match self {
            Self::Plain(message) => (Some(message), None),
            Self::With(mut meta) => (meta.message.take(), Some(meta)),
        }
    }

    /// The message alone.
    pub fn into_message(self) -> Option<M> {
        self.split().0
    }

    /// The ask that the message belongs to.
    #[inline]
    pub fn ask(&self) -> Option<&Arc<dyn AskHandle>> {
        match self {
            Self::Plain(_) => None,
            Self::With(meta) => meta.ask.as_ref(),
        }
    }

    pub(crate) fn change(change: Change) -> Self {
        Self::With(Box::new(Meta { change: Some(change), ..Meta::default() }))
    }

    /// True if a stop without drain returns the envelope. Asks end with an error instead, and
    /// behaviour changes concern nobody else.
    pub(crate) fn is_returnable(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::With(meta) => meta.message.is_some() && meta.ask.is_none(),
        }
    }
}

/// Metadata of asks, redeliveries and behaviour changes, beside the message.
pub struct Meta<M> {
    pub(crate) message: Option<M>,
    /// Where the end of an ask is to be reported.
    pub ask: Option<Arc<dyn AskHandle>>,
    /// The actor whose handler sent the message, where that is known.
    pub sender: Option<ActorId>,
    /// How often the message was handed to a handler that failed.
    pub failures: u32,
    /// A change of behaviour that travels in order with the messages.
    pub change: Option<Change>,
}

impl<M> Default for Meta<M> {
    fn default() -> Self {
        Self { message: None, ask: None, sender: None, failures: 0, change: None }
    }
}

/// A requested change of behaviour. The driver of the actor knows the type of its handlers.
pub enum Change {
    /// Use this handler; on top of the present one, or in its place.
    Become {
        /// The handler, of the type that the actor's driver takes.
        handler: Box<dyn Any + Send>,
        /// True to keep the present handler below the new one.
        stack: bool,
    },
    /// Go back to the handler below.
    Unbecome,
}
