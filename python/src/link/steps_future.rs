//! A generator of operations as one operation: each result, or error, goes back into the generator.

use std::pin::Pin;
use std::task::{Context, Poll};

use pyo3::exceptions::PyStopIteration;
use pyo3::prelude::*;
use pyo3::types::PyIterator;
use pyo3::types::iterator::PySendResult;

use crate::interpreter::attach::attach;
use crate::interpreter::once::intern;
use crate::interpreter::py_ref::PyRef;
use crate::interpreter::wait::Operation;
use crate::pending::Pending;

/// Runs `tidewire._runtime.steps.Steps` whose waits are all of the class `Pending`. Dropping it
/// closes the generator.
pub struct StepsFuture {
    steps: PyRef<PyIterator>,
    /// The wait of the generator; None before the first one, and after the end.
    operation: Option<Operation>,
}

impl StepsFuture {
    pub fn new(steps: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self { steps: steps.cast::<PyIterator>()?.clone().into(), operation: None })
    }

    /// Continues the generator up to its next wait. Some: the generator has returned.
    fn resume(&mut self, py: Python<'_>, outcome: PyResult<Py<PyAny>>) -> PyResult<Option<Py<PyAny>>> {
        let steps = self.steps.bind(py);
        let next = match outcome {
            Ok(value) => match steps.send(value.bind(py))? {
                PySendResult::Next(next) => next,
                PySendResult::Return(value) => return Ok(Some(value.unbind())),
            },
            Err(error) => match steps.call_method1(intern!(py, "throw"), (error.into_value(py),)) {
                Ok(next) => next,
                Err(end) if end.is_instance_of::<PyStopIteration>(py) => {
                    return end.value(py).getattr(intern!(py, "value")).map(|value| Some(value.unbind()));
                }
                Err(error) => return Err(error),
            },
        };
        let pending = next.cast::<Pending>()?.get();
        self.operation = Some(pending.take().unwrap_or_else(|| Box::pin(std::future::ready(pending.outcome(py)))));
        Ok(None)
    }
}

impl Future for StepsFuture {
    type Output = PyResult<Py<PyAny>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let outcome = match &mut self.operation {
                None => attach(|py| Ok(py.None())),
                Some(operation) => std::task::ready!(operation.as_mut().poll(context)),
            };
            self.operation = None;
            if let Some(ended) = attach(|py| self.resume(py, outcome)).transpose() {
                return Poll::Ready(ended);
            }
        }
    }
}

impl Drop for StepsFuture {
    fn drop(&mut self) {
        // The operation is cancelled before the generator is notified.
        if self.operation.take().is_none() {
            return;
        }
        attach(|py| {
            if let Err(error) = self.steps.bind(py).call_method0(intern!(py, "close")) {
                error.write_unraisable(py, None);
            }
        });
    }
}
