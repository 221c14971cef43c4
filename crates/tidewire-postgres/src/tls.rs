//! TLS to a server: trust by `sslmode` and certificate files.

use std::env;
use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tidewire_backend::{ErrorKind, Result, StoreError};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Level of TLS that is demanded of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Check {
    /// `disable`: no TLS.
    Off,
    /// `prefer`: TLS if the server has it, without a check of its identity.
    #[default]
    IfOffered,
    /// `require`: TLS, without a check of the server's identity.
    Nothing,
    /// `verify-full`: TLS, and a certificate of the name by a trusted signer.
    Certificate,
}

/// The settings of TLS, by the names that `psql` has for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub check: Check,
    mode: Option<String>,
    root: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
}

impl Settings {
    /// Takes an option in. False if it is none of TLS.
    pub fn take(&mut self, key: &str, value: &str) -> Result<bool> {
        let place = match key {
            "sslmode" => &mut self.mode,
            "sslrootcert" => &mut self.root,
            "sslcert" => &mut self.certificate,
            "sslkey" => &mut self.key,
            _ => return Ok(false),
        };
        *place = Some(value.to_owned());
        if key == "sslmode" {
            self.check = match value {
                "disable" => Check::Off,
                "allow" | "prefer" => Check::IfOffered,
                "require" => Check::Nothing,
                "verify-ca" | "verify-full" => Check::Certificate,
                _ => {
                    let message = format!("sslmode: {value:?}; write disable, prefer, require or verify-full");
                    return Err(StoreError::new(ErrorKind::Url, message));
                }
            };
        }
        Ok(true)
    }

    /// Takes parts that the URL leaves out from the environment.
    pub fn read_environment(&mut self) -> Result<()> {
        for (key, name, known) in [
            ("sslmode", "PGSSLMODE", self.mode.is_some()),
            ("sslrootcert", "PGSSLROOTCERT", self.root.is_some()),
            ("sslcert", "PGSSLCERT", self.certificate.is_some()),
            ("sslkey", "PGSSLKEY", self.key.is_some()),
        ] {
            let found = env::var(name).ok().filter(|value| !known && !value.is_empty());
            if let Some(value) = found {
                self.take(key, &value)?;
            }
        }
        Ok(())
    }

    /// The TLS connector.
    pub fn connector(&self) -> Result<MakeRustlsConnect> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(&format!("TLS can't be used: {error}")))?;
        // As with psql, a configured root is demanded of the server in any mode.
        let builder = if self.check == Check::Certificate || self.root.is_some() {
            builder.with_root_certificates(self.roots()?)
        } else {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Anyone(provider)))
        };
        Ok(MakeRustlsConnect::new(self.with_own(builder)?))
    }

    fn roots(&self) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        match self.root.as_deref() {
            None | Some("system") => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
            Some(path) => {
                for certificate in certificates("sslrootcert", path)? {
                    roots.add(certificate).map_err(|error| wrong(&format!("sslrootcert: {path}: {error}")))?;
                }
            }
        }
        Ok(roots)
    }

    fn with_own(&self, builder: ConfigBuilder<ClientConfig, WantsClientCert>) -> Result<ClientConfig> {
        let (certificate, key) = match (&self.certificate, &self.key) {
            (None, None) => return Ok(builder.with_no_client_auth()),
            (Some(certificate), Some(key)) => (certificate, key),
            _ => return Err(wrong("sslcert, sslkey: one without the other: give both, or none")),
        };
        let chain = certificates("sslcert", certificate)?;
        let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(&format!("sslkey: {key}: {error}")))?;
        builder.with_client_auth_cert(chain, secret).map_err(|error| wrong(&format!("sslcert, sslkey: {error}")))
    }
}

fn certificates(field: &str, path: &str) -> Result<Vec<CertificateDer<'static>>> {
    let failed = |error| wrong(&format!("{field}: {path}: {error}: name a file of certificates in PEM"));
    let found: Vec<_> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect).map_err(failed)?;
    if found.is_empty() { Err(wrong(&format!("{field}: {path}: has no certificates"))) } else { Ok(found) }
}

fn wrong(message: &str) -> StoreError {
    StoreError::new(ErrorKind::Url, message)
}

/// Takes any certificate, as `require` and `prefer` do everywhere: who listens learns nothing, who
/// answers is not known.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
