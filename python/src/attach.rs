//! How a thread comes to the interpreter, so that no fork falls into it.
//!
//! CPython lists a new thread under a lock that it takes without the interpreter's own. Up to 3.12 a child that was forked in that moment
//! waits for this lock for ever, before any of our code runs in it. So threads that are not listed yet come through a gate, and a
//! fork shuts it meanwhile.

#![allow(unsafe_code)]

use pyo3::ffi;
use pyo3::prelude::*;
use tidewire_engine::raw::{Condvar, Mutex, PerProcess};

static GATE: PerProcess<Gate> = PerProcess::new();

/// Calls `what` with the interpreter. It waits for a fork that is under way.
#[inline]
pub fn attach<R>(what: impl for<'py> FnOnce(Python<'py>) -> R) -> R {
    let pass = Pass::if_needed();
    #[expect(clippy::disallowed_methods, reason = "this is the gate")]
    Python::attach(|py| {
        drop(pass);
        what(py)
    })
}

/// Calls `what` with the interpreter, unless the program is at its end.
pub fn try_attach<R>(what: impl for<'py> FnOnce(Python<'py>) -> R) -> Option<R> {
    let pass = Pass::if_needed();
    #[expect(clippy::disallowed_methods, reason = "this is the gate")]
    Python::try_attach(|py| {
        drop(pass);
        what(py)
    })
}

/// Before a fork: nobody comes to the interpreter until [`after_fork_in_parent`]. In the child the gate is a new one.
#[pyfunction]
pub fn before_fork(py: Python<'_>) {
    // Whoever is in the gate waits for the interpreter.
    py.detach(|| GATE.get().shut());
}

/// After a fork, or after one that the system refused.
#[pyfunction]
pub fn after_fork_in_parent() {
    GATE.get().open();
}

/// Leave to be listed, until it is dropped.
struct Pass(&'static Gate);

impl Pass {
    #[inline]
    fn if_needed() -> Option<Self> {
        // SAFETY: it may be called on any thread once the interpreter has been initialised, which it was when this module was imported.
        let listed = unsafe { !ffi::PyGILState_GetThisThreadState().is_null() };
        if listed { None } else { Some(Self::take()) }
    }

    #[cold]
    fn take() -> Self {
        let gate = GATE.get();
        gate.enter();
        Self(gate)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Threads that are coming in.
    inside: usize,
    /// Forks under way: two threads may be at it, one of them waiting for the interpreter.
    forks: usize,
}

impl Gate {
    fn enter(&self) {
        let mut state = self.state.lock();
        while state.forks > 0 {
            state = self.changed.wait(state);
        }
        state.inside += 1;
    }

    fn leave(&self) {
        let mut state = self.state.lock();
        state.inside -= 1;
        if state.inside == 0 && state.forks > 0 {
            self.changed.notify_all();
        }
    }

    fn shut(&self) {
        let mut state = self.state.lock();
        state.forks += 1;
        while state.inside > 0 {
            state = self.changed.wait(state);
        }
    }

    fn open(&self) {
        let mut state = self.state.lock();
        state.forks -= 1;
        self.changed.notify_all();
    }
}
