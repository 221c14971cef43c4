//! TLS configuration of both sides of a link: certificates, keys and trusted roots.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, DigitallySignedStruct, InconsistentKeys, RootCertStore, ServerConfig, SignatureScheme};
use tidewire_sync::PerProcess;

use crate::tls::{Tls, TlsError};

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl Tls {
    /// The TLS configuration with which a node joins.
    pub(crate) fn client(&self, protocol: &[u8]) -> Result<Arc<ClientConfig>, TlsError> {
        let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| TlsError(error.to_string()))?;
        let verifier = self.server_verifier()?;
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let mut config = match self.own()? {
            Some((certs, key)) => builder.with_client_auth_cert(certs, key).map_err(|error| self.mismatch(&error))?,
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(Arc::new(config))
    }

    /// The TLS configuration with which a hub listens.
    pub(crate) fn server(&self, protocol: &[u8]) -> Result<Arc<ServerConfig>, TlsError> {
        let Some((certs, key)) = self.own()? else {
            let text = "cert: None is not allowed where a hub listens with TLS: give the PEM files of a certificate and its key";
            return Err(TlsError(text.to_owned()));
        };
        let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| TlsError(error.to_string()))?;
        let builder = match &self.ca {
            Some(path) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots_in(path)?), provider());
                builder.with_client_cert_verifier(verifier.build().map_err(|error| unusable("ca", path, &error))?)
            }
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(certs, key).map_err(|error| self.mismatch(&error))?;
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(Arc::new(config))
    }

    fn server_verifier(&self) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
        if !self.verify {
            return Ok(Arc::new(Unchecked(provider())));
        }
        let roots = match &self.ca {
            Some(path) => Arc::new(roots_in(path)?),
            None => roots_of_system()?,
        };
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider()).build();
        Ok(verifier.map_err(|error| TlsError(error.to_string()))?)
    }

    fn own(&self) -> Result<Option<Identity>, TlsError> {
        match (&self.cert, &self.key) {
            (None, None) => Ok(None),
            (Some(cert), Some(key)) => Ok(Some((certificates("cert", cert)?, private_key(key)?))),
            (Some(cert), None) => {
                let cert = cert.display();
                Err(TlsError(format!("key: None is not allowed: give the PEM file of the private key of cert={cert}")))
            }
            (None, Some(key)) => {
                let key = key.display();
                Err(TlsError(format!("cert: None is not allowed: give the PEM file of the certificate of key={key}")))
            }
        }
    }

    fn mismatch(&self, error: &rustls::Error) -> TlsError {
        let (cert, key) = (shown(self.cert.as_deref()), shown(self.key.as_deref()));
        match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => TlsError(format!(
                "key: {key:?} is not the key of the certificate in {cert:?}: give the two that were made together"
            )),
            other => TlsError(format!("cert: {cert:?} with key {key:?} can't be used: {other}: make them anew")),
        }
    }
}

fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: PerProcess<OnceLock<Arc<CryptoProvider>>> = PerProcess::new();
    Arc::clone(PROVIDER.get().get_or_init(|| Arc::new(ring::default_provider())))
}

/// Root certificates of the system, read once by each process: a fork may happen during a read.
fn roots_of_system() -> Result<Arc<RootCertStore>, TlsError> {
    static ROOTS: PerProcess<OnceLock<Arc<RootCertStore>>> = PerProcess::new();
    let roots = ROOTS.get().get_or_init(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Arc::new(roots)
    });
    if roots.is_empty() {
        return Err(TlsError(
            "ca: None is not allowed: this system trusts nobody by itself: give the PEM file of the CA".into(),
        ));
    }
    Ok(Arc::clone(roots))
}

fn roots_in(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("ca", path)? {
        roots.add(certificate).map_err(|error| unusable("ca", path, &error))?;
    }
    Ok(roots)
}

fn certificates(field: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|error| unreadable(field, path, &error))?;
    if found.is_empty() {
        return Err(TlsError(format!(
            "{field}: {path:?} holds no certificate: give a PEM file with a CERTIFICATE part"
        )));
    }
    Ok(found)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| match error {
        pem::Error::NoItemsFound => TlsError(format!(
            "key: {path:?} holds no private key: give a PEM file with a PRIVATE KEY part that has no password"
        )),
        other => unreadable("key", path, &other),
    })
}

fn unreadable(field: &str, path: &Path, error: &pem::Error) -> TlsError {
    match error {
        pem::Error::Io(error) => {
            TlsError(format!("{field}: {path:?} can't be read: {error}: give the path of a PEM file"))
        }
        other => TlsError(format!("{field}: {path:?} is no PEM file: {other}: give one that begins with -----BEGIN")),
    }
}

fn unusable(field: &str, path: &Path, error: &dyn fmt::Display) -> TlsError {
    TlsError(format!("{field}: {path:?} can't be used: {error}: give the certificate of a CA"))
}

fn shown(path: Option<&Path>) -> &Path {
    path.unwrap_or(Path::new(""))
}

/// Takes any certificate, but wants proof that the other side has its key.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
