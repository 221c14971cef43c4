//! Engine: its creation, its start, its handle and its shutdown.

use std::sync::Arc;
use std::task::Waker;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tidewire_sync::{Mutex, clock};

use crate::actor::signal::StopReason;
use crate::cell::any_cell::AnyCell;
use crate::config::EngineConfig;
use crate::core::Core;
use crate::dispatch::Pool;
use crate::error::EngineError;
use crate::guard::wake_all;
use crate::reply::Unpark;
use crate::statistics::stop_report::{Ledger, Stuck};

mod build;
mod handle;
mod spawn;

pub use build::EngineBuilder;
pub(crate) use spawn::spawn;

/// A running engine. Clones are the same engine; it is shut down by [`shutdown`](Engine::shutdown),
/// or, without waiting for anything that waits, when the last clone is dropped.
#[derive(Clone, derive_more::Debug)]
#[debug("Engine({} actors, {} dispatchers)", self.core.alive(), self.core.dispatchers.read().len())]
pub struct Engine {
    inner: Arc<Inner>,
    handle: EngineHandle,
}

/// Handle to an engine for use inside and outside of actors. The handle keeps the memory of the
/// engine alive, not its threads.
#[derive(Clone)]
pub struct EngineHandle {
    pub(crate) core: Arc<Core>,
}

struct Inner {
    core: Arc<Core>,
    pools: Vec<Arc<Pool>>,
    shut: Mutex<Option<ShutdownReport>>,
    haste: Mutex<ShutdownDeadline>,
}

/// Deadline of a shutdown under way: a later caller may only bring it forward.
#[derive(Default)]
struct ShutdownDeadline {
    deadline: Option<Instant>,
    waiting: Option<Thread>,
}

/// How a shutdown ended.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// The sum over all actors that were alive.
    pub ledger: Ledger,
    /// How many actors that were.
    pub actors: usize,
    /// Actors that were stuck in their handlers.
    pub stuck: Vec<Stuck>,
    /// Threads that could not end because of them.
    pub threads: Vec<String>,
}

impl Engine {
    /// An engine with the default configuration, started.
    ///
    /// # Errors
    /// If the system gives no threads.
    pub fn new() -> Result<Self, EngineError> {
        Self::builder().build()
    }

    /// An engine with settings of the caller's.
    pub fn builder() -> EngineBuilder {
        EngineBuilder {
            config: EngineConfig::default(),
            hooks: Arc::default(),
            eager: true,
            paused: false,
            externals: Vec::new(),
        }
    }

    /// Starts a paused engine. Messages that were sent before are handled now.
    ///
    /// # Errors
    /// If it has been started already.
    pub fn start(&self) -> Result<(), EngineError> {
        if !self.inner.core.set_started() {
            return Err(EngineError::AlreadyStarted);
        }
        self.inner.pools.iter().for_each(Pool::start);
        Ok(())
    }

    /// Waits until the engine is [idle](EngineHandle::idle), so that what actors send each other
    /// arrives, for at most three quarters of `timeout`; then stops all actors, children before
    /// their parents, handling what they had accepted, and ends all threads.
    ///
    /// Never takes longer than `timeout` plus the time of a few thread switches: what is stuck then
    /// is named in the report. A second call answers with the report of the first, and gives it no
    /// more time than its own. Called in the handler of an actor it does not wait.
    pub fn shutdown(&self, timeout: Duration) -> ShutdownReport {
        let (now, timeout) = (clock::now(), timeout.min(LONGEST));
        if self.core.is_started() && !self.core.is_stopping() && crate::current::actor_of(self.core.number).is_none() {
            self.idle().wait_until(now + idle_share(timeout));
        }
        self.inner.shutdown(true, now + timeout, None)
    }

    /// Stops all actors as [`shutdown`](Engine::shutdown) does, on a thread of its own, for callers
    /// that must not block. The stop does not wait first for messages between actors, and goes on
    /// if the future is dropped. Without `drain` no handling begins after this call: messages in
    /// mailboxes become dead letters, even if a shutdown under way would have handled them.
    pub fn begin_shutdown(
        &self,
        drain: bool,
        timeout: Duration,
    ) -> impl Future<Output = ShutdownReport> + Send + use<> {
        // Not on the new thread: a handler that the caller cancels next is the last one to run.
        let closed = (!drain && self.core.is_started()).then(|| self.inner.close_mailboxes());
        let place: Arc<Mutex<(Option<ShutdownReport>, Option<Waker>)>> = Arc::default();
        let engine = self.clone();
        let done = Arc::clone(&place);
        let work = move || {
            let report = engine.stop_all(drain, timeout, closed);
            drop(engine);
            let waker = {
                let mut place = done.lock();
                place.0 = Some(report);
                place.1.take()
            };
            wake_all(waker);
        };
        if thread::Builder::new().name("tidewire-shutdown".into()).spawn(work).is_err() {
            let report = self.stop_all(drain, timeout, None);
            place.lock().0 = Some(report);
        }
        std::future::poll_fn(move |cx| {
            let mut place = place.lock();
            match place.0.take() {
                Some(report) => std::task::Poll::Ready(report),
                None => {
                    place.1 = Some(cx.waker().clone());
                    std::task::Poll::Pending
                }
            }
        })
    }

