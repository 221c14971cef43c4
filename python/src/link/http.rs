//! The HTTP gateway of a hub in this process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use tidewire_engine::raw::Mutex;
use tidewire_gateway::{GatewayLimits, GatewayOptions};
use tidewire_node::raw::HubHandle;

use crate::errors::error;
use crate::interpreter::PerProcessOwned;
use crate::link::logger::Logger;
use crate::link::settings::Settings;
use crate::pending::Pending;

/// The series of nodes: name, type and help of each.
#[pyfunction]
pub fn node_series() -> Vec<(&'static str, &'static str, &'static str)> {
    tidewire_gateway::node_series()
}

type Sample = (String, Vec<(&'static str, String)>, f64);

/// The samples of a node with these statistics in JSON: name, labels and value of each.
#[pyfunction]
pub fn node_metrics(py: Python<'_>, node: &str, statistics: &[u8]) -> PyResult<Vec<Sample>> {
    let samples = tidewire_gateway::node_metrics(node, statistics);
    let samples = samples.map_err(|failure| error(py, failure.code().name(), &failure.to_string(), &[]))?;
    Ok(samples.into_iter().map(|sample| (sample.name.into_owned(), sample.labels, sample.value)).collect())
}

/// One place where the gateway of a hub listens.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct Gateway {
    inner: Mutex<Option<PerProcessOwned<Arc<tidewire_gateway::Gateway>>>>,
    url: String,
}

impl Gateway {
    /// Takes a URL, with limits by their names. Clients that connect wait for `accept`.
    pub fn bind(
        py: Python<'_>,
        hub: &HubHandle,
        url: &str,
        settings: GatewaySettings,
        log: Py<PyAny>,
    ) -> PyResult<Self> {
        let (name, limits, origins, hosts, files, console, insecure) = settings;
        let limits = limits.iter().try_fold(GatewayLimits::default(), |all, (name, value)| all.with(name, *value));
        let limits = limits.map_err(|failure| error(py, failure.code().name(), &failure.to_string(), &[]))?;
        let options = GatewayOptions::named(name)
            .limits(limits)
            .origins(origins)
            .hosts(hosts)
            .files(files)
            .console(console)
            .insecure(insecure);
        Self::bind_with(py, hub, url, options, log, "url:")
    }

    /// Takes the URL of the metrics of a process alone.
    pub fn bind_metrics(py: Python<'_>, hub: &HubHandle, url: &str, log: Py<PyAny>) -> PyResult<Self> {
        Self::bind_with(py, hub, url, GatewayOptions::named("$metrics").exporter(), log, "metrics:")
    }

    /// `field` is the name of the URL in error messages.
    fn bind_with(
        py: Python<'_>,
        hub: &HubHandle,
        url: &str,
        options: GatewayOptions,
        log: Py<PyAny>,
        field: &str,
    ) -> PyResult<Self> {
        let logger = Logger::new(log);
        let options = options.log(move |line| logger.warn(line));
        let listening = crate::interpreter::attach::detach(py, || tidewire_gateway::Gateway::bind(hub, url, options));
        let gateway = listening.map_err(|failure| {
            error(py, failure.code().name(), &failure.to_string().replacen("url:", field, 1), &[])
        })?;
        let url = gateway.url().to_owned();
        Ok(Self { inner: Mutex::new(Some(PerProcessOwned::new(Arc::new(gateway)))), url })
    }

    fn gateway(&self) -> Option<Arc<tidewire_gateway::Gateway>> {
        self.inner.lock().as_ref().and_then(|own| own.mine().map(Arc::clone))
    }
}

/// The name of its node, limits by their names, origins, hosts, a folder of files, the folder
/// of the console and true if it may act, and true if other hosts may reach it in clear text.
pub type GatewaySettings = (String, Settings, Vec<String>, Vec<String>, Option<PathBuf>, Option<(PathBuf, bool)>, bool);

#[pymethods]
impl Gateway {
    /// The address, with the real port.
    #[getter]
    fn url(&self) -> &str {
        &self.url
    }

    /// True while the gateway accepts clients.
    #[getter]
    fn is_open(&self) -> bool {
        self.inner.lock().is_some()
    }

    /// Accepts clients from now on.
    fn accept(&self) {
        if let Some(gateway) = self.gateway() {
            gateway.accept();
        }
    }

    /// Accepts no more requests. Requests in progress go on.
    fn goodbye(&self) {
        if let Some(gateway) = self.gateway() {
            gateway.close();
        }
    }

    /// Something to await: True once no request is in progress, False after so many seconds.
    fn idle(&self, seconds: f64) -> Pending {
        let most = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let idle = self.gateway().map(|gateway| gateway.idle(most));
        let operation = async move {
            let is_idle = match idle {
                Some(idle) => idle.await,
                None => true,
            };
            crate::interpreter::attach::attach(|py| is_idle.into_py_any(py))
        };
        Pending::new("idle", None, Box::pin(operation))
    }

    /// Closes the gateway and the requests in progress.
    fn close(&self, py: Python<'_>) {
        let gateway = self.inner.lock().take();
        crate::interpreter::attach::detach(py, || drop(gateway));
    }

    fn __repr__(&self) -> String {
        format!("<Gateway {}>", self.url)
    }
}
