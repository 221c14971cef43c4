//! A TCP or Unix stream without layers, with vectored reads and writes.

use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use tidewire_core::link::outbox::WriteBatch;
use tidewire_sync::of_this_process;

/// Most slices of one write.
const SLICES: usize = 16;
/// A process that has not turned SIGPIPE off must outlive its links. On Apple systems
/// each socket gets this option at its creation.
#[cfg(not(target_vendor = "apple"))]
const QUIETLY: SendFlags = SendFlags::NOSIGNAL;
#[cfg(target_vendor = "apple")]
const QUIETLY: SendFlags = SendFlags::empty();

/// A stream without layers that never waits: its reader or writer decides where to wait.
pub enum RawStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl RawStream {
    pub fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&mut &*stream).read(into),
            Self::Unix(stream) => (&mut &*stream).read(into),
        }
    }

    pub fn try_read_to(&self, places: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&mut &*stream).read_vectored(places),
            Self::Unix(stream) => (&mut &*stream).read_vectored(places),
        }
    }

    pub fn try_write(&self, burst: &WriteBatch) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let mut count = 0;
        for (place, slice) in slices.iter_mut().zip(burst.slices()) {
            *place = IoSlice::new(slice);
            count += 1;
        }
        match (self, &slices[..count]) {
            (Self::Tcp(stream), [one]) => (&mut &*stream).write(one),
            (Self::Unix(stream), [one]) => (&mut &*stream).write(one),
            (Self::Tcp(stream), several) => send(stream, several),
            (Self::Unix(stream), several) => send(stream, several),
        }
    }

    /// Another descriptor of the same stream.
    pub fn duplicate(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(stream) => stream.try_clone().map(of_this_process).map(Self::Tcp),
            Self::Unix(stream) => stream.try_clone().map(of_this_process).map(Self::Unix),
        }
    }

    /// True if the other side is on this host.
    pub fn is_near(&self) -> bool {
        match self {
            Self::Tcp(stream) => is_near(stream.local_addr(), stream.peer_addr()),
            Self::Unix(_) => true,
        }
    }

    /// Ends the stream for all its descriptors and wakes its waiters.
    pub fn shutdown(&self) {
        // It may have ended already.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

/// True if both addresses belong to one host.
pub fn is_near(local: io::Result<SocketAddr>, peer: io::Result<SocketAddr>) -> bool {
    let (Ok(local), Ok(peer)) = (local, peer) else { return false };
    let peer = peer.ip().to_canonical();
    peer.is_loopback() || peer == local.ip().to_canonical()
}

impl AsFd for RawStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

/// Writes several slices without SIGPIPE; that of the standard library allows it.
fn send(stream: impl AsFd, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    Ok(sendmsg(stream, slices, &mut SendAncillaryBuffer::default(), QUIETLY)?)
}

#[cfg(test)]
mod tests {
    use super::{SocketAddr, io, is_near};

    #[test]
    fn loopback_and_the_own_address_are_near() {
        let at = |text: &str| Ok(text.parse::<SocketAddr>().expect("it is an address"));
        for (local, peer, near) in [
            ("127.0.0.1:5", "127.0.0.1:7", true),
            ("[::1]:5", "[::1]:7", true),
            ("[::ffff:127.0.0.1]:5", "[::ffff:127.0.0.1]:7", true),
            ("10.1.2.3:5", "10.1.2.3:7", true),
            ("10.1.2.3:5", "10.1.2.4:7", false),
            ("[2001:db8::1]:5", "[2001:db8::2]:7", false),
        ] {
            assert_eq!(is_near(at(local), at(peer)), near, "{local} {peer}");
        }
        let gone = || Err(io::ErrorKind::NotConnected.into());
        assert!(!is_near(gone(), at("127.0.0.1:7")), "nothing is known of it");
    }
}
