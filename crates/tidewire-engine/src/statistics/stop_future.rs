//! A stop under way: its timeout, and the wait for its end.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::thread;

use tidewire_sync::clock;

use crate::actor::signal::StopReason;
use crate::cell::ActorCell;
use crate::cell::any_cell::AnyCell;
use crate::current;
use crate::reply::Unpark;
use crate::statistics::stop_report::{EndReporter, Stop, StopReport, WaitsForItself};
use crate::timers::{Fire, TimerKey};

/// A stop under way. Await it or [`wait`](Stopping::wait) for it; dropping it leaves the stop, and
/// its timeout, in force.
pub struct Stopping<M> {
    cell: Arc<ActorCell<M>>,
    ending: Arc<EndReporter<M>>,
    timer: Option<TimerKey>,
}

impl<M: Send + 'static> Stopping<M> {
    pub(crate) fn new(cell: &Arc<ActorCell<M>>, stop: Stop) -> Self {
        let ending = cell.close(stop.drain, !stop.drain, StopReason::Stopped);
        let mut timer = None;
        if !cell.core.is_started() {
            // No thread will run it: its hooks and its end happen here.
            Arc::clone(cell).run_inline();
        } else if cell.report().is_none() {
            let at = clock::now().checked_add(stop.timeout);
            timer =
                at.and_then(|at| cell.core.timers.insert(at, Arc::new(Deadline(Arc::clone(cell) as Arc<dyn AnyCell>))));
        }
        Self { cell: Arc::clone(cell), ending, timer }
    }

    /// Blocks this thread until the actor has terminated or was abandoned.
    ///
    /// # Errors
    /// If called inside the handler of that very actor or of a child; the stop itself goes on.
    pub fn wait(self) -> Result<StopReport<M>, WaitsForItself> {
        if self.waits_for_itself() {
            return Err(WaitsForItself { actor: self.cell.id });
        }
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        crate::dispatch::blocking(|| {
            loop {
                if !self.ending.watch(waker.clone())
                    && let Some(report) = self.take()
                {
                    return Ok(report);
                }
                thread::park();
            }
        })
    }

    /// True if this code runs in the handler of the actor or of a child: an actor ends after its
    /// children.
    fn waits_for_itself(&self) -> bool {
        let core = &self.cell.core;
        let here = current::actor_of(core.number).and_then(|id| core.find(id));
        std::iter::successors(here, |cell| cell.parent()).any(|cell| cell.id() == self.cell.id)
    }

    fn take(&self) -> Option<StopReport<M>> {
        let report = self.ending.take()?;
        if let Some(key) = self.timer {
            self.cell.core.timers.remove(key);
        }
        Some(report)
    }
}

impl<M: Send + 'static> Future for Stopping<M> {
    type Output = Result<StopReport<M>, WaitsForItself>;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        if self.waits_for_itself() {
            return Poll::Ready(Err(WaitsForItself { actor: self.cell.id }));
        }
        if self.ending.watch(cx.waker().clone()) {
            return Poll::Pending;
        }
        match self.take() {
            Some(report) => Poll::Ready(Ok(report)),
            None => Poll::Pending,
        }
    }
}

struct Deadline(Arc<dyn AnyCell>);

impl Fire for Deadline {
    fn fire(self: Arc<Self>) {
        Arc::clone(&self.0).abandon();
    }
}
