//! The load and health of one service instance, for the balancer.

use pyo3::prelude::*;
use tidewire_engine::raw::Mutex;

/// How much the last call counts in the average.
const WEIGHT: f64 = 0.2;
/// A failure counts as so much slower than what was before.
const FAILED_FACTOR: f64 = 2.0;

/// What is known of one instance. Calls begin and end on several threads.
#[pyclass(frozen, module = "tidewire._tidewire")]
#[derive(Default)]
pub struct Standing {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    outstanding: u64,
    latency_s: Option<f64>,
    calls: u64,
}

#[pymethods]
impl Standing {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Calls that began and have not ended.
    #[getter]
    fn outstanding(&self) -> u64 {
        self.state.lock().outstanding
    }

    /// A moving average of how long calls took, the last ones counting most; None before the first has ended.
    #[getter]
    fn latency_s(&self) -> Option<f64> {
        self.state.lock().latency_s
    }

    /// Calls that have ended.
    #[getter]
    fn calls(&self) -> u64 {
        self.state.lock().calls
    }

    /// Notes that a call was sent to it.
    pub fn began(&self) {
        self.state.lock().outstanding += 1;
    }

    /// Notes that a call has ended: how long it took, or None where that says nothing, as for streams. A failure may be quick,
    /// and must not draw calls: it counts as slower than what was before.
    #[pyo3(signature = (took_s, failed = false))]
    pub fn ended(&self, took_s: Option<f64>, failed: bool) {
        let mut state = self.state.lock();
        state.outstanding = state.outstanding.saturating_sub(1);
        state.calls += 1;
        let Some(mut took_s) = took_s else { return };
        if failed {
            took_s = took_s.max(state.latency_s.unwrap_or(took_s) * FAILED_FACTOR);
        }
        state.latency_s = Some(state.latency_s.map_or(took_s, |before| before + WEIGHT * (took_s - before)));
    }
}
