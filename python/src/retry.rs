//! The retry policy of a call, for calls that Python makes. Times are seconds on one clock.

use pyo3::prelude::*;
use tidewire_core::rpc::retry::Retry as Machine;
use tidewire_engine::raw::Mutex;

/// The attempts of one call, at instances by their ids.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct Retry(Mutex<Machine<String>>);

fn us(seconds: f64) -> u64 {
    (seconds * 1e6) as u64
}

#[pymethods]
impl Retry {
    /// A call that ends at the latest at a time, if there is one, and is made again at most so
    /// often after losses.
    #[new]
    fn new(until_s: Option<f64>, left: u32, seed: u64) -> Self {
        Self(Mutex::new(Machine::new(until_s.map(us), left, seed)))
    }

    /// The instances that are not tried now.
    #[getter]
    fn tried(&self) -> Vec<String> {
        self.0.lock().tried().to_vec()
    }

    /// An instance has not taken it.
    fn refused(&self, instance: String) {
        self.0.lock().refused(instance);
    }

    /// It was sent to an instance, and its link was lost: whether it is made again.
    fn lost(&self, instance: String, now_s: f64) -> bool {
        self.0.lock().lost(instance, us(now_s))
    }

    /// No instance is left to try: how long to wait before all may be tried again; None: it is
    /// given up.
    fn nobody(&self, now_s: f64) -> Option<f64> {
        self.0.lock().nobody(us(now_s)).map(|wait_us| wait_us as f64 / 1e6)
    }
}
