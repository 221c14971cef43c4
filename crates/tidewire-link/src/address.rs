use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

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
    /// `tide+unix:///path`
    Unix(PathBuf),
}

/// A text that is no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressError {
    text: String,
    problem: &'static str,
}

impl Address {
    /// Whether only programs of this machine can reach it.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp { host, .. } => {
                host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
            }
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let error = |problem| AddressError { text: text.to_owned(), problem };
        if let Some(path) = text.strip_prefix("tide+unix://") {
            if !path.starts_with('/') {
                return Err(error("the path of a Unix socket begins with a slash: tide+unix:///run/tidewire.sock"));
            }
            // The system has room for 108 bytes, the last one is 0.
            if path.len() > 107 {
                return Err(error("the path of a Unix socket has at most 107 bytes: choose a shorter one"));
            }
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        let Some(rest) = text.strip_prefix("tide://") else {
            return Err(error("use tide://host:port or tide+unix:///path"));
        };
        let Some((host, port)) = rest.trim_end_matches('/').rsplit_once(':') else {
            return Err(error("the port is missing: tide://127.0.0.1:7420"));
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() {
            return Err(error("the host is missing: tide://127.0.0.1:7420"));
        }
        let port = port.parse().map_err(|_| error("the port is a number from 0 to 65,535"))?;
        Ok(Self::Tcp { host: host.to_owned(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "tide://[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tide://{host}:{port}"),
            Self::Unix(path) => write!(f, "tide+unix://{}", path.display()),
        }
    }
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "url: {:?} is not allowed: {}", self.text, self.problem)
    }
}

impl std::error::Error for AddressError {}
