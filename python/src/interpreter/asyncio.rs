//! Event loops of asyncio, callbacks on them, and exceptions of asyncio.

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;

use crate::interpreter::once::Once;

/// The event loop that runs on this thread.
pub fn running_loop(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static GET: Once<Py<PyAny>> = Once::new();
    let get = GET.of(py, "asyncio", "get_running_loop")?;
    get.call0()
}

/// Schedules a callback on an event loop, by default that of this thread.
pub fn soon(
    py: Python<'_>,
    of: Option<&Bound<'_, PyAny>>,
    callback: &Py<PyAny>,
    argument: &Bound<'_, PyAny>,
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
    running.call_method("call_soon", (callback, argument), Some(&keywords)).map(drop)
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
