//! The actor that runs on the present thread, as a Python reference: the sender of its messages.

use std::cell::RefCell;

use pyo3::prelude::*;

use crate::actors::actor::ActorRef;
use crate::interpreter::once::Once;
use crate::interpreter::py_ref::PyRef;

thread_local! {
    static PRESENT: RefCell<Option<PyRef<ActorRef>>> = const { RefCell::new(None) };
}

/// In the child of a fork: this thread is in no actor's handler any more.
pub fn leave() {
    PRESENT.take();
}

/// Reads the variable `tidewire._runtime.current.actor`, which coroutine handlers run under.
static GET: Once<Py<PyAny>> = Once::new();

/// Runs `what` with `actor` as the present one.
pub fn with<R>(py: Python<'_>, actor: &PyRef<ActorRef>, what: impl FnOnce() -> R) -> R {
    let before = PRESENT.replace(Some(actor.clone_ref(py)));
    let result = what();
    PRESENT.set(before);
    result
}

/// The actor in whose handler this thread is.
pub fn actor(py: Python<'_>) -> Option<PyRef<ActorRef>> {
    on_thread(py).or_else(|| if crate::actors::bridge::runs_coroutines() { from_context(py) } else { None })
}

/// The actor in whose plain handler this thread is.
pub fn on_thread(py: Python<'_>) -> Option<PyRef<ActorRef>> {
    PRESENT.with_borrow(|present| present.as_ref().map(|actor| actor.clone_ref(py)))
}

fn from_context(py: Python<'_>) -> Option<PyRef<ActorRef>> {
    let get = GET.of(py, "tidewire._runtime.current", "actor.get").ok()?;
    let actor = get.call0().ok()?;
    // A value that a forked child finds there was set in its parent.
    actor.cast_into::<ActorRef>().ok().filter(|actor| !actor.get().born.is_past()).map(PyRef::from)
}
