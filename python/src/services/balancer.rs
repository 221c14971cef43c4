//! The balancer of a client: which instance of a service gets a call.

use std::sync::Arc;
use std::time::Instant;

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use tidewire_core::rpc::balancer::{Balancer as Machine, CallLoad as Load, CallProfile, Ended, Policy};
use tidewire_core::rpc::{FAR, STANDBY};
use tidewire_engine::raw::{Mutex, clock};
use tidewire_node::raw::route_rows;

use crate::interpreter::once::intern;
use crate::interpreter::py_ref::PyRef;
use crate::link::Route;
use crate::services::retry::Retry;

/// The instances of one service with the ways to them. Calls begin and end on several threads.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct Balancer {
    /// No reference is dropped under the lock.
    state: Mutex<State>,
    /// The origin of its times.
    origin: Instant,
}

/// The load of one call at its instance.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct CallLoad(pub Load);

/// A call for the lowest-latency policy: its method, the argument that says its cost, and whether
/// it is idempotent.
type Facts<'py> = (String, Option<Bound<'py, PyAny>>, bool);
/// The fields of a `RoutingEstimate` and of a `RoutingDecision`.
type EstimateFields = (String, Option<f64>, f64, u64, u64, f64, f64, bool);
type DecisionFields = (f64, String, String, &'static str, f64);

/// The load of a call or a stream at its instance. Dropped, its end says nothing of the instance.
pub struct InstanceLoad {
    pub balancer: PyRef<Balancer>,
    /// Until the end is noted.
    pub load: Option<Load>,
    pub route: PyRef<Route>,
}

impl InstanceLoad {
    /// Notes how the call has ended.
    pub fn end(&mut self, how: Ended) {
        if let Some(load) = self.load.take() {
            self.balancer.get().note_end(&self.route.get().instance, load, how);
        }
    }
}

impl Drop for InstanceLoad {
    fn drop(&mut self) {
        self.end(Ended::Untold);
    }
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
}

#[pymethods]
impl Balancer {
    #[new]
    fn new() -> Self {
        Self { state: Mutex::new(State { machine: Machine::default(), version: 0 }), origin: clock::now() }
    }

    /// Adds an instance, unless there is one with this id. `route` is for calls with nothing
    /// unusual.
    fn add(&self, instance: &str, port: Py<PyAny>, route: Option<Py<Route>>) {
        let entry = InstanceRoute { port: port.into(), route: route.map(PyRef::from) };
        let removed = self.changed(|machine| machine.add(instance, entry));
        drop(removed);
    }

    /// Forgets an instance. Calls that it is still at may end afterwards.
    fn remove(&self, instance: &str) {
        let removed = self.changed(|machine| machine.remove(instance));
        drop(removed);
    }

    /// A number that changes whenever an instance comes or goes, if all to which a call goes at
    /// first can be reached by routes: those that don't stand by, or all if all are at other hubs.
    #[getter]
    fn version(&self) -> Option<u64> {
        let state = self.state.lock();
        let all_far = state.machine.iter().all(|(id, _)| id.starts_with(FAR));
        let mut first = state.machine.iter().filter(|(id, _)| all_far || !id.starts_with(STANDBY)).peekable();
        let is_fast = first.peek().is_some() && first.all(|(_, entry)| entry.route.is_some());
        is_fast.then_some(state.version)
    }

    /// The connection to the instance for a call, which begins. None: every instance has refused
    /// the call. `dice` is a `random.Random`.
    fn choose(
        &self,
        kind: &str,
        explore: f64,
        dice: &Bound<'_, PyAny>,
        call: Facts<'_>,
        retry: Option<&Bound<'_, Retry>>,
    ) -> PyResult<Option<(Py<PyAny>, CallLoad)>> {
        let py = dice.py();
        let policy = policy(kind, explore);
        let (method, cost, idempotent) = call;
        let call = self.profile(&method, cost.as_ref(), idempotent, drawn(policy, dice)?);
        let machine = &mut self.state.lock().machine;
        let chosen = match retry.map(|retry| retry.get().0.lock()) {
            Some(retry) => machine.choose_next(policy, &call, retry.tried(), retry.is_overloaded()),
            None => machine.choose_next(policy, &call, &[""; 0], false),
        };
        let chosen = chosen.map(|(id, entry)| (Arc::clone(id), entry.port.clone_ref(py)));
        Ok(chosen.map(|(id, port)| (port.into_py(), CallLoad(machine.began(&id, policy, &call)))))
    }

    /// The connection to an instance, where a call begins. None: there is no such instance.
    fn named(&self, py: Python<'_>, instance: &str) -> Option<(Py<PyAny>, CallLoad)> {
        let machine = &mut self.state.lock().machine;
        let port = machine.get(instance).map(|(_, entry)| entry.port.clone_ref(py).into_py())?;
        Some((port, CallLoad(machine.began(instance, Policy::First, &CallProfile::default()))))
    }

    /// The estimates and decisions of the lowest-latency policy for a call, and its numbers of
    /// calls and probes.
    fn explain(&self, call: Facts<'_>) -> (Vec<EstimateFields>, Vec<DecisionFields>, u64, u64) {
        let (method, cost, idempotent) = call;
        let call = self.profile(&method, cost.as_ref(), idempotent, 0);
        let found = self.state.lock().machine.explain(&call);
        let estimates = found.instances.iter().map(|one| {
            let (id, expected_s, ejected_s) =
                (one.id.to_string(), one.expected_us.map(|us| us / 1e6), one.ejected_us as f64 / 1e6);
            (id, expected_s, one.error, one.samples, one.outstanding, one.failures, ejected_s, one.is_starting)
        });
        let decisions = found.decisions.iter().map(|one| {
            let ago_s = call.now_us.saturating_sub(one.at_us) as f64 / 1e6;
            (ago_s, one.method.to_string(), one.instance.to_string(), one.reason.name(), one.expected_us / 1e6)
        });
        (estimates.collect(), decisions.collect(), found.calls, found.probes)
    }

    /// The rows of this service in the statistics of the node, as a list in JSON.
    fn routes(&self, service: &str) -> String {
        let now_us = clock::since(self.origin).as_micros() as u64;
        let rows = route_rows(service, &self.state.lock().machine, now_us);
        format!("[{}]", rows.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
    }

    /// Records the end of a call with this load: its seconds, or None if they say nothing of the
    /// instance, and true if it failed.
    #[pyo3(signature = (instance, load, took_s, failed = false))]
    fn ended(&self, instance: &str, load: &CallLoad, took_s: Option<f64>, failed: bool) {
        let how = match took_s.map(|took_s| (took_s * 1e6) as u64) {
            None => Ended::Untold,
            Some(took_us) if failed => Ended::Failed(took_us),
            Some(took_us) => Ended::Answered(took_us),
        };
        self.note_end(instance, load.0, how);
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

    /// A call at this time. Its cost is a number, or the length of a value.
    pub fn profile<'a>(
        &self,
        method: &'a str,
        cost: Option<&Bound<'_, PyAny>>,
        is_idempotent: bool,
        dice: u64,
    ) -> CallProfile<'a> {
        let number = |value: &Bound<'_, PyAny>| value.extract().or_else(|_| value.len().map(|length| length as f64));
        let cost = cost.map_or(0.0, |value| number(value).unwrap_or(0.0));
        CallProfile { method, cost, is_idempotent, now_us: clock::since(self.origin).as_micros() as u64, dice }
    }

    /// The route of a call that is about to be sent, if nothing has come or gone since.
    pub fn route(&self, py: Python<'_>, version: u64, policy: Policy, call: &CallProfile<'_>) -> Option<PyRef<Route>> {
        let mut state = self.state.lock();
        if state.version != version {
            return None;
        }
        let chosen = state.machine.choose_next(policy, call, &[""; 0], false);
        chosen.and_then(|(_, entry)| Some(entry.route.as_ref()?.clone_ref(py)))
    }

    /// Notes that a call begins.
    pub fn began(&self, instance: &str, policy: Policy, call: &CallProfile<'_>) -> Load {
        self.state.lock().machine.began(instance, policy, call)
    }

    /// Notes how a call has ended.
    pub fn note_end(&self, instance: &str, load: Load, how: Ended) {
        self.state.lock().machine.ended(instance, load, how);
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
        Policy::First | Policy::LeastOutstanding | Policy::LowestLatency { .. } => Ok(0),
        Policy::Random => dice.call_method1(intern!(dice.py(), "getrandbits"), (64,))?.extract(),
    }
}
