//! Dispatchers: thread pools and event loops that run ready actors.

mod external;
mod parker;
mod pool;
pub mod starvation;
pub mod threads;
#[cfg(feature = "tokio")]
mod tokio;
mod worker;

use std::sync::Arc;

use crate::actor::id::ActorId;

pub use external::{External, Wakeup};
pub(crate) use pool::{Pool, PoolOptions};
pub use pool::{ThreadHooks, ThreadWrapper};
pub use worker::blocking;
pub(crate) use worker::{leave_seat, others_wait};

#[cfg(feature = "tokio")]
pub use self::tokio::TokioDispatcher;

/// Something that can be run when it is its turn: an actor with messages.
pub(crate) trait Run: Send + Sync {
    /// Runs one turn.
    fn run(self: Arc<Self>);
    /// The actor.
    fn actor(&self) -> ActorId;
    /// Where it runs.
    fn dispatcher(&self) -> &Arc<Dispatcher>;
    /// Lets go of what an actor holds that was abandoned and that no thread will run again.
    fn discard(self: Arc<Self>);
}

/// A ready actor in a run queue.
pub(crate) type Task = Arc<dyn Run>;

/// Queues a ready actor. The thread that runs the actor takes over the reference: no count changes
/// if that thread is this one.
#[inline]
pub(crate) fn schedule(task: Task) {
    if let Some(task) = worker::push_where_it_runs(task) {
        let dispatcher = Arc::clone(task.dispatcher());
        match &dispatcher.place {
            DispatcherKind::Threads(pool) => pool.inject(task),
            DispatcherKind::External(external) => external.schedule(task),
        }
    }
}

/// A name, a place to run, and how long one actor may keep a thread while others wait.
pub(crate) struct Dispatcher {
    pub name: Box<str>,
    /// Most messages of one turn.
    pub throughput: u32,
    pub place: DispatcherKind,
}

/// Where ready actors go.
pub(crate) enum DispatcherKind {
    Threads(Arc<Pool>),
    External(Arc<External>),
}

impl Dispatcher {
    /// Puts a ready actor in line.
    #[inline]
    pub fn schedule(&self, task: Task) {
        match &self.place {
            DispatcherKind::Threads(pool) => pool.schedule(task),
            DispatcherKind::External(external) => external.schedule(task),
        }
    }

    /// True if a thread that ends a never started engine may run the actors of this dispatcher
    /// itself.
    pub fn take_over(&self) -> bool {
        match &self.place {
            DispatcherKind::Threads(_) => true,
            DispatcherKind::External(external) => external.take_over(),
        }
    }

    /// True if a thread may look at an empty mailbox a little longer before its actor goes idle.
    #[inline]
    pub fn lingers(&self) -> bool {
        matches!(&self.place, DispatcherKind::Threads(pool) if pool.options.eager && !pool.options.spin.is_zero())
            && !others_wait()
    }
}
