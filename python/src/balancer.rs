//! The balancer of a client: which instance of a service gets a call.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use tidewire_core::rpc::balancer::{Balancer as Machine, Ended, Policy};
use tidewire_engine::raw::Mutex;

use crate::held::Held;
use crate::once::intern;

/// The instances of one service with the ways to them. Calls begin and end on several threads.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct Balancer {
    /// No reference is dropped under the lock.
    machine: Mutex<Machine<Held<PyAny>>>,
}

#[pymethods]
impl Balancer {
    #[new]
    fn new() -> Self {
        Self { machine: Mutex::new(Machine::new()) }
    }

    /// Adds an instance, unless there is one with this id.
    fn add(&self, instance: &str, port: Py<PyAny>) {
        let left = self.machine.lock().add(instance, port.into());
        drop(left);
    }

    /// Forgets an instance. Calls that it is still at may end afterwards.
    fn remove(&self, instance: &str) {
        let left = self.machine.lock().remove(instance);
        drop(left);
    }

    /// The way to the instance for a call, which begins; None if there is none but those that have refused it. `dice` is a `random.Random`.
    #[pyo3(signature = (kind, explore, dice, without = Vec::new()))]
    fn choose(
        &self,
        kind: &str,
        explore: f64,
        dice: &Bound<'_, PyAny>,
        without: Vec<String>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let py = dice.py();
        let policy = match kind {
            "random" => Policy::Random,
            "lowest_latency" => Policy::LowestLatency { explore },
            "least_outstanding" => Policy::LeastOutstanding,
            _ => Policy::First,
        };
        let dice = match policy {
            Policy::First | Policy::LeastOutstanding => 0,
            _ => dice.call_method1(intern!(py, "getrandbits"), (64,))?.extract()?,
        };
        let mut machine = self.machine.lock();
        let chosen = machine.choose(policy, dice, |id| without.iter().any(|other| other == id));
        let chosen = chosen.map(|(id, port)| (Arc::clone(id), port.clone_ref(py)));
        Ok(chosen.map(|(id, port)| {
            machine.began(&id);
            port.into_py()
        }))
    }

    /// The way to an instance, where a call begins; None if there is no such instance.
    fn named(&self, py: Python<'_>, instance: &str) -> Option<Py<PyAny>> {
        let mut machine = self.machine.lock();
        let port = machine.get(instance).map(|(_, port)| port.clone_ref(py).into_py());
        machine.began(instance);
        port
    }

    /// Notes that a call has ended: how many seconds it took, or None where that says nothing of the instance, and whether it failed.
    #[pyo3(signature = (instance, took_s, failed = false))]
    fn ended(&self, instance: &str, took_s: Option<f64>, failed: bool) {
        let how = match took_s.map(|took_s| (took_s * 1e6) as u64) {
            None => Ended::Untold,
            Some(took_us) if failed => Ended::Failed(took_us),
            Some(took_us) => Ended::Answered(took_us),
        };
        self.note_end(instance, how);
    }

    /// How many calls are under way at an instance.
    fn outstanding(&self, instance: &str) -> u64 {
        self.machine.lock().outstanding(instance)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Whoever holds the lock has not come to the end yet: the collector looks again.
        let Some(machine) = self.machine.try_lock() else { return Ok(()) };
        machine.iter().try_for_each(|(_, port)| visit.call(&**port))
    }
}

impl Balancer {
    /// Notes that a call begins.
    pub fn began(&self, instance: &str) {
        self.machine.lock().began(instance);
    }

    /// Notes how a call has ended.
    pub fn note_end(&self, instance: &str, how: Ended) {
        self.machine.lock().ended(instance, how);
    }
}
