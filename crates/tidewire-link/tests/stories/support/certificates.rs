//! Certificates that live as long as a test.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use tidewire_link::Tls;

/// A folder that is removed with this.
pub struct Folder(pub PathBuf);

/// A CA, and the folder where what it signs is.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: Folder,
}

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tidewire-{}-{number}", std::process::id()));
        fs::create_dir(&path).expect("the folder is new");
        Self(path)
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).expect("the folder can be written to");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new([]).expect("no names are allowed names");
        // Two of one name could be mistaken for each other.
        let folder = Folder::new();
        params.distinguished_name.push(DnType::CommonName, folder.0.display().to_string());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("the system has randomness");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a CA signs itself");
        folder.write("ca.pem", &issuer.pem());
        Self { issuer, folder }
    }

    /// Where its certificates are.
    #[allow(dead_code)]
    pub fn folder(&self) -> String {
        self.folder.0.display().to_string()
    }

    /// Settings of a node that trusts this CA.
    pub fn trusted(&self) -> Tls {
        Tls { ca: Some(self.folder.0.join("ca.pem")), ..Tls::default() }
    }

    /// A certificate for a name, and its key.
    pub fn signed_for(&self, name: &str) -> Tls {
        self.signed(name, CertificateParams::new([name.to_owned()]).expect("the name is one"))
    }

    /// One whose time is over.
    #[allow(dead_code)]
    pub fn expired_for(&self, name: &str) -> Tls {
        let mut params = CertificateParams::new([name.to_owned()]).expect("the name is one");
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
        self.signed(&format!("expired-{name}"), params)
    }

    fn signed(&self, file: &str, params: CertificateParams) -> Tls {
        let key = KeyPair::generate().expect("the system has randomness");
        let cert = params.signed_by(&key, &self.issuer).expect("a CA signs what it likes");
        let cert = self.folder.write(&format!("{file}.pem"), &cert.pem());
        let key = self.folder.write(&format!("{file}.key"), &key.serialize_pem());
        Tls { cert: Some(cert), key: Some(key), ..Tls::default() }
    }
}
