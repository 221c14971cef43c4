//! Errors of a join.

use std::{fmt, io};

use crate::address::Address;
use crate::tls::{TlsError, Untrusted};

/// Reason of a failed join.
#[derive(Debug)]
pub enum JoinError {
    /// The hub can't be reached.
    Io(Address, io::Error),
    /// The certificates of this node can't be used.
    Tls(TlsError),
    /// The certificate of the hub is not trusted, or the hub wants one of this node.
    Untrusted(Address, String),
    /// The hub refused the join.
    Told(Address, u16, String),
    /// The other side is not a hub.
    Fault(Address, String),
}

impl JoinError {
    pub(super) fn not_connected(address: &Address, error: io::Error) -> Self {
        match error.downcast::<TlsError>() {
            Ok(unusable) => Self::Tls(unusable),
            Err(error) if error.get_ref().is_some_and(|inner| inner.is::<Untrusted>()) => {
                Self::Untrusted(address.clone(), error.to_string())
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Self::Fault(address.clone(), error.to_string()),
            Err(error) => Self::Io(address.clone(), error),
        }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tls(error) => error.fmt(f),
            Self::Io(address, error) => {
                let fix = match error.kind() {
                    io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
                        ": start one there, or correct the URL"
                    }
                    _ => "",
                };
                write!(f, "url: there is no hub at {address}: {error}{fix}")
            }
            Self::Untrusted(address, text) => write!(f, "tls: no trust between this node and {address}: {text}"),
            Self::Told(address, _, text) => write!(f, "the hub at {address} says: {text}"),
            Self::Fault(address, text) => write!(f, "what listens at {address} is no hub that fits: {text}"),
        }
    }
}

impl std::error::Error for JoinError {}
