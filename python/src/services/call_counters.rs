//! Counters of one service instance.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tidewire_core::histogram::Histogram;
use tidewire_engine::raw::Mutex;
use tidewire_node::raw::{CallDurations, SERVER};

use crate::actors::engine::Engine;

/// Counts of calls and their times.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct CallCounters {
    // Plain functions end on several threads.
    counts: Mutex<Counts>,
    durations: Arc<CallDurations>,
}

#[derive(Clone, Default)]
struct Counts {
    started: u64,
    ended: u64,
    errors: u64,
    cancelled: u64,
    streams: u64,
    times_us: Histogram,
}

#[pymethods]
impl CallCounters {
    #[new]
    fn new(engine: &Engine) -> Self {
        Self { counts: Mutex::default(), durations: Arc::clone(&engine.durations) }
    }

    /// Notes that a handler has begun.
    pub fn began(&self) {
        self.counts.lock().started += 1;
    }

    /// Notes that a handler gave its result. A `method` is `service/method`.
    pub fn ended(&self, method: &str, us: u64) {
        self.durations.record(SERVER, method, "", Duration::from_micros(us));
        let mut counts = self.counts.lock();
        counts.ended += 1;
        counts.times_us.record(us);
    }

    /// Notes that a handler raised.
    pub fn failed(&self, method: &str, error: &str, us: u64) {
        self.durations.record(SERVER, method, error, Duration::from_micros(us));
        let mut counts = self.counts.lock();
        counts.ended += 1;
        counts.errors += 1;
    }

    /// Notes that a handler ended because nobody waited for it any more.
    pub fn cancelled(&self, method: &str, us: u64) {
        self.durations.record(SERVER, method, "CancelledError", Duration::from_micros(us));
        let mut counts = self.counts.lock();
        counts.ended += 1;
        counts.cancelled += 1;
    }

    /// Notes that a stream has come to its end.
    fn streamed(&self, method: &str, us: u64) {
        self.durations.record(SERVER, method, "", Duration::from_micros(us));
        let mut counts = self.counts.lock();
        counts.ended += 1;
        counts.streams += 1;
    }

    /// The summary for people. Times are those of handlers that returned a result.
    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let summary = PyDict::new(py);
        // Adding to a dict may run the garbage collector, and with it code of the user's.
        let counts = self.counts.lock().clone();
        summary.set_item("calls", counts.started)?;
        summary.set_item("errors", counts.errors)?;
        summary.set_item("cancelled", counts.cancelled)?;
        summary.set_item("streams", counts.streams)?;
        summary.set_item("in_flight", counts.started - counts.ended)?;
        summary.set_item("p50_us", counts.times_us.percentile(50.0))?;
        summary.set_item("p99_us", counts.times_us.percentile(99.0))?;
        Ok(summary)
    }
}
