//! The federation of a hub in this process with another hub.

use std::sync::Arc;

use pyo3::prelude::*;
use tidewire_node::raw::{FederationSettings, FederationTable};

use crate::actors::engine::Engine;
use crate::errors::error;
use crate::interpreter::PerProcessOwned;
use crate::interpreter::attach::{attach, detach};
use crate::link::hub::{Certificates, Hub, address};
use crate::link::logger::Logger;
use crate::link::settings::{Settings, greeting};
use crate::pending::Pending;

/// A hub that has joined another hub, and shares names with it.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct Federation {
    inner: PerProcessOwned<tidewire_node::Federation>,
}

/// The name of the hub at the other one, and its exports and imports.
type Lists = (String, Vec<String>, Vec<String>);

/// Joins a hub of this process to the hub at a URL. `log` is called with a line, and true for a
/// problem.
#[pyfunction]
#[pyo3(signature = (hub, engine, url, lists, token, tls, settings, log))]
#[allow(clippy::too_many_arguments)]
pub fn federate(
    py: Python<'_>,
    hub: &Hub,
    engine: &Engine,
    url: &str,
    lists: Lists,
    token: Option<String>,
    tls: Option<Certificates>,
    settings: Settings,
    log: Py<PyAny>,
) -> PyResult<Federation> {
    let (own, exports, imports) = lists;
    let table = FederationTable::new(&own, &exports, &imports);
    let table = table.map_err(|wrong| error(py, "InvalidArgument", &wrong, &[]))?;
    let settings =
        FederationSettings { table, address: address(py, url, tls)?, greeting: greeting(&own, token, &settings) };
    let (handle, logger) = (hub.handle(py)?, Arc::new(Logger::new(log)));
    let opened = detach(py, || {
        tidewire_node::Federation::open(&handle, engine.handle(), settings, move |line, is_wrong| {
            logger.log(is_wrong, line.to_owned())
        })
    });
    let opened = opened.map_err(|failure| error(py, failure.code().name(), failure.message(), &[]))?;
    Ok(Federation { inner: PerProcessOwned::new(opened) })
}

#[pymethods]
impl Federation {
    /// True while there is a link to the other hub.
    #[getter]
    fn is_joined(&self) -> bool {
        self.inner.mine().is_some_and(tidewire_node::Federation::is_joined)
    }

    /// Its row in the statistics of the node, as JSON.
    fn statistics(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.inner.checked(py)?.statistics().row().to_string())
    }

    /// Something to await: the hubs are joined, and what they share is visible at both.
    fn ready(&self, py: Python<'_>) -> PyResult<Pending> {
        let ready = self.inner.checked(py)?.ready();
        let operation = async move {
            let done = ready.await;
            attach(|py| match done {
                Ok(()) => Ok(py.None()),
                Err(failure) => Err(error(py, failure.code().name(), failure.message(), &[])),
            })
        };
        Ok(Pending::new("join", None, Box::pin(operation)))
    }

    /// Leaves the other hub. Calls in flight fail.
    fn close(&self, py: Python<'_>) {
        if let Some(inner) = self.inner.mine() {
            detach(py, || inner.close());
        }
    }
}
