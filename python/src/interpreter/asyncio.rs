//! Callbacks on the event loops of asyncio, the wake-up of one, and the exceptions of asyncio.

use std::sync::Arc;
use std::task::Wake;

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use tidewire_engine::raw::Mutex;

use crate::actors::bridge::{LoopHandle, running_loop};
use crate::interpreter::once::Once;
use crate::interpreter::py_ref::PyRef;
use crate::pending::Pending;

/// A waker that makes an event loop poll an operation again.
pub struct LoopWaker {
    pub line: Arc<LoopHandle>,
    pub pending: Mutex<Option<PyRef<Pending>>>,
}

impl Wake for LoopWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let pending = self.pending.lock().take();
        if let Some(pending) = pending {
            self.line.complete(pending);
        }
    }
}

/// Schedules a callback on an event loop, by default that of this thread.
pub fn soon(
    py: Python<'_>,
    of: Option<&Bound<'_, PyAny>>,
    callback: &Py<PyAny>,
    this: &Py<Pending>,
    context: Option<Py<PyAny>>,
) -> PyResult<()> {
    let running = match of {
        Some(of) => of.clone(),
        None => running_loop(py)?,
    };
    let keywords = pyo3::types::PyDict::new(py);
    if let Some(context) = context {
        keywords.set_item("context", context)?;
    }
    running.call_method("call_soon", (callback, this), Some(&keywords)).map(drop)
}

/// The error of an operation that was cancelled, with what `cancel` was given.
pub fn cancelled(py: Python<'_>, why: Option<&Py<PyAny>>) -> PyErr {
    match why {
        Some(why) => asyncio_error(py, "CancelledError", (why,)),
        None => asyncio_error(py, "CancelledError", ()),
    }
}

/// An exception of asyncio, by the name of its class.
pub fn asyncio_error<'py>(py: Python<'py>, name: &str, arguments: impl PyCallArgs<'py>) -> PyErr {
    static MODULE: Once<Py<PyModule>> = Once::new();
    let made = MODULE
        .get_or_try_init(py, || PyModule::import(py, "asyncio").map(Bound::unbind))
        .and_then(|module| module.bind(py).getattr(name))
        .and_then(|class| class.call1(arguments));
    made.map_or_else(|error| error, PyErr::from_value)
}
