//! Addresses of hubs: URLs of TCP, TLS, WebSocket and Unix sockets, and their parser.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use crate::tls::Tls;

const USE: &str = "use tide://host:port, tide+tls://host:port, ws://host:port, wss://host:port or tide+unix:///path";

/// Where a hub listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `tide://host:port`
    Tcp {
        /// A name or an address.
        host: String,
        /// 0 lets the system choose, where one listens.
        port: u16,
    },
    /// `tide+tls://host:port`
    Tls {
        /// A name or an address; the certificate of the hub must be for it.
        host: String,
        /// As for TCP.
        port: u16,
        /// Certificates, and who is trusted.
        tls: Box<Tls>,
    },
    /// `ws://host:port/path`, or `wss://` with TLS.
    Ws {
        /// A name or an address.
        host: String,
        /// As for TCP; where the URL has none, 80 or 443.
        port: u16,
        /// A hub takes all paths; a proxy before it may not.
        path: String,
        /// Certificates, and who is trusted; None for `ws://`.
        tls: Option<Box<Tls>>,
    },
    /// `tide+unix:///path`
    Unix(PathBuf),
}

/// A text that is no address.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display, derive_more::Error)]
#[display("url: {text:?} is not allowed: {problem}")]
pub struct AddressError {
    text: String,
    problem: &'static str,
}

impl Address {
    /// True if only programs on this host can reach the address.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp { host, .. } | Self::Tls { host, .. } | Self::Ws { host, .. } => {
                host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
            }
        }
    }

    /// The same address with these certificates.
    ///
    /// # Errors
    /// [`AddressError`] if it is one without TLS.
    pub fn with_tls(self, tls: Tls) -> Result<Self, AddressError> {
        let tls = Box::new(tls);
        match self {
            Self::Tls { host, port, .. } => Ok(Self::Tls { host, port, tls }),
            Self::Ws { host, port, path, tls: Some(_) } => Ok(Self::Ws { host, port, path, tls: Some(tls) }),
            other => {
                let problem = "certificates were given, and it has no TLS: use tide+tls:// or wss://";
                Err(AddressError { text: other.to_string(), problem })
            }
        }
    }

    /// The same address with the port that the system chose.
    pub(crate) fn with_port(mut self, real: u16) -> Self {
        if let Self::Tcp { port, .. } | Self::Tls { port, .. } | Self::Ws { port, .. } = &mut self {
            *port = real;
        }
        self
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        parse(text).map_err(|problem| AddressError { text: text.to_owned(), problem })
    }
}

/// Error texts for builds without TLS or WebSocket.
pub const NO_TLS: &str = "this program was built without TLS: enable the feature tls of tidewire-node or tidewire-link";
pub const NO_WEBSOCKET: &str =
    "this program was built without WebSocket: enable the feature websocket of tidewire-node or tidewire-link";

fn parse(text: &str) -> Result<Address, &'static str> {
    let Some((scheme, rest)) = text.split_once("://") else { return Err(USE) };
    let place = rest.trim_end_matches('/');
    match scheme {
        "tide" => host_and_port(place, None).map(|(host, port)| Address::Tcp { host, port }),
        "tide+tls" | "wss" if !cfg!(feature = "tls") => Err(NO_TLS),
        "ws" | "wss" if !cfg!(feature = "websocket") => Err(NO_WEBSOCKET),
        "tide+tls" => host_and_port(place, None).map(|(host, port)| Address::Tls { host, port, tls: Box::default() }),
        "ws" => web(rest, 80, None),
        "wss" => web(rest, 443, Some(Box::default())),
        "tide+unix" => unix(rest),
        _ => Err(USE),
    }
}

fn unix(path: &str) -> Result<Address, &'static str> {
    if !path.starts_with('/') {
        return Err("the path of a Unix socket begins with a slash: tide+unix:///run/tidewire.sock");
    }
    // The system has room for 108 bytes, the last one is 0.
    if path.len() > 107 {
        return Err("the path of a Unix socket has at most 107 bytes: choose a shorter one");
    }
    Ok(Address::Unix(PathBuf::from(path)))
}

fn web(rest: &str, port: u16, tls: Option<Box<Tls>>) -> Result<Address, &'static str> {
    let (place, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    // It becomes part of an HTTP request.
    if !path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
        return Err("the path has printable ASCII characters only, and no #: write others as %XX");
    }
    let (host, port) = host_and_port(place, Some(port))?;
    Ok(Address::Ws { host, port, path: if path.is_empty() { "/" } else { path }.to_owned(), tls })
}

fn host_and_port(place: &str, default: Option<u16>) -> Result<(String, u16), &'static str> {
    // The colons of an IPv6 address are within brackets.
    let colon = place.rfind(':').filter(|colon| place.rfind(']').is_none_or(|bracket| bracket < *colon));
    let (host, port) = match (colon, default) {
        (Some(at), _) => (&place[..at], place[at + 1..].parse().map_err(|_| "the port is a number from 0 to 65,535")?),
        (None, Some(port)) => (place, port),
        (None, None) if place.is_empty() => return Err("the host is missing: tide://127.0.0.1:7420"),
        (None, None) => return Err("the port is missing: tide://127.0.0.1:7420"),
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if host.is_empty() {
        return Err("the host is missing: tide://127.0.0.1:7420");
    }
    if host.contains(|each: char| !each.is_ascii_graphic() || "/@?#[]".contains(each)) {
        return Err("the host is a name or an address: tide://127.0.0.1:7420");
    }
    Ok((host.to_owned(), port))
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, host, port, path) = match self {
            Self::Unix(path) => return write!(f, "tide+unix://{}", path.display()),
            Self::Tcp { host, port } => ("tide", host, port, ""),
            Self::Tls { host, port, .. } => ("tide+tls", host, port, ""),
            Self::Ws { host, port, path, tls: None } => ("ws", host, port, path.as_str()),
            Self::Ws { host, port, path, tls: Some(_) } => ("wss", host, port, path.as_str()),
        };
        let path = if path == "/" { "" } else { path };
        if host.contains(':') {
            write!(f, "{scheme}://[{host}]:{port}{path}")
        } else {
            write!(f, "{scheme}://{host}:{port}{path}")
        }
    }
}
