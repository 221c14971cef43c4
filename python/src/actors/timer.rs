//! Scheduled messages.

use pyo3::prelude::*;

use crate::interpreter::PerProcessOwned;
use crate::interpreter::attach::attach;
use crate::pending::Pending;

/// A scheduled message. Dropping it does not cancel it.
#[pyclass(frozen, module = "tidewire")]
pub struct Timer {
    pub inner: PerProcessOwned<tidewire_engine::Timer>,
}

#[pymethods]
impl Timer {
    /// Prevents the next delivery. Returns true if it did.
    fn cancel(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.inner.checked(py)?.cancel())
    }

    /// True until the message has an outcome.
    #[getter]
    fn waiting(&self) -> bool {
        self.inner.mine().is_some_and(|mine| mine.outcome().is_none())
    }

    /// Waits for the outcome: "delivered", "cancelled", "no_target" or "mailbox_full".
    fn outcome(&self, py: Python<'_>) -> PyResult<Pending> {
        let finished = self.inner.checked(py)?.finished();
        let operation = async move {
            let outcome = finished.await;
            attach(|py| Ok(outcome.as_str().into_pyobject(py)?.into_any().unbind()))
        };
        Ok(Pending::new("outcome", None, Box::pin(operation)))
    }

    fn __repr__(&self) -> String {
        let Some(mine) = self.inner.mine() else { return "<Timer of the parent process>".into() };
        format!("<Timer {}>", mine.outcome().map_or("waiting", tidewire_engine::TimerOutcome::as_str))
    }
}
