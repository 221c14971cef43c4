//! TLS of the connection: demand for TLS, signers of the server's certificate, and the certificate
//! of this client.

use std::path::PathBuf;

use async_nats::ConnectOptions;
use tidewire_backend::home::HomeResult;

use super::login::{file, unusable};
use super::query::Query;
use super::wrong;

/// TLS of a connection. A server that demands it gets it in any case.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// True if a server without TLS is refused.
    pub required: bool,
    /// True if TLS begins before the server's greeting.
    pub first: bool,
    /// Trusted signers of the server's certificate; None: those of the system.
    pub ca: Option<PathBuf>,
    /// This client's certificate and key.
    pub own: Option<(PathBuf, PathBuf)>,
}

impl Tls {
    /// Reads the options, and looks into the files that they name.
    pub(crate) fn read(required: bool, query: &mut Query) -> HomeResult<Self> {
        let first = query.flag("tls_first")?;
        let ca = query.take("tls_ca").map(|path| pem("tls_ca", path, "CERTIFICATE")).transpose()?;
        let certificate = query.take("tls_cert").map(|path| pem("tls_cert", path, "CERTIFICATE")).transpose()?;
        let key = query.take("tls_key").map(|path| pem("tls_key", path, "PRIVATE KEY")).transpose()?;
        let own = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => {
                return Err(wrong("tls_cert", "its key is not said".to_owned(), "name the key's file with tls_key"));
            }
            (None, Some(_)) => {
                let fix = "name the certificate's file with tls_cert";
                return Err(wrong("tls_key", "its certificate is not said".to_owned(), fix));
            }
        };
        // Any TLS option demands TLS.
        let required = required || first || ca.is_some() || own.is_some();
        Ok(Self { required, first, ca, own })
    }

    pub(crate) fn apply(&self, mut options: ConnectOptions) -> ConnectOptions {
        options = options.require_tls(self.required);
        if self.first {
            options = options.tls_first();
        }
        if let Some(ca) = &self.ca {
            options = options.add_root_certificates(ca.clone());
        }
        if let Some((certificate, key)) = &self.own {
            options = options.add_client_certificate(certificate.clone(), key.clone());
        }
        options
    }
}

fn pem(option: &str, path: String, what: &str) -> HomeResult<PathBuf> {
    if file(option, &path)?.contains(&format!("{what}-----")) {
        return Ok(PathBuf::from(path));
    }
    Err(unusable(option, &format!("{path:?} has no {what} in PEM form: it begins with -----BEGIN")))
}
