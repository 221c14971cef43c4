//! Shared writer of a link: moves frames from the outbox to the socket, one thread at a time.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use tidewire_core::link::outbox::WriteBatch;
use tidewire_sync::Mutex;
use tokio::sync::Notify;

const TURN_BYTES: usize = 1 << 20;

/// The route from an outbox to a socket, shared by all sending threads.
///
/// One thread writes at a time. Another thread with frames to send sets a flag, and the writing
/// thread checks the outbox again.
pub struct SharedWriter {
    state: Mutex<State>,
    again: AtomicBool,
    /// The socket takes no more: the thread of the links waits until it does.
    pub full: Notify,
    /// Bytes that are written at one go, however many the socket takes.
    most: usize,
}

#[derive(Default)]
struct State {
    burst: WriteBatch,
    full: bool,
    broken: bool,
}

impl SharedWriter {
    pub fn new() -> Self {
        Self { state: Mutex::default(), again: AtomicBool::new(false), full: Notify::new(), most: usize::MAX }
    }

    /// A writer that writes in turns. A socket that takes many bytes at once counts as full, so
    /// that a fast reader does not hold the writing thread.
    pub fn in_turns() -> Self {
        Self { most: TURN_BYTES, ..Self::new() }
    }

    /// Writes as much as the socket takes. `take` moves frames out of the outbox.
    pub fn flush(
        &self,
        mut take: impl FnMut(&mut WriteBatch) -> bool,
        mut write: impl FnMut(&WriteBatch) -> io::Result<usize>,
    ) -> io::Result<()> {
        self.again.store(true, Ordering::SeqCst);
        while self.again.load(Ordering::SeqCst) {
            let Some(mut state) = self.state.try_lock() else { return Ok(()) };
            self.again.store(false, Ordering::SeqCst);
            if state.full || state.broken {
                return Ok(());
            }
            self.write_all(&mut state, &mut take, &mut write)?;
        }
        Ok(())
    }

    /// The socket takes bytes again: goes on as [`flush`](Self::flush).
    pub fn resume(
        &self,
        take: impl FnMut(&mut WriteBatch) -> bool,
        write: impl FnMut(&WriteBatch) -> io::Result<usize>,
    ) -> io::Result<()> {
        self.state.lock().full = false;
        self.flush(take, write)
    }

    /// Runs `act` while no thread writes. Threads that want to write meanwhile set the flag:
    /// the caller must [`flush`](Self::flush) afterwards.
    pub fn alone(&self, act: impl FnOnce()) {
        let _state = self.state.lock();
        act();
    }

    fn write_all(
        &self,
        state: &mut State,
        take: &mut impl FnMut(&mut WriteBatch) -> bool,
        write: &mut impl FnMut(&WriteBatch) -> io::Result<usize>,
    ) -> io::Result<()> {
        let mut written = 0;
        loop {
            if state.burst.is_written() {
                state.burst.clear();
                if !take(&mut state.burst) {
                    return Ok(());
                }
            }
            if written >= self.most {
                state.full = true;
                self.full.notify_one();
                return Ok(());
            }
            match write(&state.burst) {
                Ok(count) => {
                    state.burst.advance(count);
                    written += count;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    state.full = true;
                    self.full.notify_one();
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    state.broken = true;
                    return Err(error);
                }
            }
        }
    }
}
