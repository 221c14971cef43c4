use std::io;
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};

use crate::address::Address;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A connected stream of bytes. Any thread may read and write as much as is possible at once; the thread of the links waits.
pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub fn tcp(stream: TcpStream) -> Self {
        // Frames gather here, so that the system need not wait for more.
        let _ = stream.set_nodelay(true);
        Self::Tcp(stream)
    }

    pub async fn connect(address: &Address) -> io::Result<Self> {
        let connecting = async {
            match address {
                Address::Tcp { host, port } => TcpStream::connect((host.as_str(), *port)).await.map(Self::tcp),
                Address::Unix(path) => UnixStream::connect(path).await.map(Self::Unix),
            }
        };
        match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(connected) => connected,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "nobody answered within 5 s")),
        }
    }

    pub async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.readable().await,
            Self::Unix(stream) => stream.readable().await,
        }
    }

    pub async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.writable().await,
            Self::Unix(stream) => stream.writable().await,
        }
    }

    pub fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_read(into),
            Self::Unix(stream) => stream.try_read(into),
        }
    }

    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
        }
    }
}
