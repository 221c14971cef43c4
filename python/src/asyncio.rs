//! What asyncio offers that has no Rust side: callbacks of event loops, and its exceptions.

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;

use crate::bridge::running_loop;
use crate::once::Once;
use crate::pending::Pending;

/// Has an event loop call something, that of this thread if none is given.
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
