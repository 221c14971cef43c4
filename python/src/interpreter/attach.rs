//! Attaching a thread to the interpreter, so that no fork falls into it.
//!
//! CPython lists a new thread under a lock that it takes without the interpreter's own. Up to 3.12
//! a child that was forked in that moment waits for this lock for ever, before any of our code runs
//! in it. So threads that are not listed yet come through a gate, and a fork shuts it meanwhile.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tidewire_engine::raw::{Condvar, Mutex, PerProcess};

use crate::interpreter::py_ref::collect;

static BARRIER: PerProcess<ForkBarrier> = PerProcess::new();

thread_local! {
    static AT: Cell<AttachState> = const { Cell::new(AttachState::Unknown) };
}

/// Attachment of this thread to the interpreter.
#[derive(Clone, Copy, PartialEq)]
enum AttachState {
    /// Nothing here has attached or detached it: a thread of Python's that called us has it, any
    /// other has not.
    Unknown,
    Attached,
    Detached,
}

/// Calls `what` with the interpreter, after any fork in progress.
#[inline]
pub fn attach<R>(what: impl for<'py> FnOnce(Python<'py>) -> R) -> R {
    let pass = AttachPermit::if_needed();
    #[expect(clippy::disallowed_methods, reason = "this is the gate")]
    Python::attach(|py| inside(py, pass, what))
}

/// Calls `what` with the interpreter, unless the program is at its end.
pub fn try_attach<R>(what: impl for<'py> FnOnce(Python<'py>) -> R) -> Option<R> {
    let pass = AttachPermit::if_needed();
    #[expect(clippy::disallowed_methods, reason = "this is the gate")]
    Python::try_attach(|py| inside(py, pass, what))
}

#[inline]
fn inside<'py, R>(py: Python<'py>, pass: Option<AttachPermit>, what: impl FnOnce(Python<'py>) -> R) -> R {
    drop(pass);
    let _back = AttachGuard::after(AttachState::Attached);
    collect(py);
    what(py)
}

/// Calls `what` without the interpreter.
pub fn detach<R: Send>(py: Python<'_>, what: impl FnOnce() -> R + Send) -> R {
    #[expect(clippy::disallowed_methods, reason = "this is where it is noted")]
    let result = py.detach(|| {
        let _back = AttachGuard::after(AttachState::Detached);
        what()
    });
    collect(py);
    result
}

/// True if this thread holds the interpreter.
#[inline]
pub fn is_attached() -> bool {
    match AT.get() {
        AttachState::Attached => true,
        AttachState::Detached => false,
        AttachState::Unknown => is_listed(),
    }
}

/// True if the interpreter has a thread state for this thread.
#[inline]
fn is_listed() -> bool {
    // SAFETY: it may be called on any thread once the interpreter has been initialised, which it
    // was when this module was imported.
    unsafe { !ffi::PyGILState_GetThisThreadState().is_null() }
}

/// True if the caller has the only reference to an object.
#[inline]
pub fn is_sole<T>(object: &Bound<'_, T>) -> bool {
    // SAFETY: the object lives, and the interpreter is held.
    unsafe { ffi::Py_REFCNT(object.as_ptr()) == 1 }
}

/// The dictionary of this thread's interpreter state: modules store values in it by name.
#[inline]
pub fn of_this_thread(py: Python<'_>) -> Option<Bound<'_, PyDict>> {
    // SAFETY: the interpreter is held, and so the thread has a state. The dictionary is that
    // state's: a reference of its own keeps it.
    let notes = unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyThreadState_GetDict()) };
    notes.and_then(|notes| notes.cast_into().ok())
}

/// Schedules a call on the main thread between two steps of its program. At the end of the program
/// the call is dropped.
pub fn call_soon(what: fn(Python<'_>)) {
    extern "C" fn call(what: *mut c_void) -> c_int {
        // SAFETY: it is the function that `call_soon` has cast, and nobody else passes this one on.
        let what = unsafe { std::mem::transmute::<*mut c_void, fn(Python<'_>)>(what) };
        // Python runs pending calls with the interpreter held.
        attach(what);
        0
    }
    // SAFETY: both may be called on any thread, without the interpreter. With a full queue the
    // answer is -1, and nothing is called.
    unsafe {
        if ffi::Py_IsInitialized() != 0 {
            let _ = ffi::Py_AddPendingCall(Some(call), what as *mut c_void);
        }
    }
}

/// Notes where the thread is, until it is dropped.
struct AttachGuard(AttachState);

impl AttachGuard {
    #[inline]
    fn after(at: AttachState) -> Self {
        Self(AT.replace(at))
    }
}

impl Drop for AttachGuard {
    #[inline]
    fn drop(&mut self) {
        AT.set(self.0);
    }
}

/// Before a fork: no thread attaches to the interpreter until [`after_fork_in_parent`]. The gate of
/// the child is a new one.
#[pyfunction]
pub fn before_fork(py: Python<'_>) {
    // A thread inside the gate waits for the interpreter.
    detach(py, || BARRIER.get().shut());
}

/// After a fork, or after one that the system refused.
#[pyfunction]
pub fn after_fork_in_parent() {
    BARRIER.get().open();
}

/// Leave to be listed, until it is dropped.
struct AttachPermit(&'static ForkBarrier);

impl AttachPermit {
    #[inline]
    fn if_needed() -> Option<Self> {
        if AT.get() == AttachState::Attached || is_listed() { None } else { Some(Self::take()) }
    }

    #[cold]
    fn take() -> Self {
        let barrier = BARRIER.get();
        barrier.enter();
        Self(barrier)
    }
}

impl Drop for AttachPermit {
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[derive(Default)]
struct ForkBarrier {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Threads that are coming in.
    inside: usize,
    /// Number of forks in progress. Two threads may fork, one of them waiting for the interpreter.
    forks: usize,
}

impl ForkBarrier {
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
