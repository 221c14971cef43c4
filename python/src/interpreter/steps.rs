//! Step-by-step execution of handlers, as `await` does it.

use pyo3::exceptions::{PyStopIteration, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::iterator::PySendResult;
use pyo3::types::{PyIterator, PyType};

use crate::interpreter::once::{Once, intern};
use crate::link::InboundCallRun;

/// A handler that runs step by step.
pub enum Steps {
    Awaited(Py<PyIterator>),
    Call(Py<InboundCallRun>),
}

/// Outcome of a step.
pub enum Step {
    /// The handler waits for this.
    Waits(Py<PyAny>),
    Returned(Py<PyAny>),
}

impl Steps {
    /// The steps of an awaitable.
    pub fn of(awaitable: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self::Awaited(steps_of(awaitable)?.unbind()))
    }

    pub fn step(&self, py: Python<'_>, task: &Py<PyAny>, thrown: Option<PyErr>) -> PyResult<Step> {
        match self {
            Self::Awaited(steps) => step(steps.bind(py), thrown),
            Self::Call(handling) => InboundCallRun::step(handling.bind(py), task, thrown),
        }
    }
}

/// The iterator behind `await`.
pub fn steps_of<'py>(awaitable: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyIterator>> {
    let py = awaitable.py();
    let steps = awaitable.call_method0(intern!(py, "__await__")).map_err(|error| {
        if is_awaitable(awaitable) {
            return error;
        }
        let text = format!("object {} can't be used in 'await' expression", awaitable.get_type());
        PyTypeError::new_err(text)
    })?;
    Ok(steps.cast_into::<PyIterator>()?)
}

/// True for the coroutine object of a coroutine function.
pub fn is_coroutine(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    static COROUTINE: Once<Py<PyType>> = Once::new();
    Ok(value.get_type().is(COROUTINE.of(value.py(), "types", "CoroutineType")?))
}

/// True for an object that can be awaited.
pub fn is_awaitable(value: &Bound<'_, PyAny>) -> bool {
    value.get_type().hasattr(intern!(value.py(), "__await__")).unwrap_or(false)
}

/// Goes one step on, or raises an error where it waits.
pub fn step(steps: &Bound<'_, PyIterator>, thrown: Option<PyErr>) -> PyResult<Step> {
    let py = steps.py();
    let Some(error) = thrown else {
        return Ok(match steps.send(&py.None().into_bound(py))? {
            PySendResult::Next(waits) => Step::Waits(waits.unbind()),
            PySendResult::Return(value) => Step::Returned(value.unbind()),
        });
    };
    if !steps.hasattr(intern!(py, "throw"))? {
        return Err(error);
    }
    match steps.call_method1(intern!(py, "throw"), (error.into_value(py),)) {
        Ok(waits) => Ok(Step::Waits(waits.unbind())),
        Err(error) if error.is_instance_of::<PyStopIteration>(py) => {
            Ok(Step::Returned(error.value(py).getattr(intern!(py, "value"))?.unbind()))
        }
        Err(error) => Err(error),
    }
}

/// True for the CancelledError of asyncio.
pub fn is_cancelled(py: Python<'_>, error: &PyErr) -> bool {
    static CANCELLED: Once<Py<PyType>> = Once::new();
    CANCELLED.of(py, "asyncio", "CancelledError").is_ok_and(|class| error.is_instance(py, class))
}
