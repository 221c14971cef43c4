//! The balancer of a client: which instance of a service gets a call.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use tidewire_core::rpc::balancer::{Balancer as Machine, Ended, Policy};
use tidewire_engine::raw::Mutex;

use crate::interpreter::once::intern;
use crate::interpreter::py_ref::PyRef;
use crate::link::Route;

/// The instances of one service with the ways to them. Calls begin and end on several threads.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct Balancer {
    /// No reference is dropped under the lock.
    state: Mutex<State>,
}

struct State {
    machine: Machine<InstanceRoute>,
    /// Counts what came and went.
    version: u64,
}

/// The connection to an instance.
struct InstanceRoute {
    port: PyRef<PyAny>,
    /// Over a link.
    route: Option<PyRef<Route>>,
    /// A standby instance gets calls only if no other is left.
    standby: bool,
}

#[pymethods]
impl Balancer {
    #[new]
    fn new() -> Self {
        Self { state: Mutex::new(State { machine: Machine::default(), version: 0 }) }
    }

    /// Adds an instance, unless there is one with this id. `route` is for calls with nothing
    /// unusual.
    fn add(&self, instance: &str, port: Py<PyAny>, route: Option<Py<Route>>, standby: bool) {
        let entry = InstanceRoute { port: port.into(), route: route.map(PyRef::from), standby };
        let left = self.changed(|machine| machine.add(instance, entry));
        drop(left);
    }

    /// Forgets an instance. Calls that it is still at may end afterwards.
    fn remove(&self, instance: &str) {
        let left = self.changed(|machine| machine.remove(instance));
        drop(left);
    }

    /// A number that changes whenever an instance comes or goes, if all that don't stand by can be
    /// reached by routes.
    #[getter]
    fn version(&self) -> Option<u64> {
        let state = self.state.lock();
        let mut active = state.machine.iter().filter(|(_, entry)| !entry.standby).peekable();
        let is_fast = active.peek().is_some() && active.all(|(_, entry)| entry.route.is_some());
        is_fast.then_some(state.version)
    }

    /// The connection to the instance for a call, which begins. None: every instance has refused
    /// the call. `dice` is a `random.Random`.
    #[pyo3(signature = (kind, explore, dice, without = Vec::new()))]
    fn choose(
        &self,
        kind: &str,
        explore: f64,
        dice: &Bound<'_, PyAny>,
        without: Vec<String>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let py = dice.py();
        let policy = policy(kind, explore);
        let dice = drawn(policy, dice)?;
        let machine = &mut self.state.lock().machine;
        let chosen = machine.choose(policy, dice, |id| without.iter().any(|other| other == id));
        let chosen = chosen.map(|(id, entry)| (Arc::clone(id), entry.port.clone_ref(py)));
        Ok(chosen.map(|(id, port)| {
            machine.began(&id);
            port.into_py()
        }))
    }

    /// The connection to an instance, where a call begins. None: there is no such instance.
    fn named(&self, py: Python<'_>, instance: &str) -> Option<Py<PyAny>> {
        let machine = &mut self.state.lock().machine;
        let port = machine.get(instance).map(|(_, entry)| entry.port.clone_ref(py).into_py());
        machine.began(instance);
        port
    }

    /// Records the end of a call: its seconds, or None if they say nothing of the instance, and
    /// true if it failed.
    #[pyo3(signature = (instance, took_s, failed = false))]
    fn ended(&self, instance: &str, took_s: Option<f64>, failed: bool) {
        let how = match took_s.map(|took_s| (took_s * 1e6) as u64) {
            None => Ended::Untold,
            Some(took_us) if failed => Ended::Failed(took_us),
            Some(took_us) => Ended::Answered(took_us),
        };
        self.note_end(instance, how);
    }

    /// Number of calls in progress at an instance.
    fn outstanding(&self, instance: &str) -> u64 {
        self.state.lock().machine.outstanding(instance)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // A locked state is in use by another thread: the garbage collector looks again later.
        let Some(state) = self.state.try_lock() else { return Ok(()) };
        state.machine.iter().try_for_each(|(_, entry)| {
            visit.call(&*entry.port)?;
            entry.route.as_ref().map_or(Ok(()), |route| visit.call(&**route))
        })
    }
}

impl Balancer {
    fn changed<T>(&self, change: impl FnOnce(&mut Machine<InstanceRoute>) -> T) -> T {
        let mut state = self.state.lock();
        state.version += 1;
        change(&mut state.machine)
    }

    /// True if the set of instances has this version still.
    pub fn is_current(&self, version: u64) -> bool {
        self.state.lock().version == version
    }

    /// The route of a call that is about to be sent, if nothing has come or gone since. `dice` is
    /// what was drawn for it.
    pub fn route(&self, py: Python<'_>, version: u64, policy: Policy, dice: u64) -> Option<PyRef<Route>> {
        let mut state = self.state.lock();
        if state.version != version {
            return None;
        }
        let passive: Vec<_> =
            state.machine.iter().filter(|(_, entry)| entry.standby).map(|(id, _)| Arc::clone(id)).collect();
        let chosen = state.machine.choose(policy, dice, |id| passive.iter().any(|other| **other == *id));
        chosen.and_then(|(_, entry)| Some(entry.route.as_ref()?.clone_ref(py)))
    }

    /// Notes that a call begins.
    pub fn began(&self, instance: &str) {
        self.state.lock().machine.began(instance);
    }

    /// Notes how a call has ended.
    pub fn note_end(&self, instance: &str, how: Ended) {
        self.state.lock().machine.ended(instance, how);
    }
}

/// A policy by its name; "all" is none that chooses.
pub fn policy(kind: &str, explore: f64) -> Policy {
    match kind {
        "random" => Policy::Random,
        "lowest_latency" => Policy::LowestLatency { explore },
        "least_outstanding" => Policy::LeastOutstanding,
        _ => Policy::First,
    }
}

/// A number for one choice, of a `random.Random`.
pub fn drawn(policy: Policy, dice: &Bound<'_, PyAny>) -> PyResult<u64> {
    match policy {
        Policy::First | Policy::LeastOutstanding => Ok(0),
        Policy::Random | Policy::LowestLatency { .. } => {
            dice.call_method1(intern!(dice.py(), "getrandbits"), (64,))?.extract()
        }
    }
}
