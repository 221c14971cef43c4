//! The admission of streams: a concurrency limit with priorities, for objects of Python.

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use tidewire_core::rpc::admission::{Admission as Machine, Entry};
use tidewire_engine::raw::Mutex;

use crate::arguments::Priority;
use crate::errors;
use crate::interpreter::py_ref::PyRef;

/// At most `running_max` entries run and at most `waiting_max` wait. Thread-safe.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct Admission {
    waiting_max: usize,
    /// No reference is dropped under the lock.
    state: Mutex<State>,
}

struct State {
    machine: Machine<PyRef<PyAny>>,
    /// By their addresses.
    running: HashMap<usize, PyRef<PyAny>>,
}

#[pymethods]
impl Admission {
    #[new]
    fn new(running_max: usize, waiting_max: usize) -> Self {
        let state = State { machine: Machine::new(running_max, waiting_max), running: HashMap::new() };
        Self { waiting_max, state: Mutex::new(state) }
    }

    /// Number of waiting entries.
    #[getter]
    fn waiting(&self) -> usize {
        self.state.lock().machine.waiting()
    }

    /// Admits or queues an entry. True: it runs now. False: it waits until `leave` of another entry
    /// admits it.
    fn enter(&self, one: &Bound<'_, PyAny>, priority: Priority) -> PyResult<bool> {
        let mut state = self.state.lock();
        let entry = state.machine.enter(one.clone().into(), Priority::lane(Some(priority)) as usize);
        if let Entry::Admitted(admitted) = entry {
            let before = state.running.insert(one.as_ptr() as usize, admitted);
            drop(state);
            drop(before);
            return Ok(true);
        }
        drop(state);
        match entry {
            Entry::Refused(_) => {
                let text = format!("service_waiting={}: so many wait already: try again later", self.waiting_max);
                Err(errors::error(one.py(), "MailboxFull", &text, &[]))
            }
            _ => Ok(false),
        }
    }

    /// Ends a running or waiting entry. Returns the entry that runs instead. A second call does
    /// nothing.
    fn leave(&self, one: &Bound<'_, PyAny>) -> Option<Py<PyAny>> {
        let mut state = self.state.lock();
        let ended = state.running.remove(&(one.as_ptr() as usize));
        let removed = if ended.is_none() { state.machine.remove(|other| other.is(one)) } else { None };
        let next = if ended.is_some() { state.machine.leave() } else { None };
        let following = next.as_ref().map(|next| next.clone_ref(one.py()).into_py());
        let before = next.and_then(|next| state.running.insert(next.as_ptr() as usize, next));
        drop(state);
        drop((ended, removed, before));
        following
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // A locked state is in use by another thread: the garbage collector looks again later.
        let Some(state) = self.state.try_lock() else { return Ok(()) };
        state.machine.queued().chain(state.running.values()).try_for_each(|one| visit.call(&**one))
    }
}
