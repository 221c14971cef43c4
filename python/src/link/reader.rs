//! The socket of a link, read by the event loop of its node.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use pyo3::prelude::*;
use tidewire_engine::raw::Mutex;
use tidewire_node::raw::Reader;

use crate::actors::bridge::LoopHandle;
use crate::interpreter::PerProcessOwned;

/// The callback of an event loop for bytes on the socket of a link.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct SocketReader {
    reader: Mutex<Option<Arc<PerProcessOwned<Reader>>>>,
    line: Arc<LoopHandle>,
}

impl SocketReader {
    /// Reads on the loop of this thread, if the loop can watch sockets and no other thread waits.
    pub fn begin(py: Python<'_>, line: &Arc<LoopHandle>, reader: Reader) -> PyResult<()> {
        if !reader.begin() {
            return Ok(());
        }
        let descriptor = reader.as_fd().as_raw_fd();
        let this = Self { reader: Mutex::new(Some(Arc::new(PerProcessOwned::new(reader)))), line: Arc::clone(line) };
        // A loop that can't watch sockets drops it, which gives the reading back.
        let _ = line.watch(py, descriptor, Py::new(py, this)?.into_any());
        Ok(())
    }
}

#[pymethods]
impl SocketReader {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        let Some(reader) = self.reader.lock().clone() else { return Ok(()) };
        if !self.line.take_in(py, || reader.read())? {
            // In this order: the descriptor must be open while the loop releases it.
            self.line.unwatch(py, reader.as_fd().as_raw_fd());
            *self.reader.lock() = None;
        }
        Ok(())
    }
}
