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
    /// tokens accepts any name.
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
    pub(crate) read_ms: u64,
    pub(crate) idle_ms: u64,
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
            read_ms: limits::HTTP_READ_MS.default,
            idle_ms: limits::HTTP_IDLE_MS.default,
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
        let place: &mut usize = match name {
            "http_connections" => &mut self.connections,
            "http_head_bytes" => &mut self.head_bytes,
            "http_body_bytes" => &mut self.body_bytes,
            "http_bodies_bytes" => &mut self.bodies_bytes,
            "http_files_bytes" => &mut self.files_bytes,
            "http_streams" => &mut self.streams,
            "http_requests" => &mut self.requests,
            "http_read_ms" => {
                self.read_ms = checked(&limits::HTTP_READ_MS, value)?;
                return Ok(self);
            }
            "http_idle_ms" => {
                self.idle_ms = checked(&limits::HTTP_IDLE_MS, value)?;
                return Ok(self);
            }
            _ => {
                let known = KNOWN.map(|limit| limit.name).join(", ");
                return Err(Error::invalid(format!("{name}: there is no such limit: known are {known}")));
            }
        };
        let limit = KNOWN.iter().find(|limit| limit.name == name);
        *place = limit.map_or(Ok(value), |limit| checked(limit, value))? as usize;
        Ok(self)
    }
}

/// The limits that can be set.
const KNOWN: [&Limit; 9] = [
    &limits::HTTP_BODIES_BYTES,
    &limits::HTTP_BODY_BYTES,
    &limits::HTTP_CONNECTIONS,
    &limits::HTTP_FILES_BYTES,
    &limits::HTTP_HEAD_BYTES,
    &limits::HTTP_IDLE_MS,
    &limits::HTTP_READ_MS,
    &limits::HTTP_REQUESTS,
    &limits::HTTP_STREAMS,
];

fn checked(limit: &Limit, value: u64) -> Result<u64, Error> {
    if limit.allows(value) {
        return Ok(value);
    }
    let (name, min, max, unit) = (limit.name, limit.min, limit.max, limit.unit);
    Err(Error::invalid(format!("{name}: {value} is not allowed: give {min} to {max} {unit}")))
}
