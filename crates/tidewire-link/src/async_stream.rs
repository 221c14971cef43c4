use std::io;

use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

use crate::raw_stream::RawStream;

/// A stream as the thread of the links waits for it: for reading, for writing, for both or not at
/// all.
///
/// A stream that somebody else reads is not watched, so that what comes in does not wake the
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
    /// Waits until the stream is ready for something of what is asked; for ever if that is nothing.
    ///
    /// # Errors
    /// Whatever the system says if it can't watch the stream.
    ///
    /// # Cancel safety
    /// Nothing is lost: what it was ready for it still is.
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
