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
    left: usize,
    /// Bytes that were read.
    came: u64,
}

/// Bytes of one read; those from `at` to `end` are not taken yet.
struct PeekedBytes {
    bytes: Box<[u8]>,
    at: usize,
    end: usize,
}

impl TcpIo {
    pub fn new(stream: Arc<TcpStream>) -> Self {
        Self { stream, peeked: None, left: usize::MAX, came: 0 }
    }

    /// The stream, to wait for.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// So many bytes may be read from now on; who wants more is told `WouldBlock`.
    pub fn allow(&mut self, bytes: usize) {
        self.left = bytes;
    }

    /// True if more bytes may be available than were allowed.
    pub fn is_spent(&self) -> bool {
        self.left == 0
    }

    /// How many bytes were read so far.
    pub fn came(&self) -> u64 {
        self.came
    }

    fn ask(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = into.len().min(self.left);
        if most == 0 && !into.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = self.stream.try_read(&mut into[..most])?;
        self.left -= count;
        self.came += count as u64;
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
mod tests {
    use std::io::{Read as _, Write as _};
    use std::sync::Arc;
    use std::time::Duration;
    use std::{net, thread};

    use tokio::net::TcpListener;

    use super::{READ_BYTES, TcpIo};

    #[test]
    fn frames_read_in_short_pieces_are_whole_and_no_buffer_stays() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("it can be started");
        let story = async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
            let place = listener.local_addr().expect("it has an address");
            let mut theirs = net::TcpStream::connect(place).expect("it listens");
            let (ours, _) = listener.accept().await.expect("it connects");
            let sent: Vec<u8> = (0..3 * READ_BYTES + 5).map(|at| (at % 251) as u8).collect();
            let (mut direct, writes) = (TcpIo::new(Arc::new(ours)), sent.clone());
            let write = thread::spawn(move || theirs.write_all(&writes).map(|()| theirs));
            let (mut came, mut piece) = (Vec::new(), [0; 1_000]);
            while came.len() < sent.len() {
                match direct.read(&mut piece) {
                    Ok(count) => {
                        assert!(count > 0, "it ends before all has come");
                        came.extend_from_slice(&piece[..count]);
                    }
                    Err(_) => {
                        assert!(direct.peeked.is_none(), "it is told to wait with bytes inside");
                        direct.stream().readable().await.expect("it is open");
                    }
                }
            }
            assert!(came == sent, "what came is something else");
            assert_eq!(direct.came(), sent.len() as u64);
            assert!(direct.peeked.is_none(), "it keeps a buffer");
            direct.allow(3);
            let mut theirs = write.join().expect("it ends").expect("it is read");
            theirs.write_all(b"12345").expect("it is open");
            direct.stream().readable().await.expect("it is open");
            assert_eq!(direct.read(&mut piece).expect("it is there"), 3);
            assert!(direct.read(&mut piece).is_err() && direct.is_spent());
        };
        let bounded = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(30), story).await });
        bounded.expect("all comes soon");
    }
}