    fn stop_all(&self, drain: bool, timeout: Duration, closed: Option<Vec<Arc<dyn AnyCell>>>) -> ShutdownReport {
        self.inner.shutdown(drain, clock::now() + timeout.min(LONGEST), closed)
    }

    /// A handle for use inside actors.
    pub fn handle(&self) -> EngineHandle {
        self.handle.clone()
    }
}

impl std::ops::Deref for Engine {
    type Target = EngineHandle;

    fn deref(&self) -> &EngineHandle {
        &self.handle
    }
}

impl Inner {
    /// Has a shutdown under way end by `deadline`. If it need not drain any more, waiting messages
    /// are not handled.
    fn hasten(&self, drain: bool, deadline: Instant) {
        let waiting = {
            let mut haste = self.haste.lock();
            haste.deadline = Some(haste.deadline.map_or(deadline, |before| before.min(deadline)));
            haste.waiting.clone()
        };
        let Some(waiting) = waiting else { return };
        if !drain {
            self.close_mailboxes();
        }
        waiting.unpark();
    }

    /// Closes all mailboxes, so that no actor begins another message. Returns the actors, some of
    /// which end at once.
    fn close_mailboxes(&self) -> Vec<Arc<dyn AnyCell>> {
        self.core.set_stopping();
        let actors = self.core.all();
        for cell in &actors {
            let reason = if cell.has_parent() { StopReason::ParentStopped } else { StopReason::Shutdown };
            Arc::clone(cell).begin_stop(false, reason);
        }
        actors
    }

    fn remaining(&self) -> Duration {
        let deadline = self.haste.lock().deadline;
        deadline.map_or(Duration::ZERO, |deadline| deadline.saturating_duration_since(clock::now()))
    }

    /// Stops all actors: those whose mailboxes were closed, or else those that are there.
    fn shutdown(&self, drain: bool, deadline: Instant, closed: Option<Vec<Arc<dyn AnyCell>>>) -> ShutdownReport {
        self.hasten(drain, deadline);
        let mut shut = self.shut.lock();
        if let Some(report) = &*shut {
            return report.clone();
        }
        self.core.set_stopping();
        let actors = closed.unwrap_or_else(|| self.core.all());
        for cell in actors.iter().filter(|cell| !cell.has_parent()) {
            let inline = !self.core.is_started() && cell.takes_over();
            Arc::clone(cell).begin_stop(drain, StopReason::Shutdown);
            if inline {
                Arc::clone(cell).run_inline();
            }
        }
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        self.haste.lock().waiting = Some(thread::current());
        crate::dispatch::blocking(|| {
            for cell in &actors {
                while Arc::clone(cell).on_end(waker.clone()) {
                    let remaining = self.remaining();
                    if remaining.is_zero() || crate::current::actor_of(self.core.number) == Some(cell.id()) {
                        Arc::clone(cell).abandon();
                    } else {
                        thread::park_timeout(remaining);
                    }
                }
            }
        });
        let mut report = ShutdownReport { actors: actors.len(), ..ShutdownReport::default() };
        for end in actors.iter().filter_map(|cell| cell.report()) {
            report.ledger += end.ledger;
            report.stuck.extend(end.stuck);
        }
        self.core.timers.end();
        self.haste.lock().waiting = None;
        let grace = clock::now() + self.remaining().max(GRACE);
        for pool in &self.pools {
            // Threads whose actors were all abandoned need no more time than it takes to notice.
            let until = if report.stuck.is_empty() { grace } else { clock::now() + GRACE };
            report.threads.extend(pool.end(until).into_iter().map(|stuck| stuck.thread));
        }
        *shut = Some(report.clone());
        drop(shut);
        // A released actor may shut the engine down itself.
        self.pools.iter().for_each(|pool| pool.discard());
        report
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shutdown(false, clock::now() + GRACE, None);
        // A message may hold its actor, and with it all of this.
        self.core.dead.clear();
    }
}

/// The part of the time of a shutdown in which it may wait until nothing is left to do: what then
/// does not end is stopped in the rest.
pub fn idle_share(timeout: Duration) -> Duration {
    timeout.mul_f64(0.75)
}

/// More than anybody waits, and an instant that far away can be counted with.
const LONGEST: Duration = Duration::from_secs(86_400 * 365);

/// How long threads have to end once their actors have.
const GRACE: Duration = Duration::from_millis(100);
