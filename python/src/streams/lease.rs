//! Leases for Python: a lease that the node renews until it is lost or released.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use tidewire_backend::home::HomeError;
use tidewire_node::streams::Lease;

use super::results::pending;
use crate::interpreter::PerProcessOwned;
use crate::pending::Pending;

/// A lease of this process. Dropping the object releases it.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct HeldLease(PerProcessOwned<Arc<Lease>>);

impl HeldLease {
    pub fn new(lease: Lease) -> Self {
        Self(PerProcessOwned::new(Arc::new(lease)))
    }
}

#[pymethods]
impl HeldLease {
    /// The fence, if the lease is held for sure.
    #[getter]
    fn fence(&self) -> Option<u64> {
        self.0.mine()?.fence().ok()
    }

    /// Something to await: the end of the time for which it is held for sure.
    fn lost(&self, py: Python<'_>) -> PyResult<Pending> {
        self.0.check(py)?;
        let lease = Arc::clone(&self.0);
        let lost = async move {
            lease.lost().await;
            Ok(())
        };
        Ok(pending("lost", lost, super::nothing))
    }

    /// Releases the lease, also if nobody awaits it. Awaiting it raises LeaseLost if it was lost.
    fn release(&self, py: Python<'_>) -> PyResult<Pending> {
        let released = self.0.checked(py)?.give_back();
        Ok(pending("release", async move { released.await.map_err(HomeError::from) }, super::nothing))
    }
}

/// Seconds as a duration; the caller has checked them.
pub fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
}
