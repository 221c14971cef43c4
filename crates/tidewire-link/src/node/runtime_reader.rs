//! Link whose socket is read by the async runtime that waits for its answers.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidewire_sync::Mutex;
use tokio::io::Interest;
use tokio::runtime::{Handle, Id, TryCurrentError};

use super::Link;

use crate::frame_reader::ReadProgress;
use crate::socket::async_stream::AsyncStream;
use crate::socket::read_owner::{Reader, here};

/// In place of the number of a thread: it is a runtime, on as many threads as it has.
const OF_RUNTIME: usize = usize::MAX;

/// Where the loop is that may read a socket.
#[derive(Default)]
pub(super) struct LoopThread {
    /// The number of its thread, [`OF_RUNTIME`], or 0: there is none.
    thread: AtomicUsize,
    runtime: Mutex<Option<Id>>,
}

impl LoopThread {
    pub fn is_this_thread(&self) {
        self.thread.store(here(), Ordering::Release);
    }

    fn is_runtime(&self, id: Id) {
        *self.runtime.lock() = Some(id);
        self.thread.store(OF_RUNTIME, Ordering::Release);
    }

    pub fn is_known(&self) -> bool {
        self.thread.load(Ordering::Acquire) != 0
    }

    /// True if this thread is the thread of the loop, or one of the runtime.
    pub fn is_here(&self) -> bool {
        match self.thread.load(Ordering::Acquire) {
            OF_RUNTIME => Handle::try_current().is_ok_and(|here| *self.runtime.lock() == Some(here.id())),
            thread => thread == here(),
        }
    }
}

impl Link {
    /// Has the tokio runtime of this task read the socket, now and after a reconnect. An answer
    /// then arrives on the runtime that waits for it, which saves a switch of threads. Connections
    /// over TLS and WebSocket are read as before.
    ///
    /// The runtime must have its I/O enabled, and should run while a task waits. Bytes that a busy
    /// or idle runtime leaves unread are read with the next heartbeat. A caller that waits on a
    /// blocking thread, or outside of the runtime, holds an
    /// [`OffLoopWaiter`](crate::OffLoopWaiter): then the thread of the links reads. The thread of
    /// the links also takes over when the runtime ends.
    ///
    /// # Errors
    /// [`TryCurrentError`] if this is no task of a tokio runtime.
    pub fn read_here(&self) -> Result<(), TryCurrentError> {
        let runtime = Handle::try_current()?;
        self.shared.home.is_runtime(runtime.id());
        // A runtime that has ended drops the reader, which gives the reading back.
        self.offer_to(move |reader| drop(runtime.spawn(read(reader))));
        Ok(())
    }
}

/// Reads until a waiter is off the loop, the handlers are behind, or the connection ends.
///
/// # Cancel safety
/// Nothing is lost: the thread of the links goes on with what is in the socket.
async fn read(reader: Reader) {
    let mut watched = AsyncStream::default();
    let mut goes_on = reader.begin();
    while goes_on && watched.ready(reader.descriptor(), true, false).await.is_ok() {
        let filled = if reader.is_paused() { None } else { read_some(&reader, &watched) };
        goes_on = filled.is_some();
        if filled == Some(ReadProgress::Some) {
            // Other tasks have their turn, however fast the other side sends.
            tokio::task::yield_now().await;
        }
    }
}

/// Reads what there is, or a part of it. None: it is not for this reader to go on.
fn read_some(reader: &Reader, watched: &AsyncStream) -> Option<ReadProgress> {
    let mut filled = Some(ReadProgress::All);
    watched.act(Interest::READABLE, || {
        filled = reader.read_some();
        if filled == Some(ReadProgress::All) { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    });
    filled
}
