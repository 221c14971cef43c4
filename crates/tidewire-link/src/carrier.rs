//! The stream under a WebSocket: TCP, or TLS over it.

use std::io::{self, Read, Write};

use tokio::net::TcpStream;

use crate::socket::tcp::TcpIo;
use crate::socket::tls_stream::TlsIo;

/// The byte stream below a WebSocket.
pub enum Carrier {
    /// TCP.
    Direct(TcpIo),
    /// TLS over TCP.
    Secured(Box<TlsIo>),
}

impl Carrier {
    /// The stream, to wait for.
    pub fn stream(&self) -> &TcpStream {
        match self {
            Self::Direct(direct) => direct.stream(),
            Self::Secured(secured) => secured.stream(),
        }
    }
}

impl Read for Carrier {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Direct(direct) => direct.read(into),
            Self::Secured(secured) => secured.read(into),
        }
    }
}

impl Write for Carrier {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Direct(direct) => direct.write(bytes),
            Self::Secured(secured) => secured.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Direct(direct) => direct.flush(),
            Self::Secured(secured) => secured.flush(),
        }
    }
}
