//! `StreamWorker`: a durable subscription or a worker of commands. The node fetches and settles,
//! Python runs the handlers.

use std::sync::Arc;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use tidewire_engine::raw::Mutex;
use tidewire_node::streams::{CommandWorker, DeliveryWorker as Worker, DurableSubscription};

use super::command_worker::CommandAttempt;
use super::durable_subscription::DeliveryWorker;
use super::loop_queue::LoopQueue;
use crate::interpreter::PerProcessOwned;
use crate::interpreter::attach::try_attach;
use crate::interpreter::py_ref::PyRef;
use crate::pending::Pending;

/// Takes deliveries of consumers. Dropping it interrupts its handlers.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct StreamWorker(PerProcessOwned<Kind>);

pub enum Kind {
    Events(Arc<DurableSubscription>, Arc<LoopQueue<Worker>>),
    Commands(Arc<CommandWorker>, Arc<LoopQueue<CommandAttempt>>),
}

/// Does the same with a worker of each kind; in the child of a fork nothing, with this result.
macro_rules! each {
    ($this:ident, $none:expr, $worker:ident, $queue:pat => $call:expr) => {
        match $this.0.mine() {
            Some(Kind::Events($worker, $queue)) => $call,
            Some(Kind::Commands($worker, $queue)) => $call,
            None => $none,
        }
    };
}

impl From<Kind> for StreamWorker {
    fn from(kind: Kind) -> Self {
        Self(PerProcessOwned::new(kind))
    }
}

#[pymethods]
impl StreamWorker {
    /// Waits for delivery workers or attempts to run. Gives none once it has ended.
    fn take(&self) -> Pending {
        match &*self.0 {
            Kind::Events(_, workers) => workers.take(|py, worker| DeliveryWorker(Mutex::new(worker)).into_py_any(py)),
            Kind::Commands(_, attempts) => attempts.take(|py, attempt| attempt.into_py_any(py)),
        }
    }

    /// Begins nothing more. Fetched deliveries are still handled, apart from commands that wait for
    /// their keys.
    fn drain(&self) {
        each!(self, (), worker, _ => worker.drain());
    }

    /// Begins nothing more, interrupts running handlers, and returns all fetched deliveries.
    fn cut(&self) {
        each!(self, (), worker, _ => worker.cut());
    }

    /// Drops everything: nobody waits for it any more.
    fn end(&self) {
        each!(self, (), worker, queue => {
            worker.end();
            queue.close();
        });
    }

    /// True if nothing is queued, handled or to be settled.
    fn is_idle(&self) -> bool {
        each!(self, true, worker, _ => worker.is_idle())
    }

    /// True once it has ended, and everything is settled.
    fn is_over(&self) -> bool {
        each!(self, true, worker, _ => worker.is_over())
    }

    /// Numbers of fetched, handled and returned deliveries.
    fn counts(&self) -> (u64, u64, u64) {
        each!(self, (0, 0, 0), worker, _ => worker.counts().into())
    }
}

impl Drop for StreamWorker {
    fn drop(&mut self) {
        self.cut();
        self.end();
    }
}

/// The log of a worker, by a function that takes a line.
pub fn line_log(log: Py<PyAny>) -> Box<dyn Fn(&str) + Send + Sync> {
    let log = PyRef::from(log);
    Box::new(move |line| drop(try_attach(|py| log.call1(py, (line,)).map(drop))))
}
