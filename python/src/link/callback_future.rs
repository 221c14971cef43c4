//! An operation that begins when somebody awaits it, driven by callbacks of a Python object.

use std::pin::Pin;
use std::task::{Context, Poll};

use pyo3::prelude::*;

use crate::interpreter::attach::attach;
use crate::interpreter::once::intern;
use crate::interpreter::py_ref::PyRef;
use crate::interpreter::wait::Operation;
use crate::pending::Pending;

/// The plan has these methods: `begin()` gives a `Pending`; `ended(value)` is called with a result
/// and returns it, or another `Pending` to go on with; `failed(error)` gives another `Pending` to
/// go on with, or None; `dropped()` is called if nobody waits for it any more.
pub struct CallbackFuture {
    plan: PyRef<PyAny>,
    operation: Option<Operation>,
    over: bool,
}

impl CallbackFuture {
    pub fn new(plan: Py<PyAny>) -> Self {
        Self { plan: plan.into(), operation: None, over: false }
    }

    /// An operation that was sent and has failed: the plan decides how to go on.
    pub fn failed(plan: Py<PyAny>, error: PyErr) -> Self {
        Self { plan: plan.into(), operation: Some(Box::pin(std::future::ready(Err(error)))), over: false }
    }

    fn begin(&mut self, py: Python<'_>) -> PyResult<()> {
        let begun = self.plan.bind(py).call_method0(intern!(py, "begin"));
        if begun.is_err() {
            // Nothing was sent.
            self.over = true;
        }
        self.go_on(&begun?)
    }

    fn go_on(&mut self, pending: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = pending.py();
        let pending = pending.cast::<Pending>()?.get();
        self.operation = Some(pending.take().unwrap_or_else(|| Box::pin(std::future::ready(pending.outcome(py)))));
        Ok(())
    }

    /// Result of the plan for an outcome. None: the future goes on with another operation.
    fn judge(&mut self, py: Python<'_>, outcome: PyResult<Py<PyAny>>) -> PyResult<Option<Py<PyAny>>> {
        let error = match outcome {
            Ok(value) => {
                self.over = true;
                let made = self.plan.bind(py).call_method1(intern!(py, "ended"), (value,))?;
                if !made.is_instance_of::<Pending>() {
                    return Ok(Some(made.unbind()));
                }
                self.over = false;
                return self.go_on(&made).map(|()| None);
            }
            Err(error) => error,
        };
        self.over = true;
        let next = self.plan.bind(py).call_method1(intern!(py, "failed"), (error.value(py),))?;
        if next.is_none() {
            return Err(error);
        }
        self.over = false;
        self.go_on(&next).map(|()| None)
    }
}

impl Future for CallbackFuture {
    type Output = PyResult<Py<PyAny>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let Some(operation) = &mut self.operation else {
                match attach(|py| self.begin(py)) {
                    Ok(()) => continue,
                    Err(error) => return Poll::Ready(Err(error)),
                }
            };
            let Poll::Ready(outcome) = operation.as_mut().poll(context) else { return Poll::Pending };
            match attach(|py| self.judge(py, outcome)) {
                Ok(Some(value)) => return Poll::Ready(Ok(value)),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Drop for CallbackFuture {
    fn drop(&mut self) {
        // The sent operation is cancelled before the plan is notified.
        if self.over || self.operation.take().is_none() {
            return;
        }
        attach(|py| {
            if let Err(error) = self.plan.bind(py).call_method0(intern!(py, "dropped")) {
                error.write_unraisable(py, None);
            }
        });
    }
}
