//! TLS over a TCP stream, without blocking.

use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Connection, Error, ServerConfig,
    ServerConnection,
};
use tokio::net::TcpStream;

use crate::socket::tcp::TcpIo;
use crate::tls::Untrusted;

/// TLS configuration of the side that joins.
pub type ClientSide = Arc<ClientConfig>;
/// TLS configuration of the side that listens.
pub type ServerSide = Arc<ServerConfig>;

/// TLS over a TCP stream. No operation blocks; after `WouldBlock` the caller waits for the stream.
pub struct TlsIo {
    stream: Arc<TcpStream>,
    incoming: TcpIo,
    connection: Connection,
}

impl TlsIo {
    /// The side that joins.
    ///
    /// # Errors
    /// `InvalidInput` if there can be no certificate for this host, `InvalidData` if the other side
    /// is not whom this one trusts.
    pub async fn join(stream: Arc<TcpStream>, host: &str, config: ClientSide) -> io::Result<Self> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let connection = ClientConnection::new(config, name).map_err(|error| refusal(&error))?;
        Self::new(stream, connection.into()).shake().await
    }

    /// The side that listens.
    ///
    /// # Errors
    /// `InvalidData` if the other side does not speak TLS, or has no certificate although one is
    /// wanted.
    pub async fn accept(stream: Arc<TcpStream>, config: &ServerSide) -> io::Result<Self> {
        let connection = ServerConnection::new(Arc::clone(config)).map_err(|error| refusal(&error))?;
        Self::new(stream, connection.into()).shake().await
    }

    /// The stream, to wait for.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// The stream, as it is read.
    pub fn direct(&mut self) -> &mut TcpIo {
        &mut self.incoming
    }

    /// Says that nothing follows, as far as is possible at once.
    pub fn close(&mut self) {
        self.connection.send_close_notify();
        // The closing side does not wait for the other one.
        let _ = self.push();
    }

    fn new(stream: Arc<TcpStream>, connection: Connection) -> Self {
        let incoming = TcpIo::new(Arc::clone(&stream));
        Self { stream, incoming, connection }
    }

    async fn shake(mut self) -> io::Result<Self> {
        loop {
            match self.push() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.stream.writable().await?,
                Err(error) => return Err(error),
                Ok(()) if !self.connection.is_handshaking() => return Ok(self),
                Ok(()) => self.shake_on().await?,
            }
        }
    }

    async fn shake_on(&mut self) -> io::Result<()> {
        match self.pull() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.stream.readable().await,
            Err(error) => Err(error),
            Ok(0) => {
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection during the TLS handshake"))
            }
            Ok(_) => Ok(()),
        }
    }

    /// Reads what there is of the other side's records.
    fn pull(&mut self) -> io::Result<usize> {
        let count = self.connection.read_tls(&mut self.incoming)?;
        if let Err(error) = self.connection.process_new_packets() {
            // The other side is told what was wrong, if that is possible.
            let _ = self.push();
            return Err(refusal(&error));
        }
        Ok(count)
    }

    /// Writes the records that wait.
    fn push(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut self.incoming)?;
        }
        Ok(())
    }

    /// Writes the records that wait, as far as is possible at once.
    fn push_some(&mut self) -> io::Result<()> {
        match self.push() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            other => other,
        }
    }
}

impl Read for TlsIo {
    /// `WouldBlock` means that nothing is left inside, either.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            self.pull()?;
            // Reading may lead to an answer of TLS itself, for example to new keys.
            self.push_some()?;
        }
    }
}

impl Write for TlsIo {
    /// Takes as much as there is room for. All of it has been written only once `flush` says so.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push_some()?;
        let count = self.connection.writer().write(bytes)?;
        self.push_some()?;
        if count == 0 && !bytes.is_empty() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(count) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.push()
    }
}

fn refusal(error: &Error) -> io::Error {
    let text = match error {
        Error::InvalidCertificate(problem) => return io::Error::new(io::ErrorKind::InvalidData, distrust(problem)),
        Error::AlertReceived(alert) if let Some(distrust) = distrusted(*alert) => {
            return io::Error::new(io::ErrorKind::InvalidData, distrust);
        }
        Error::InvalidMessage(problem) => {
            format!("it does not speak TLS ({problem:?}): use a URL without TLS, or correct its own")
        }
        Error::AlertReceived(alert) => format!("it refuses the TLS connection: {alert:?}"),
        other => format!("the TLS connection has failed: {other}"),
    };
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// The complaint of an alert about the certificate of this side, if the alert has one.
fn distrusted(alert: AlertDescription) -> Option<Untrusted> {
    use AlertDescription::{
        BadCertificate, CertificateExpired, CertificateRequired, CertificateRevoked, CertificateUnknown, UnknownCA,
        UnsupportedCertificate,
    };
    match alert {
        CertificateRequired => Some(Untrusted("it wants a certificate of this side: give one (cert, key)".to_owned())),
        BadCertificate
        | CertificateExpired
        | CertificateRevoked
        | CertificateUnknown
        | UnknownCA
        | UnsupportedCertificate => Some(Untrusted(format!(
            "it does not accept the certificate of this side ({alert:?}): give one that its CA has signed (cert, key)"
        ))),
        _ => None,
    }
}

fn distrust(problem: &CertificateError) -> Untrusted {
    Untrusted(match problem {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its certificate is signed by nobody who is trusted here: give the certificate of its CA (ca)".to_owned()
        }
        // Its name is all that is known of it here.
        problem if format!("{problem:?}").contains("CaUsedAsEndEntity") => {
            "its certificate is that of a CA: make the hub one of its own, signed by that CA or by itself, with basicConstraints=CA:FALSE".to_owned()
        }
        problem => format!("its certificate is not accepted: {problem}"),
    })
}
