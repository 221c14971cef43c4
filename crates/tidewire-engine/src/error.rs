//! Errors of the engine, as the caller sees them.

use std::error::Error;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tidewire_proto::subject::SubjectError;

use crate::actor::id::ActorId;
use crate::dispatch::starvation::Starvation;

/// Failure of a handler: any error that can travel between threads.
pub type Fault = Box<dyn Error + Send + Sync + 'static>;

/// Why a message was not accepted. The message comes back to the caller, by
/// [`into_message`](TellError::into_message).
#[derive(derive_more::Display, derive_more::Debug)]
#[display("{reason}")]
#[debug("TellError({reason:?})")]
pub struct TellError<M> {
    /// The reason.
    pub reason: Refusal,
    /// Never shared: so `?` makes a [`Fault`] of the error whether `M` is `Sync` or not.
    message: Mutex<M>,
}

/// Why a mailbox refused a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, derive_more::Display)]
#[display("{}", self.about(None))]
pub enum Refusal {
    /// The mailbox is full, and its overflow policy is to wait or to fail.
    Full {
        /// The actor that refused.
        actor: ActorId,
        /// How many messages its mailbox holds.
        capacity: usize,
    },
    /// The actor is stopping or has stopped.
    Stopped {
        /// The actor that refused.
        actor: ActorId,
    },
}

impl Refusal {
    /// The text of the error, with the name of the actor where it has one.
    pub fn about(&self, name: Option<&str>) -> String {
        match self {
            Self::Full { actor, capacity } => format!(
                "the mailbox of actor {} is full (capacity {capacity}): send() waits for room, \
                 a larger mailbox or another overflow policy takes more",
                ActorLabel(*actor, name)
            ),
            Self::Stopped { actor } => {
                format!("actor {} is stopping or has stopped: it takes no more messages", ActorLabel(*actor, name))
            }
        }
    }
}

/// An actor by its id, and its name where it has one.
struct ActorLabel<'a>(ActorId, Option<&'a str>);

impl fmt::Display for ActorLabel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)?;
        self.1.map_or(Ok(()), |name| write!(f, " {name:?}"))
    }
}

impl Error for Refusal {}

impl<M> Error for TellError<M> {}

impl<M> TellError<M> {
    pub(crate) const fn new(reason: Refusal, message: M) -> Self {
        Self { reason, message: Mutex::new(message) }
    }

    /// The message, untouched.
    pub fn into_message(self) -> M {
        self.message.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the mailbox was full.
    pub fn is_full(&self) -> bool {
        matches!(self.reason, Refusal::Full { .. })
    }

    /// True if the actor accepts no more messages.
    pub fn is_stopped(&self) -> bool {
        matches!(self.reason, Refusal::Stopped { .. })
    }
}

/// Why an ask brought no reply.
#[derive(Debug, derive_more::Display)]
#[non_exhaustive]
#[display("{}", self.about(None))]
pub enum AskError {
    /// No reply came before the deadline.
    Timeout {
        /// The actor that was asked.
        actor: ActorId,
        /// How long the asker was ready to wait.
        after: Duration,
        /// Present if the dispatcher of that actor had no free thread meanwhile.
        starved: Option<Box<Starvation>>,
    },
    /// The mailbox refused the message.
    Refused(Refusal),
    /// The message was accepted, and then dead-lettered because the actor stopped first, or by its
    /// overflow policy.
    Lost {
        /// The actor that was asked.
        actor: ActorId,
        /// Reason of the dead letter.
        reason: DeadReason,
    },
    /// The handler ended and passed the place for the reply to nobody.
    NoReply {
        /// The actor that was asked.
        actor: ActorId,
    },
    /// Waiting would close a ring of actors that wait for each other.
    Cycle {
        /// The ring, first and last the same actor.
        path: Vec<String>,
    },
    /// The handler failed with this error.
    Failed(Fault),
}

impl AskError {
    /// The text of the error, with the name of the actor that was asked where it has one.
    pub fn about(&self, name: Option<&str>) -> String {
        let known = |actor: &ActorId| ActorLabel(*actor, name).to_string();
        match self {
            Self::Timeout { actor, after, starved } => {
                let cause = match starved {
                    Some(starved) => starved.to_string(),
                    None => "allow more time, or look at its queueing time".to_owned(),
                };
                format!("actor {} gave no reply within {after:?}: {cause}", known(actor))
            }
            Self::Refused(refusal) => refusal.about(name),
            Self::Lost { actor, reason } => {
                format!("actor {} did not handle the message: it was dead-lettered as {reason}", known(actor))
            }
            Self::NoReply { actor } => format!(
                "actor {} handled the message and kept no place for its reply: send one, or use tell",
                known(actor)
            ),
            Self::Cycle { path } => format!(
                "waiting would close a ring of actors that wait for each other ({}): \
                 reply before asking, or tell instead of ask in one of them",
                path.join(" -> ")
            ),
            Self::Failed(fault) => format!("the handler failed: {fault}"),
        }
    }
}

impl Error for AskError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failed(fault) => Some(fault.as_ref()),
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }
}

