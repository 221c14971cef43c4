//! Signals of an actor about other actors, and notices of the engine to an actor.

use std::fmt;
use std::sync::Arc;

use crate::actor::id::ActorId;

/// A notice to an actor about another one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Signal {
    /// A watched actor has terminated.
    Terminated {
        /// Which.
        actor: ActorId,
        /// Its name, if it had one.
        name: Option<Arc<str>>,
        /// Why.
        reason: StopReason,
    },
}

/// Why an actor terminated.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// It was stopped, by itself or by another.
    Stopped,
    /// Its future ended.
    Finished,
    /// It failed, and its policy is to stop or to escalate.
    Failed(String),
    /// It failed more often than its policy allows.
    RestartLimit(String),
    /// Its parent stopped.
    ParentStopped,
    /// It was stuck in its handler when the time for its stop was up.
    Abandoned,
    /// The engine shut down.
    Shutdown,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("stopped"),
            Self::Finished => f.write_str("finished"),
            Self::Failed(error) => write!(f, "failed: {error}"),
            Self::RestartLimit(error) => write!(f, "restart_limit: {error}"),
            Self::ParentStopped => f.write_str("parent_stopped"),
            Self::Abandoned => f.write_str("abandoned"),
            Self::Shutdown => f.write_str("shutdown"),
        }
    }
}

/// Notice of the engine to an actor, in a lane above all messages.
pub(crate) enum Notice {
    /// Run the start hook.
    Start,
    /// Hand this to the handler of signals.
    Signal(Signal),
    /// A child failed and passes its failure on.
    Escalated(String),
}
