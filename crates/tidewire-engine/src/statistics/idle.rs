//! Quiescence of an engine: the moment in which no actor has anything to do.
//!
//! The check looks at all actors one after the other, and waits for the first that has something to
//! do. One pass proves nothing: an idle actor may have received a message since its scan. So the
//! passes repeat until twice in a row nothing was accepted and no actor has come or gone. Then all
//! actors were idle between the two passes (Mattern, "Algorithms for distributed termination
//! detection", 1987). Nothing is counted for this while messages are handled.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::thread;
use std::time::Instant;

use tidewire_sync::clock;

use crate::cell::any_cell::AnyCell;
use crate::core::Core;
use crate::engine::EngineHandle;
use crate::reply::Unpark;
use crate::statistics::ActorStatistics;

/// The state of an engine that is idle. Two that are equal say that it was idle all the time
/// between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleSnapshot {
    spawned: u64,
    actors: usize,
    accepted: u64,
}

impl EngineHandle {
    /// Waits until no actor has anything to do: nothing waits in a mailbox, no handler and no hook
    /// runs, and no restart is due. Timers that have not fired and asks of others do not count. It
    /// may never be so: what the actors tell each other is not limited.
    ///
    /// In the handler of an actor it never is, as that handler runs.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub fn idle(&self) -> Idle {
        Idle { core: Arc::clone(&self.core), looked: IdleScan::new(&self.core), before: None }
    }

    /// The mark of this moment, if no actor has anything to do as far as one look tells.
    pub fn mark(&self) -> Option<IdleSnapshot> {
        let mut scan = IdleScan::new(&self.core);
        scan.find_busy().is_none().then(|| scan.mark())
    }

    /// The actors that have something to do.
    pub fn busy(&self) -> Vec<ActorStatistics> {
        let busy = self.core.all().into_iter().filter(|cell| cell.accepted_if_idle().is_none());
        busy.map(|cell| cell.statistics()).collect()
    }
}

/// Ends when an engine is idle; see [`EngineHandle::idle`].
#[must_use = "nothing is waited for until it is awaited"]
pub struct Idle {
    core: Arc<Core>,
    looked: IdleScan,
    before: Option<IdleSnapshot>,
}

impl Idle {
    /// Blocks this thread until the engine is idle, or the time is up.
    pub fn wait_until(mut self, deadline: Instant) -> Option<IdleSnapshot> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        crate::dispatch::blocking(move || {
            loop {
                let mut context = TaskContext::from_waker(&waker);
                if let Poll::Ready(mark) = Pin::new(&mut self).poll(&mut context) {
                    return Some(mark);
                }
                let left = deadline.saturating_duration_since(clock::now());
                if left.is_zero() {
                    return None;
                }
                thread::park_timeout(left);
            }
        })
    }
}

impl Future for Idle {
    type Output = IdleSnapshot;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<IdleSnapshot> {
        loop {
            while let Some(busy) = self.looked.find_busy() {
                if busy.wake_when_idle(cx.waker()) {
                    return Poll::Pending;
                }
            }
            let mark = self.looked.mark();
            if self.before.replace(mark) == Some(mark) {
                return Poll::Ready(mark);
            }
            self.looked = IdleScan::new(&self.core);
        }
    }
}

/// One look at all actors, which may pause at one that is busy.
struct IdleScan {
    spawned: u64,
    cells: Vec<Arc<dyn AnyCell>>,
    at: usize,
    accepted: u64,
}

impl IdleScan {
    fn new(core: &Core) -> Self {
        Self { spawned: core.spawned(), cells: core.all(), at: 0, accepted: 0 }
    }

    /// The next actor that has something to do. Asked again, it looks at that one again.
    fn find_busy(&mut self) -> Option<&Arc<dyn AnyCell>> {
        while let Some(cell) = self.cells.get(self.at) {
            let Some(accepted) = cell.accepted_if_idle() else { break };
            self.accepted += accepted;
            self.at += 1;
        }
        self.cells.get(self.at)
    }

    fn mark(&self) -> IdleSnapshot {
        IdleSnapshot { spawned: self.spawned, actors: self.cells.len(), accepted: self.accepted }
    }
}
