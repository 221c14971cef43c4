//! A TCP stream under TLS or WebSocket: read in long pieces, as far as is allowed; its buffer is
//! the thread's, and borrowed while bytes lie in it.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::sync::Arc;

use tokio::net::TcpStream;

/// Layers take a few thousand bytes at a time; the system is asked for more at once.
const READ_BYTES: usize = 64 * 1024;

thread_local! {
    static SPARE: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
}

/// A TCP stream that is read and written as far as is possible at once. One of which nothing is
/// left unread has no buffer: a hub has thousands that say little.
pub struct TcpIo {
    stream: Arc<TcpStream>,
    peeked: Option<PeekedBytes>,
    /// Bytes that may be read before others have their turn.
    allowed: usize,
    /// Bytes that were read.
    read_bytes: u64,
}

/// Bytes of one read; those from `at` to `end` are not taken yet.
struct PeekedBytes {
    bytes: Box<[u8]>,
    at: usize,
    end: usize,
}

impl TcpIo {
    pub fn new(stream: Arc<TcpStream>) -> Self {
        Self { stream, peeked: None, allowed: usize::MAX, read_bytes: 0 }
    }

    /// The stream, to wait for.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// So many bytes may be read from now on; who wants more is told `WouldBlock`.
    pub fn allow(&mut self, bytes: usize) {
        self.allowed = bytes;
    }

    /// True if more bytes may be available than were allowed.
    pub fn is_spent(&self) -> bool {
        self.allowed == 0
    }

    /// How many bytes were read so far.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    fn ask(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = into.len().min(self.allowed);
        if most == 0 && !into.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = self.stream.try_read(&mut into[..most])?;
        self.allowed -= count;
        self.read_bytes += count as u64;
        Ok(count)
    }
}

impl Read for TcpIo {
    /// `WouldBlock` means that nothing is left inside, either.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut peeked = match self.peeked.take() {
            Some(peeked) => peeked,
            None if into.len() >= READ_BYTES => return self.ask(into),
            None => {
                let mut bytes = SPARE.take().unwrap_or_else(|| vec![0; READ_BYTES].into());
                match self.ask(&mut bytes) {
                    Ok(end) => PeekedBytes { bytes, at: 0, end },
                    Err(error) => {
                        SPARE.set(Some(bytes));
                        return Err(error);
                    }
                }
            }
        };
        let count = into.len().min(peeked.end - peeked.at);
        into[..count].copy_from_slice(&peeked.bytes[peeked.at..peeked.at + count]);
        peeked.at += count;
        if peeked.at < peeked.end {
            self.peeked = Some(peeked);
        } else {
            SPARE.set(Some(peeked.bytes));
        }
        Ok(count)
    }
}

impl Write for TcpIo {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.try_write(bytes)
    }

    fn write_vectored(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.stream.try_write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
