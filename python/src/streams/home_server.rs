//! `HomeServer`: offers the storage backend of a hub to the nodes that join it.

use std::sync::Arc;

use pyo3::prelude::*;
use tidewire_engine::raw::Mutex;
use tidewire_node::streams::{HomeServer as Server, HomeSlot};

use crate::actors::engine::Engine;
use crate::errors::error;
use crate::interpreter::attach::detach;
use crate::interpreter::fork::PerProcessOwned;
use crate::link::{Link, runtime};
use crate::streams::StreamHome;

/// Server of the storage backend of a hub in this process.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct HomeServer(Mutex<Option<PerProcessOwned<Server>>>);

#[pymethods]
impl HomeServer {
    /// Offers `folder`, or else the storage backend at the NATS servers of `url`, which the first
    /// call opens. `link` is that of the hub's own node.
    #[new]
    fn new(
        py: Python<'_>,
        link: &Link,
        engine: &Engine,
        node: &str,
        folder: Option<&StreamHome>,
        url: String,
    ) -> PyResult<Self> {
        let home = match folder {
            Some(folder) => HomeSlot::of(Arc::clone(&folder.home)),
            None => HomeSlot::lazy(move || tidewire_nats::begin(&url)),
        };
        let (link, engine, runtime) = (link.inner(py)?, engine.handle(), runtime()?);
        let server = detach(py, || Server::start(&link, node, engine, runtime, home));
        let server = server.map_err(|failure| error(py, failure.code().name(), failure.message(), &[]))?;
        Ok(Self(Mutex::new(Some(PerProcessOwned::new(server)))))
    }

    /// Ends calls that wait for events or leases: the node is about to stop.
    fn goodbye(&self) {
        if let Some(server) = self.0.lock().as_ref().and_then(PerProcessOwned::mine) {
            server.leave();
        }
    }

    /// Ends all calls, and accepts no more.
    fn close(&self, py: Python<'_>) {
        let server = self.0.lock().take();
        detach(py, || drop(server));
    }
}
