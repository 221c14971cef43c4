//! Readiness of a socket for an async task: readable, writable or both.

use std::io;

use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

use crate::socket::raw_stream::RawStream;

/// Watches a stream on the link thread: for reading, for writing, for both or not at all.
///
/// A stream that another thread reads is not watched, so that incoming bytes do not wake the link
/// thread.
#[derive(Default)]
pub struct AsyncStream {
    stream: Option<Stream>,
}

/// A descriptor of its own, which the runtime watches.
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl AsyncStream {
    /// Waits until the stream is readable or writable, as asked; forever if neither is asked.
    ///
    /// # Errors
    /// The error of the system if it can't watch the stream.
    ///
    /// # Cancel safety
    /// Nothing is lost: the stream stays ready.
    pub async fn ready(&mut self, plain: &RawStream, read: bool, write: bool) -> io::Result<()> {
        let interest = match (read, write) {
            (true, true) => Interest::READABLE | Interest::WRITABLE,
            (true, false) => Interest::READABLE,
            (false, true) => Interest::WRITABLE,
            (false, false) => {
                self.stream = None;
                return std::future::pending().await;
            }
        };
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => none.insert(Stream::of(plain)?),
        };
        match stream {
            Stream::Tcp(stream) => stream.ready(interest).await.map(drop),
            Stream::Unix(stream) => stream.ready(interest).await.map(drop),
        }
    }

    /// Does what the stream is ready for. With `WouldBlock` it is waited for anew.
    pub fn act(&self, interest: Interest, act: impl FnOnce() -> io::Result<()>) {
        let _ = match &self.stream {
            Some(Stream::Tcp(stream)) => stream.try_io(interest, act),
            Some(Stream::Unix(stream)) => stream.try_io(interest, act),
            None => Ok(()),
        };
    }
}

impl Stream {
    fn of(plain: &RawStream) -> io::Result<Self> {
        match plain.duplicate()? {
            RawStream::Tcp(stream) => TcpStream::from_std(stream).map(Self::Tcp),
            RawStream::Unix(stream) => UnixStream::from_std(stream).map(Self::Unix),
        }
    }
}