/// The source of an error that another actor of this engine has raised, for errors whose source is
/// not the [`AskError`] itself.
#[derive(Debug)]
pub struct PassedOn;

impl fmt::Display for PassedOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("another actor has raised it")
    }
}

impl Error for PassedOn {}

/// True for an error that an actor passes on from an actor that it asked.
pub(crate) fn is_passed_on(fault: &(dyn Error + 'static)) -> bool {
    let is_of_ask = |error: &AskError| matches!(error, AskError::Failed(_) | AskError::Lost { .. });
    std::iter::successors(Some(fault), |error| (*error).source())
        .any(|error| error.is::<PassedOn>() || error.downcast_ref().is_some_and(is_of_ask))
}

/// Why an actor was not created.
#[derive(Debug, derive_more::Display, derive_more::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// A live actor has this name.
    #[display("name: {name:?} belongs to a live actor: choose another, or stop that one first")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// No dispatcher has this name.
    #[display("dispatcher: {name:?} does not exist: use one of {}, or add it to the configuration", known.join(", "))]
    UnknownDispatcher {
        /// The name that was asked for.
        name: String,
        /// The names that exist, sorted.
        known: Vec<String>,
    },
    /// A value is out of its range.
    #[display("{field}: {value} is not allowed: {allowed}")]
    Invalid {
        /// Which one.
        field: &'static str,
        /// The rejected value.
        value: String,
        /// The allowed values.
        allowed: String,
    },
    /// The restart policy needs a factory, and the actor was given as a value.
    #[display("supervision: restart needs a way to make new state: spawn with a factory (spawn_with)")]
    NeedsFactory,
    /// The parent is stopping or has stopped.
    #[display("parent: actor {parent} is stopping or has stopped: it takes no more children")]
    ParentStopped {
        /// The parent.
        parent: ActorId,
    },
    /// The engine is shutting down or has shut down.
    #[display("the engine has been shut down: start a new one")]
    EngineStopped,
    /// The engine holds as many actors as it may.
    #[display("actors: {limit} are alive, which is the limit: stop some, or raise the limit `actors`")]
    TooMany {
        /// The limit.
        limit: usize,
    },
}

/// Why an engine could not be built or started.
#[derive(Debug, derive_more::Display, derive_more::From)]
#[non_exhaustive]
pub enum EngineError {
    /// The configuration is wrong; all its problems are in it.
    #[display("{_0}")]
    #[from]
    Config(crate::config::ConfigError),
    /// The engine runs already.
    #[display("the engine has been started already: start() is called once")]
    AlreadyStarted,
    /// The operating system gave no thread.
    #[display("the system gave no thread for a dispatcher: {_0}")]
    Thread(std::io::Error),
}

impl Error for EngineError {}

/// Why a subscription or a publish was refused.
#[derive(Debug, derive_more::Display, derive_more::From)]
#[non_exhaustive]
pub enum SubscribeError {
    /// The subject or pattern is malformed.
    #[display("{_0}")]
    #[from]
    Subject(SubjectError),
    /// The subscriber is stopping or has stopped.
    #[display("actor {actor} is stopping or has stopped: it takes no subscription")]
    Stopped {
        /// The subscriber.
        actor: ActorId,
    },
    /// The engine holds as many subscriptions as it may.
    #[display("subscriptions: {limit} exist, which is the limit: unsubscribe some, or raise the limit `subscriptions`")]
    TooMany {
        /// The limit.
        limit: usize,
    },
}

impl Error for SubscribeError {}

/// Why a message became a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display)]
#[non_exhaustive]
#[display("{}", self.as_str())]
pub enum DeadReason {
    /// Its handler failed, as often as it was allowed to.
    Failed,
    /// Its deadline had passed before it was handled.
    Expired,
    /// Its asker had gone before it was handled.
    Cancelled,
    /// The overflow policy let it go.
    Dropped,
    /// Its actor stopped before it was handled.
    Stopped,
    /// Its actor was stuck at the end of a stop.
    Abandoned,
    /// A publish or a timer met a full mailbox.
    MailboxFull,
}

impl DeadReason {
    /// The reason as one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::Dropped => "dropped",
            Self::Stopped => "stopped",
            Self::Abandoned => "abandoned",
            Self::MailboxFull => "mailbox_full",
        }
    }
}
