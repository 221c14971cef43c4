//! A hub in this process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tidewire_engine::raw::Mutex;
use tidewire_nats::BridgeOptions;
use tidewire_node::raw::{Access, Address, Grant, HubHandle, HubOptions, ListenError, Rights, Tls};
use tidewire_node::streams::{HomeServer as Server, HomeSlot};

use crate::actors::engine::Engine;
use crate::change_counter::PyChangeCounter;
use crate::errors::error;
use crate::interpreter::PerProcessOwned;
use crate::interpreter::attach::detach;
use crate::link::bridge::Bridge;
use crate::link::http::{Gateway, GatewaySettings};
use crate::link::hub_link::Link;
use crate::link::logger::Logger;
use crate::link::runtime;
use crate::link::settings::{Settings, greeting, hub_options, token_limits};
use crate::pending::Pending;
use crate::streams::StreamHome;

/// A hub in this process: listens, and routes between the nodes that join.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct Hub {
    inner: PerProcessOwned<HubHandle>,
    name: String,
    /// Number of the hub's own node, if the hub can have a bridge.
    number: u32,
    settings: Settings,
}

/// One place where a hub listens.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct Listening {
    inner: Mutex<Option<PerProcessOwned<tidewire_node::raw::Listening>>>,
    url: String,
}

impl Listening {
    fn new(py: Python<'_>, listening: Result<tidewire_node::raw::Listening, ListenError>) -> PyResult<Self> {
        let listening = listening.map_err(|failure| {
            let class = if failure.is_tls() { "InvalidArgument" } else { "ConfigError" };
            error(py, class, &failure.to_string(), &[])
        })?;
        let url = listening.address.to_string();
        Ok(Self { inner: Mutex::new(Some(PerProcessOwned::new(listening))), url })
    }
}

/// The secret, the user, patterns to publish on, to subscribe to, to call and to answer and names
/// of services to serve, names of rights of operators, and limits.
type Token = (String, String, [Option<Vec<String>>; 5], Vec<String>, Settings);
/// Certificates: `ca`, `cert`, `key`, `verify`.
pub type Certificates = (Option<PathBuf>, Option<PathBuf>, Option<PathBuf>, bool);

#[pymethods]
impl Hub {
    /// A hub that is to be `bridged` has a node with a number of its own. `settings` is the table
    /// `links`. `log` is called with one line at a time, and true for a problem.
    #[new]
    #[pyo3(signature = (name, tokens, settings, log, bridged = false))]
    fn new(
        py: Python<'_>,
        name: &str,
        tokens: Vec<Token>,
        settings: Settings,
        log: Py<PyAny>,
        bridged: bool,
    ) -> PyResult<Self> {
        let grants: Vec<Grant> = tokens.into_iter().map(|token| grant(py, token)).collect::<PyResult<_>>()?;
        let access = Access::new(grants);
        let number = if bridged { BridgeOptions::draw_number() } else { 0 };
        let options = HubOptions { access, number, ..hub_options(name, &settings) };
        let log = Arc::new(Logger::new(log));
        let warnings = Arc::clone(&log);
        let hub = HubHandle::new(&runtime()?, options, move |line| warnings.warn(line));
        hub.on_changes(move |change| log.log(false, change.to_string()));
        Ok(Self { inner: PerProcessOwned::new(hub), name: name.to_owned(), number, settings })
    }

    /// Takes an address, with these certificates where the URL asks for TLS. Nodes that connect
    /// wait for `accept`.
    #[pyo3(signature = (url, tls = None))]
    fn bind(&self, py: Python<'_>, url: &str, tls: Option<Certificates>) -> PyResult<Listening> {
        self.inner.check(py)?;
        let address = address(py, url, tls)?;
        let listening = detach(py, || self.inner.bind(&address));
        Listening::new(py, listening)
    }

    /// Listens at a Unix socket for processes of this user alone.
    fn listen_to_own_user(&self, py: Python<'_>, path: PathBuf) -> PyResult<Listening> {
        self.inner.check(py)?;
        let listening = detach(py, || self.inner.listen_to_own_user(&path));
        Listening::new(py, listening)
    }

    /// Takes an address of HTTP clients, which wait for `accept`. `settings` are the name of the
    /// gateway's node, limits by their names, origins, hosts, a folder of files, and true if other
    /// hosts may reach it in clear text. `log` is as for the hub.
    fn bind_http(&self, py: Python<'_>, url: &str, settings: GatewaySettings, log: Py<PyAny>) -> PyResult<Gateway> {
        self.inner.check(py)?;
        Gateway::bind(py, &self.inner, url, settings, log)
    }

    /// Takes an address of HTTP clients, which get the metrics of the one node at this hub.
    fn bind_metrics(&self, py: Python<'_>, url: &str, log: Py<PyAny>) -> PyResult<Gateway> {
        self.inner.check(py)?;
        Gateway::bind_metrics(py, &self.inner, url, log)
    }

