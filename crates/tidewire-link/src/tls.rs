//! TLS settings of a link, and their errors.

use std::path::PathBuf;

/// Certificates of one side of a link, and the CAs that it trusts. All files are PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Certificates of the trusted CAs. Without `ca` a node trusts the roots of the system. With
    /// `ca` a hub demands certificates from the nodes that join.
    pub ca: Option<PathBuf>,
    /// The certificate of this side, and those between it and its CA. A hub needs one.
    pub cert: Option<PathBuf>,
    /// The private key of that certificate.
    pub key: Option<PathBuf>,
    /// True if a node checks the certificate of the hub.
    pub verify: bool,
}

/// Certificates that can't be used; the error names the setting, its value and the fix.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
#[display("{_0}")]
pub struct TlsError(pub(crate) String);

/// A side of a TLS connection that its peer does not trust; the error names the setting that fixes
/// this.
#[derive(Debug, derive_more::Display)]
#[display("{_0}")]
pub(crate) struct Untrusted(pub String);

impl std::error::Error for Untrusted {}

impl Default for Tls {
    fn default() -> Self {
        Self { ca: None, cert: None, key: None, verify: true }
    }
}

impl std::error::Error for TlsError {}
