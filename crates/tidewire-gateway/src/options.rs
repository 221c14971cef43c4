//! Options and limits of a gateway.

use std::path::PathBuf;
use std::sync::Arc;

use tidewire_node::Error;
use tidewire_proto::generated::limits::{self, Limit};

pub(crate) type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// How a gateway is made.
#[derive(Clone)]
pub struct GatewayOptions {
    pub(crate) name: String,
    pub(crate) origins: Vec<String>,
    pub(crate) hosts: Vec<String>,
    pub(crate) files: Option<PathBuf>,
    pub(crate) console: Option<(PathBuf, bool)>,
    pub(crate) is_insecure: bool,
    pub(crate) is_exporter: bool,
    pub(crate) limits: GatewayLimits,
    pub(crate) log: Log,
}

impl GatewayOptions {
    /// Options of a gateway whose node has this name, which must be unique on the hub; at most
    /// `name_bytes`.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            origins: Vec::new(),
            hosts: Vec::new(),
            files: None,
            console: None,
            is_insecure: false,
            is_exporter: false,
            limits: GatewayLimits::default(),
            log: Arc::new(|_| {}),
        }
    }

    /// Pages of these origins, such as `https://shop.example`, may call from a browser; `*` allows
    /// all. By default only the gateway's own pages may.
    pub fn origins(mut self, origins: impl IntoIterator<Item = String>) -> Self {
        self.origins = origins.into_iter().collect();
        self
    }

    /// Host names of the gateway of a hub without tokens, besides addresses and `localhost`.
    /// Otherwise a web page whose name resolves to this computer could call the gateway. A hub with
    /// tokens accepts any name; so does one with `*` among the names.
    pub fn hosts(mut self, hosts: impl IntoIterator<Item = String>) -> Self {
        self.hosts = hosts.into_iter().collect();
        self
    }

    /// Serves the files of a folder, and of those below it, at `/files/`, to everybody who reaches
    /// the gateway. They are read once, when it begins to listen; names that begin with a dot are
    /// left out. By default there are none.
    pub fn files(mut self, folder: Option<PathBuf>) -> Self {
        self.files = folder;
        self
    }

    /// Serves the operator console at `/console/`: a folder with its files, and true if it may act
    /// on a hub without tokens. The page joins the hub at `/console/link`. Off by default.
    pub fn console(mut self, console: Option<(PathBuf, bool)>) -> Self {
        self.console = console;
        self
    }

    /// Lets it listen for other computers in clear text. Off by default.
    pub fn insecure(mut self, insecure: bool) -> Self {
        self.is_insecure = insecure;
        self
    }

    /// Serves `/metrics` alone: those of the node at the hub that allows inspection. Other
    /// computers may connect where its address lets them.
    pub fn exporter(mut self) -> Self {
        (self.is_insecure, self.is_exporter) = (true, true);
        self
    }

    /// Its limits.
    pub fn limits(mut self, limits: GatewayLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Callback with one line whenever connections cannot be accepted. By default there is none.
    pub fn log(mut self, log: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.log = Arc::new(log);
        self
    }
}

/// Limits of a gateway, by the names and with the defaults of `spec/limits.toml`.
#[derive(Clone, Copy, Debug)]
pub struct GatewayLimits {
    pub(crate) connections: usize,
    pub(crate) head_bytes: usize,
    pub(crate) body_bytes: usize,
    pub(crate) bodies_bytes: usize,
    pub(crate) files_bytes: usize,
    pub(crate) read_ms: usize,
    pub(crate) idle_ms: usize,
    pub(crate) streams: usize,
    pub(crate) requests: usize,
}

impl Default for GatewayLimits {
    fn default() -> Self {
        Self {
            connections: limits::HTTP_CONNECTIONS.default as usize,
            head_bytes: limits::HTTP_HEAD_BYTES.default as usize,
            body_bytes: limits::HTTP_BODY_BYTES.default as usize,
            bodies_bytes: limits::HTTP_BODIES_BYTES.default as usize,
            files_bytes: limits::HTTP_FILES_BYTES.default as usize,
            read_ms: limits::HTTP_READ_MS.default as usize,
            idle_ms: limits::HTTP_IDLE_MS.default as usize,
            streams: limits::HTTP_STREAMS.default as usize,
            requests: limits::HTTP_REQUESTS.default as usize,
        }
    }
}

impl GatewayLimits {
    /// The same with another value for one limit.
    ///
    /// # Errors
    /// [`Error`] if there is no limit of this name that can be set, or the value is not
    /// allowed.
    pub fn with(mut self, name: &str, value: u64) -> Result<Self, Error> {
        let places: [(&Limit, &mut usize); 9] = [
            (&limits::HTTP_BODIES_BYTES, &mut self.bodies_bytes),
            (&limits::HTTP_BODY_BYTES, &mut self.body_bytes),
            (&limits::HTTP_CONNECTIONS, &mut self.connections),
            (&limits::HTTP_FILES_BYTES, &mut self.files_bytes),
            (&limits::HTTP_HEAD_BYTES, &mut self.head_bytes),
            (&limits::HTTP_IDLE_MS, &mut self.idle_ms),
            (&limits::HTTP_READ_MS, &mut self.read_ms),
            (&limits::HTTP_REQUESTS, &mut self.requests),
            (&limits::HTTP_STREAMS, &mut self.streams),
        ];
        let known = places.each_ref().map(|(limit, _)| limit.name).join(", ");
        let Some((limit, place)) = places.into_iter().find(|(limit, _)| limit.name == name) else {
            return Err(Error::invalid(format!("{name}: there is no such limit: known are {known}")));
        };
        if !limit.allows(value) {
            let (min, max, unit) = (limit.min, limit.max, limit.unit);
            return Err(Error::invalid(format!("{name}: {value} is not allowed: give {min} to {max} {unit}")));
        }
        *place = value as usize;
        Ok(self)
    }
}
