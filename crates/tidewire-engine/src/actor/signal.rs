//! Signals of an actor about other actors, and notices of the engine to an actor.

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
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
#[non_exhaustive]
pub enum StopReason {
    /// It was stopped, by itself or by another.
    #[display("stopped")]
    Stopped,
    /// Its future ended.
    #[display("finished")]
    Finished,
    /// It failed, and its policy is to stop or to escalate.
    #[display("failed: {_0}")]
    Failed(String),
    /// It failed more often than its policy allows.
    #[display("restart_limit: {_0}")]
    RestartLimit(String),
    /// Its parent stopped.
    #[display("parent_stopped")]
    ParentStopped,
    /// It was stuck in its handler when the time for its stop was up.
    #[display("abandoned")]
    Abandoned,
    /// The engine shut down.
    #[display("shutdown")]
    Shutdown,
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
