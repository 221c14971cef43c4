//! The export table of a node, with Python objects in it. Times are seconds on one clock.

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use tidewire_core::rpc::exports::{Exports as Machine, Gone};
use tidewire_engine::raw::Mutex;
use tidewire_proto::generated::limits;

use crate::errors::error;
use crate::interpreter::py_ref::PyRef;

/// Identity of an exported object: equal for references to the same object. It is the address of an
/// object, or of an object and a function of its class.
type Identity = (usize, usize);

/// The objects exported to other nodes. Calls of them begin and end on several threads.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct Exports {
    /// No reference is made or dropped under the lock: the collector may run code that wants it.
    table: Mutex<Machine<Identity, PyRef<PyAny>>>,
    /// Called when the table grows or shrinks.
    tell: Py<PyAny>,
}

fn us(seconds: f64) -> u64 {
    (seconds * 1e6) as u64
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

fn gone_error(py: Python<'_>, why: &Gone) -> PyErr {
    error(py, "RemoteGone", &why.to_string(), &[])
}

#[pymethods]
impl Exports {
    #[new]
    fn new(most: usize, tell: Py<PyAny>) -> Self {
        Self { table: Mutex::new(Machine::new(most, limits::REMOTE_CLAIM_MS.default * 1_000)), tell }
    }

    fn __len__(&self) -> usize {
        self.table.lock().len()
    }

    /// Exports an object again to a node that has it. None: the node does not have it.
    fn again(&self, py: Python<'_>, holder: &str, identity: Identity, now_s: f64) -> Option<Py<PyAny>> {
        let mut table = self.table.lock();
        let key = table.again(holder, &identity, us(now_s))?;
        table.returned(&key, None).map(|export| export.clone_ref(py).into_py())
    }

    /// Exports an object to a node that does not have it.
    #[allow(clippy::too_many_arguments)]
    fn add(
        &self,
        py: Python<'_>,
        holder: &str,
        identity: Identity,
        key: &str,
        lease_s: f64,
        export: Py<PyAny>,
        now_s: f64,
    ) -> PyResult<()> {
        let added = self.table.lock().add(holder, identity, key, us(lease_s), export.into(), us(now_s));
        let expired = added.map_err(|full| error(py, "LimitExceeded", &full.to_string(), &[]))?;
        drop(expired);
        self.tell(py)
    }

    /// Begins a call of an export by a node. The call renews the lease, which does not expire until
    /// `ends`.
    fn call(&self, py: Python<'_>, key: &str, holder: &str, origin: u32, now_s: f64) -> PyResult<Py<PyAny>> {
        let called = {
            let mut table = self.table.lock();
            let used = table.used(key, holder, origin, us(now_s)).map(|export| export.clone_ref(py).into_py());
            used.inspect(|_| table.begins(key))
        };
        called.map_err(|why| gone_error(py, &why))
    }

    /// A node says that it has got something.
    fn claim(&self, py: Python<'_>, key: &str, holder: &str, origin: u32, now_s: f64) -> PyResult<()> {
        let claimed = self.table.lock().claim(key, holder, origin, us(now_s));
        claimed.map_err(|why| gone_error(py, &why))
    }

    /// The export that the node `holder` sends back over the link with this number. Any sender
    /// counts if `holder` or `origin` is missing. None: there is no such export.
    #[pyo3(signature = (key, holder = None, origin = None))]
    fn returned(&self, py: Python<'_>, key: &str, holder: Option<&str>, origin: Option<u32>) -> Option<Py<PyAny>> {
        let table = self.table.lock();
        table.returned(key, holder.zip(origin)).map(|export| export.clone_ref(py).into_py())
    }

    /// A call with it begins.
    fn begins(&self, key: &str) {
        self.table.lock().begins(key);
    }

    /// Such a call has ended: when its lease is over then, if it is still there.
    fn ends(&self, py: Python<'_>, key: &str, now_s: f64) -> PyResult<Option<f64>> {
        let (until_us, removed) = self.table.lock().ends(key, us(now_s));
        self.drop_all(py, removed)?;
        Ok(until_us.map(seconds))
    }

    /// A node has let so many references go.
    fn release(&self, py: Python<'_>, key: &str, holder: &str, origin: u32, count: u64) -> PyResult<()> {
        let removed = self.table.lock().release(key, holder, origin, count);
        self.drop_all(py, removed)
    }

    /// Releases an object that only one call had exported. With `unclaimed`, only if no node has
    /// claimed it.
    fn remove(&self, py: Python<'_>, key: &str, unclaimed: bool) -> PyResult<()> {
        let removed = {
            let mut table = self.table.lock();
            if unclaimed && table.is_claimed(key) { None } else { table.remove(key) }
        };
        self.drop_all(py, removed)
    }

    /// The node of a link has gone.
    fn left(&self, py: Python<'_>, origin: u32) -> PyResult<()> {
        let removed = self.table.lock().left(origin);
        self.drop_all(py, removed)
    }

    /// Its owner lets an object go.
    fn dispose(&self, py: Python<'_>, identity: Identity) -> PyResult<()> {
        let removed = self.table.lock().dispose(&identity);
        self.drop_all(py, removed)
    }

    /// Releases exports whose lease has expired, and says when to look again.
    fn expire(&self, py: Python<'_>, now_s: f64) -> PyResult<Option<f64>> {
        let (removed, next_us) = self.table.lock().expire(us(now_s));
        self.drop_all(py, removed)?;
        Ok(next_us.map(seconds))
    }

    /// Releases all objects.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        let removed = self.table.lock().clear();
        self.drop_all(py, removed)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.tell)?;
        let Some(table) = self.table.try_lock() else { return Ok(()) };
        table.iter().try_for_each(|export| visit.call(&**export))
    }
}

impl Exports {
    fn drop_all(&self, py: Python<'_>, removed: impl IntoIterator<Item = PyRef<PyAny>>) -> PyResult<()> {
        let mut removed = removed.into_iter().peekable();
        let some = removed.peek().is_some();
        removed.for_each(drop);
        if some { self.tell(py) } else { Ok(()) }
    }

    fn tell(&self, py: Python<'_>) -> PyResult<()> {
        self.tell.call0(py).map(drop)
    }
}
