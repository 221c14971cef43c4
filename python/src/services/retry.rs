//! The retry policy of a call, for calls that Python makes. Times are seconds on one clock.

use pyo3::prelude::*;
use tidewire_core::rpc::retry::Retry as Machine;
use tidewire_engine::raw::Mutex;

/// The attempts of one call, at instances by their ids.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct Retry(pub Mutex<Machine<String>>);

fn us(seconds: f64) -> u64 {
    (seconds * 1e6) as u64
}

#[pymethods]
impl Retry {
    /// A call with an optional deadline and a limit of retries after losses.
    #[new]
    fn new(until_s: Option<f64>, left: u32, seed: u64) -> Self {
        Self(Mutex::new(Machine::new(until_s.map(us), left, seed)))
    }

    /// The instances that are not tried now.
    #[getter]
    fn tried(&self) -> Vec<String> {
        self.0.lock().tried().to_vec()
    }

    /// An instance has refused the call: for lack of capacity, or for another reason.
    fn refused(&self, instance: String, overloaded: bool) {
        if overloaded {
            self.0.lock().overloaded(instance);
        } else {
            self.0.lock().refused(instance);
        }
    }

    /// The link was lost after the call was sent. Returns true to retry the call.
    fn lost(&self, instance: String, now_s: f64) -> bool {
        self.0.lock().lost(instance, us(now_s))
    }

    /// No instance is left to try. Returns the wait before all may be tried again. None: the call
    /// is given up.
    fn nobody(&self, now_s: f64) -> Option<f64> {
        self.0.lock().nobody(us(now_s)).map(|wait_us| wait_us as f64 / 1e6)
    }
}
