//! The actor that runs on the present thread, as a Python reference: the sender of its messages.

use std::cell::RefCell;

use pyo3::prelude::*;
use tidewire_engine::raw::ActorKey;

use crate::actors::actor::ActorRef;
use crate::interpreter::once::Once;
use crate::interpreter::py_ref::PyRef;

thread_local! {
    static PRESENT: RefCell<Option<PyRef<ActorRef>>> = const { RefCell::new(None) };
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
    let is_mine = |actor: &&PyRef<ActorRef>| actor.get().inner.is_mine();
    PRESENT.with_borrow(|present| present.as_ref().filter(is_mine).map(|actor| actor.clone_ref(py)))
}

fn from_context(py: Python<'_>) -> Option<PyRef<ActorRef>> {
    let get = GET.of(py, "tidewire._runtime.current", "actor.get").ok()?;
    let actor = get.call0().ok()?;
    actor.cast_into::<ActorRef>().ok().filter(|actor| actor.get().inner.is_mine()).map(PyRef::from)
}

/// The actor that waits during an ask of its handler, if it handles one message at a time. Tasks
/// that a handler has started may outlive the handler: their asks block no actor.
pub fn acting(py: Python<'_>, sender: &Py<ActorRef>) -> Option<ActorKey> {
    static ALONE: Once<Py<PyAny>> = Once::new();
    if !crate::actors::bridge::runs_coroutines() {
        return None;
    }
    let get = ALONE.of(py, "tidewire._runtime.current", "alone.get").ok()?;
    let alone: bool = get.call0().ok()?.extract().ok()?;
    (alone && in_task_of_handlers(py).ok()?).then(|| sender.bind(py).get().inner.cell().key())
}

/// True in a task that handles messages, false in a task that a handler has started.
pub fn in_task_of_handlers(py: Python<'_>) -> PyResult<bool> {
    static CURRENT: Once<Py<PyAny>> = Once::new();
    static HANDLES: Once<Py<PyAny>> = Once::new();
    let task = CURRENT.of(py, "asyncio", "current_task")?.call0()?;
    HANDLES.of(py, "tidewire._runtime.drive", "handles")?.call1((task,))?.extract()
}
