//! Actor cell without its message type, for parents, watchers and the engine.

use std::any::Any;
use std::sync::Arc;
use std::task::Waker;

use crate::actor::id::ActorId;
use crate::actor::signal::{Notice, StopReason};
use crate::dispatch::Dispatcher;
use crate::error::Refusal;
use crate::statistics::ActorStatistics;
use crate::statistics::stop_report::Report;

/// An actor whatever its messages are.
pub(crate) trait AnyCell: Send + Sync {
    fn id(&self) -> ActorId;
    fn name(&self) -> Option<&Arc<str>>;
    fn place(&self) -> &Arc<Dispatcher>;
    fn notify(self: Arc<Self>, notice: Notice);
    fn begin_stop(self: Arc<Self>, drain: bool, reason: StopReason);
    fn abandon(self: Arc<Self>);
    fn child_gone(self: Arc<Self>, child: ActorId);
    fn report(&self) -> Option<Report>;
    fn on_end(self: Arc<Self>, waker: Waker) -> bool;
    fn has_parent(&self) -> bool;
    fn parent(&self) -> Option<Arc<dyn AnyCell>>;
    /// Adds a child; false if this actor takes no more.
    fn adopt(&self, child: Arc<dyn AnyCell>) -> bool;
    fn statistics(&self) -> ActorStatistics;
    /// How many messages it has accepted so far, if it has nothing to do.
    fn accepted_if_idle(&self) -> Option<u64>;
    /// Wakes `waker` once it has nothing to do or has ended; false if that is so already.
    fn wake_when_idle(&self, waker: &Waker) -> bool;
    fn tell_any(self: Arc<Self>, message: Box<dyn Any + Send>) -> Result<(), (Refusal, Box<dyn Any + Send>)>;
    fn run_inline(self: Arc<Self>);
    /// True if this thread may run the actor inline: no event loop of another thread runs it.
    fn takes_over(&self) -> bool;
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}
