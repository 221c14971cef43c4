//! The import table of a node, with weak references to Python objects in it.

use pyo3::prelude::*;
use tidewire_core::rpc::imports::Imports as Machine;
use tidewire_engine::raw::Mutex;

use crate::errors::error;
use crate::interpreter::py_ref::PyRef;

/// Changes for one owner: the number of its link, new keys, and released keys with their
/// references.
type ImportChanges = (u32, Vec<String>, Vec<(String, u64)>);

/// The objects imported from other nodes. The garbage collector releases proxies, on any thread and
/// at any moment.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct Imports {
    /// No reference is made or dropped under the lock: the collector may run code that wants it.
    table: Mutex<Machine<PyRef<PyAny>>>,
}

#[pymethods]
impl Imports {
    #[new]
    fn new(most: usize) -> Self {
        Self { table: Mutex::new(Machine::new(most)) }
    }

    fn __len__(&self) -> usize {
        self.table.lock().len()
    }

    fn keys(&self) -> Vec<String> {
        self.table.lock().keys().map(str::to_owned).collect()
    }

    /// The object with a key.
    fn get(&self, py: Python<'_>, key: &str) -> Option<PyRef<PyAny>> {
        self.table.lock().get(key).map(|known| known.clone_ref(py))
    }

    /// True if the object with this identity holds the key, and the key is not lost.
    fn holds(&self, key: &str, identity: usize) -> bool {
        self.table.lock().holds(key, identity)
    }

    /// A reference to what is held came once more.
    fn again(&self, key: &str) -> bool {
        self.table.lock().again(key)
    }

    /// A reference came to what is not held, or by something that is gone.
    fn add(&self, py: Python<'_>, key: &str, node: u32, identity: usize, value: Py<PyAny>) -> PyResult<()> {
        let added = self.table.lock().add(key, node, identity, value.into());
        added.map(drop).map_err(|full| error(py, "LimitExceeded", &full.to_string(), &[]))
    }

    /// Releases a key that no object here holds any more. Returns true if it was held.
    fn let_go(&self, key: &str, identity: usize) -> bool {
        let before = self.table.lock().release(key, identity);
        before.is_some()
    }

    /// Its owner is not there any more.
    fn lost(&self, key: &str, identity: usize) {
        self.table.lock().lost(key, identity);
    }

    /// The node of a link has gone.
    fn left(&self, node: u32) {
        self.table.lock().left(node);
    }

    /// The link of this node was lost.
    fn clear(&self) {
        let removed = self.table.lock().clear();
        drop(removed);
    }

    /// Changes for the owners since the last call.
    fn updates(&self) -> Vec<ImportChanges> {
        let updates = self.table.lock().updates();
        let of_owner = |(node, updates): (u32, tidewire_core::rpc::imports::ImportUpdates)| {
            let releases = updates.releases.iter().map(|(key, count)| (key.to_string(), *count));
            (node, updates.claims.iter().map(ToString::to_string).collect(), releases.collect())
        };
        updates.into_iter().map(of_owner).collect()
    }
}
