//! The retry policy of a call, for calls that Python makes. Times are seconds on one clock.

use pyo3::prelude::*;
use tidewire_core::rpc::retry::Retry as Machine;
use tidewire_engine::raw::Mutex;

/// The attempts of one call.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct Retry(Mutex<Machine>);

fn us(seconds: f64) -> u64 {
    (seconds * 1e6) as u64
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

#[pymethods]
impl Retry {
    /// A call that ends at the latest at a time, if there is one, and is made again at most so often.
    #[new]
    fn new(until_s: Option<f64>, left: u32, seed: u64) -> Self {
        Self(Mutex::new(Machine::new(until_s.map(us), left, seed)))
    }

    /// It was sent, and its link was lost: how long to wait before it is made again; None: it is not.
    fn after_loss(&self, now_s: f64) -> Option<f64> {
        self.0.lock().after_loss(us(now_s)).map(seconds)
    }

    /// It could not be sent, or nobody has taken it: how long to wait before the next attempt; None: it is given up.
    fn while_nobody(&self, now_s: f64) -> Option<f64> {
        self.0.lock().while_nobody(us(now_s)).map(seconds)
    }
}