    /// From now on, only those with these tokens may join: before it listens for the first time.
    fn admit(&self, py: Python<'_>, tokens: Vec<Token>) -> PyResult<()> {
        let grants: Vec<Grant> = tokens.into_iter().map(|token| grant(py, token)).collect::<PyResult<_>>()?;
        self.inner.set_access(Access::new(grants));
        Ok(())
    }

    /// Connects it to the other nodes of a cluster over NATS, if it was made for that. When this
    /// returns, those are known that are there.
    fn bridge(&self, py: Python<'_>, url: &str, log: Py<PyAny>) -> PyResult<Bridge> {
        self.inner.check(py)?;
        Bridge::open(py, &self.inner, url, (&self.name, self.number), &self.settings, log)
    }

    /// Joins this hub from its own process.
    fn join(&self, py: Python<'_>, name: &str, token: Option<String>, settings: Settings) -> PyResult<Link> {
        self.inner.check(py)?;
        let greeting = greeting(name, token, &settings);
        let joined = detach(py, || tidewire_node::raw::Link::join_local(&self.inner, greeting));
        Ok(Link::new(joined.map_err(|failure| Link::join_error(py, &failure))?))
    }

    /// Notifies all nodes that the hub accepts no new calls.
    fn goodbye(&self, py: Python<'_>) {
        if let Some(mine) = self.inner.mine() {
            detach(py, || mine.goodbye());
        }
    }

    /// Closes all links. Operations in progress fail.
    fn close(&self, py: Python<'_>) {
        if let Some(mine) = self.inner.mine() {
            detach(py, || mine.close());
        }
    }

    /// Calls that are passed on and not answered yet.
    #[getter]
    fn open_calls(&self) -> usize {
        self.inner.mine().map_or(0, HubHandle::open_calls)
    }

    /// Registers a change counter that counts joining and leaving nodes.
    fn tell(&self, change_counter: &PyChangeCounter) {
        let change_counter = Arc::clone(&change_counter.0);
        self.inner.on_nodes(move || change_counter.tell());
    }

    /// Something to await: True once the hub forwards no call any more, False after so many
    /// seconds.
    fn idle(&self, py: Python<'_>, seconds: Option<f64>) -> PyResult<Pending> {
        self.inner.check(py)?;
        let most = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let idle = self.inner.idle(most);
        let operation = async move {
            let is_idle = idle.await;
            crate::interpreter::attach::attach(|py| is_idle.into_py_any(py))
        };
        Ok(Pending::new("idle", None, Box::pin(operation)))
    }

    /// Counters of the hub.
    fn statistics(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let counts = self.inner.checked(py)?.counts();
        let all = PyDict::new(py);
        for (name, count) in [
            ("nodes", counts.nodes),
            ("forwarded", counts.forwarded),
            ("calls", counts.calls),
            ("published", counts.published),
            ("dropped", counts.dropped),
            ("refused", counts.refused),
        ] {
            all.set_item(name, count)?;
        }
        Ok(all.into_any().unbind())
    }
}

#[pymethods]
impl Listening {
    /// The address, with the real port.
    #[getter]
    fn url(&self) -> &str {
        &self.url
    }

    /// Lets nodes join from now on.
    fn accept(&self) {
        if let Some(listening) = self.inner.lock().as_ref().and_then(PerProcessOwned::mine) {
            listening.accept();
        }
    }

    /// True while the hub accepts nodes.
    #[getter]
    fn is_open(&self) -> bool {
        self.inner.lock().is_some()
    }

    /// Takes no more nodes in. Those that joined stay.
    fn close(&self) {
        let listening = self.inner.lock().take();
        drop(listening);
    }

    fn __repr__(&self) -> String {
        format!("<Listening {}>", self.url)
    }
}

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

impl Hub {
    /// The hub itself, for a part of this process.
    pub fn handle(&self, py: Python<'_>) -> PyResult<HubHandle> {
        Ok(self.inner.checked(py)?.clone())
    }
}

/// An address with its certificates, or the error that says what is wrong with them.
pub fn address(py: Python<'_>, url: &str, tls: Option<Certificates>) -> PyResult<Address> {
    let parsed = url.parse::<Address>().and_then(|address| match tls {
        Some((ca, cert, key, verify)) => address.with_tls(Tls { ca, cert, key, verify }),
        None => Ok(address),
    });
    parsed.map_err(|wrong| error(py, "InvalidArgument", &wrong.to_string(), &[]))
}

/// Checks an address without going there.
#[pyfunction]
pub fn check_address(py: Python<'_>, url: &str) -> PyResult<()> {
    address(py, url, None).map(drop)
}

fn grant(py: Python<'_>, (token, user, patterns, mut operator, limits): Token) -> PyResult<Grant> {
    let [publish, subscribe, call, answer, serve] = patterns;
    let partner = operator.iter().any(|right| right == "partner");
    operator.retain(|right| right != "partner");
    let grant = Grant::of(&token, &user, &Rights { publish, subscribe, call, answer, serve, operator, partner });
    let grant = grant.map_err(|wrong| error(py, "InvalidSubject", &wrong.to_string(), &[]))?;
    Ok(Grant { limits: token_limits(&limits), ..grant })
}
