//! The worker of a command for Python: the node fetches and stores, Python runs the attempts.

use std::sync::Arc;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use tidewire_backend::home::{Teller, answer};
use tidewire_engine::raw::Mutex;
use tidewire_node::streams::{
    Attempt, AttemptEnd, AttemptFuture, CommandHandler, CommandStore, CommandWorker as Worker, Interruption, Outcome,
    WorkerOptions,
};

use super::lease::seconds;
use super::loop_queue::{LoopQueue, QueueEnd};
use crate::actors::engine::Engine;
use crate::change_counter::ChangeCounter;
use crate::interpreter::PerProcessOwned;
use crate::interpreter::attach::try_attach;
use crate::interpreter::py_ref::PyRef;
use crate::pending::Pending;

/// The service, the command, the node, the timeout, the retries, true for one command of a key at a
/// time, the concurrency, the time that a record stays, and the longest wait of a fetch; times in
/// seconds.
pub type Options = (String, String, String, Option<f64>, u32, bool, usize, f64, f64);

/// A worker. Dropping it interrupts its commands.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct CommandWorker {
    worker: PerProcessOwned<Arc<Worker>>,
    attempts: Arc<LoopQueue<CommandAttempt>>,
}

impl CommandWorker {
    /// `changed` counts when the worker may be idle; `log` takes a line.
    pub fn new(
        store: Arc<CommandStore>,
        engine: &Engine,
        options: Options,
        changed: Arc<ChangeCounter>,
        log: Py<PyAny>,
    ) -> Self {
        let (service, command, node, timeout_s, retries, is_exclusive, concurrency, keep_s, wait_s) = options;
        let (timeout, keep, wait) = (timeout_s.map(seconds), seconds(keep_s), seconds(wait_s));
        let options = WorkerOptions { service, command, node, timeout, retries, is_exclusive, concurrency, keep, wait };
        let log = PyRef::from(log);
        let changed = Box::new(move || changed.tell());
        let log = Box::new(move |line: &str| drop(try_attach(|py| log.call1(py, (line,)).map(drop))));
        let attempts = Arc::<LoopQueue<_>>::default();
        let handler = Box::new(LoopHandler(attempts.end()));
        let worker = Worker::of(store, engine.handle(), options, handler, changed, log);
        Self { worker: PerProcessOwned::new(worker), attempts }
    }

    pub fn worker(&self) -> Arc<Worker> {
        Arc::clone(&self.worker)
    }
}

#[pymethods]
impl CommandWorker {
    /// Waits for attempts to run. Gives none once the worker has ended.
    fn attempts(&self) -> Pending {
        self.attempts.take(|py, attempt| attempt.into_py_any(py))
    }

    /// Begins nothing more. Running commands end; commands that wait for their keys return.
    fn drain(&self) {
        if let Some(worker) = self.worker.mine() {
            worker.drain();
        }
    }

    /// Begins nothing more, interrupts running commands, and returns all to their queues.
    fn cut(&self) {
        if let Some(worker) = self.worker.mine() {
            worker.cut();
        }
    }

    /// Drops everything: nobody waits for it any more.
    fn end(&self) {
        if let Some(worker) = self.worker.mine() {
            worker.end();
        }
        self.attempts.close();
    }

    /// True if no command is under way, and nothing is to be settled.
    fn is_idle(&self) -> bool {
        self.worker.mine().is_none_or(|worker| worker.is_idle())
    }

    /// True if the worker was drained, and nothing is left.
    fn is_over(&self) -> bool {
        self.worker.mine().is_none_or(|worker| worker.is_over())
    }

    /// Numbers of fetched tokens, of those whose commands are over, and of those that returned.
    fn counts(&self) -> (u64, u64, u64) {
        self.worker.mine().map_or((0, 0, 0), |worker| worker.counts().into())
    }
}

impl Drop for CommandWorker {
    fn drop(&mut self) {
        self.cut();
        self.end();
    }
}

/// Runs attempts on an event loop of Python.
struct LoopHandler(QueueEnd<CommandAttempt>);

impl CommandHandler for LoopHandler {
    fn run(&self, attempt: &Arc<Attempt>) -> AttemptFuture {
        let (teller, ended) = answer();
        // An attempt that no loop takes is dropped, and was interrupted.
        self.0.push([CommandAttempt { attempt: Arc::clone(attempt), teller: Mutex::new(Some(teller)) }]);
        Box::pin(async move { ended.await.unwrap_or(AttemptEnd::of(Outcome::Interrupted)) })
    }
}

/// One attempt at a command. Dropping it without its end interrupts it.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct CommandAttempt {
    attempt: Arc<Attempt>,
    teller: Mutex<Option<Teller<AttemptEnd>>>,
}

#[pymethods]
impl CommandAttempt {
    /// The id of the command.
    #[getter]
    fn id(&self) -> &str {
        self.attempt.id()
    }

    /// Which attempt it is, from 1.
    #[getter]
    fn number(&self) -> u32 {
        self.attempt.number()
    }

    /// The key of the command.
    #[getter]
    fn key(&self) -> Option<&str> {
        self.attempt.record().key.as_deref()
    }

    /// The node that has started the command.
    #[getter]
    fn caller(&self) -> &str {
        &self.attempt.record().caller
    }

    /// The arguments as they travel.
    #[getter]
    fn arguments<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.attempt.record().arguments.as_deref().unwrap_or_default())
    }

    /// Why it is to end early: "cancelled", "timeout", "cut" or "lost"; empty if it is not.
    #[getter]
    fn why(&self) -> &'static str {
        self.attempt.why().map_or("", Interruption::name)
    }

    /// Calls a function once the attempt is to end early, on any thread.
    fn on_interrupt(&self, call: Py<PyAny>) {
        let call = PyRef::from(call);
        // A loop that is closed runs no attempt.
        self.attempt.on_interrupt(move || drop(try_attach(|py| call.call0(py).map(drop))));
    }

    /// Reports the progress, on any thread.
    fn report(&self, fraction: f64, note: &str) {
        self.attempt.report(fraction, note);
    }

    /// Ends the attempt: "returned", "raised", "refused", "cancelled" or "interrupted".
    fn finish(
        &self,
        outcome: &str,
        result: Option<PyBackedBytes>,
        error: Option<PyBackedBytes>,
        error_text: Option<String>,
        traceback: Option<String>,
    ) {
        let outcome = match outcome {
            "returned" => Outcome::Returned,
            "cancelled" => Outcome::Cancelled,
            "interrupted" => Outcome::Interrupted,
            "refused" => Outcome::Refused,
            _ => Outcome::Raised,
        };
        let (result, error) = (result.map(|bytes| bytes.to_vec()), error.map(|bytes| bytes.to_vec()));
        let teller = self.teller.lock().take();
        if let Some(teller) = teller {
            drop(teller.tell(Ok(AttemptEnd { outcome, result, error, error_text, traceback })));
        }
    }
}
