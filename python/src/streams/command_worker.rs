//! The worker of a command for Python: the node fetches and stores, Python runs the attempts.

use std::collections::BTreeMap;
use std::sync::Arc;

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
use super::stream_worker::line_log;
use crate::actors::engine::Engine;
use crate::change_counter::ChangeCounter;
use crate::interpreter::attach::try_attach;
use crate::interpreter::py_ref::PyRef;

/// The service, the command, the node, the timeout, the retries, true for one command of a key at a
/// time, the concurrency, and the time that a record stays; times in seconds.
pub type Options = (String, String, String, Option<f64>, u32, bool, usize, f64);

/// A worker, and the queue of its attempts. `changed` counts when it may be idle; `log` takes a
/// line.
pub fn begin(
    store: Arc<CommandStore>,
    engine: &Engine,
    options: Options,
    changed: Arc<ChangeCounter>,
    log: Py<PyAny>,
) -> (Arc<Worker>, Arc<LoopQueue<CommandAttempt>>) {
    let (service, command, node, timeout_s, retries, is_exclusive, concurrency, keep_s) = options;
    let (timeout, keep) = (timeout_s.map(seconds), seconds(keep_s));
    let options = WorkerOptions { service, command, node, timeout, retries, is_exclusive, concurrency, keep };
    let changed = Box::new(move || changed.tell());
    let attempts = Arc::<LoopQueue<_>>::default();
    let handler = Box::new(LoopHandler(attempts.end()));
    (Worker::of(store, engine.handle(), options, handler, changed, line_log(log)), attempts)
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

    /// The headers of the trace context of the start.
    #[getter]
    fn trace(&self) -> BTreeMap<String, String> {
        self.attempt.record().trace.clone()
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
