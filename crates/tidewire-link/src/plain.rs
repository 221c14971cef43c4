use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// A stream without layers that waits nowhere: whoever reads or writes it decides where to wait for it.
pub enum Plain {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Plain {
    pub fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&mut &*stream).read(into),
            Self::Unix(stream) => (&mut &*stream).read(into),
        }
    }

    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&mut &*stream).write(bytes),
            Self::Unix(stream) => (&mut &*stream).write(bytes),
        }
    }

    /// Another descriptor of the same stream.
    pub fn duplicate(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(stream) => stream.try_clone().map(Self::Tcp),
            Self::Unix(stream) => stream.try_clone().map(Self::Unix),
        }
    }

    /// Ends the stream for all its descriptors; whoever waits for it is woken.
    pub fn shutdown(&self) {
        // It may have ended already.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

impl AsFd for Plain {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}
