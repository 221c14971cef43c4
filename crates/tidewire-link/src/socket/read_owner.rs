//! Read ownership of the socket of a link: the link thread or an event loop.
//!
//! An event loop that reads by itself saves two thread switches for each answer. The link thread
//! reads whenever a caller waits outside of that loop. The link thread also checks the socket with
//! every heartbeat, so that a loop which is busy for long does not count as a lost link.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread_local;

use tidewire_core::link::session::Fault;
use tidewire_sync::Mutex;
use tokio::sync::Notify;

use crate::frame_reader::{FrameReader, ReadProgress};
use crate::socket::raw_stream::RawStream;

thread_local! {
    static HERE: usize = NEXT.fetch_add(1, Ordering::Relaxed);
}

/// No thread has the number of another one, also if that has ended; neither has a reader.
static NEXT: AtomicUsize = AtomicUsize::new(1);

/// The number of this thread; never 0.
pub(crate) fn here() -> usize {
    HERE.with(|here| *here)
}

/// A socket whose read ownership changes.
pub(crate) trait SharedSocket: Send + Sync {
    /// The read ownership of the socket.
    fn turn(&self) -> &Arc<ReadOwner>;
    /// Reads the available bytes, or a part of them, and delivers them. `Closed`: reading has
    /// ended.
    fn read(&self) -> Result<ReadProgress, Fault>;
    /// It can't be read any further.
    fn ends(&self);
}

#[derive(Default)]
pub(crate) struct ReadOwner {
    /// The number of the [`Reader`] that reads, or 0: the link thread reads.
    reader: AtomicUsize,
    /// Notified when the owner changes.
    pub changed: Notify,
    /// Number of waiters for this link outside of the loop that reads.
    off_loop_waiters: AtomicUsize,
    /// True if there was such a waiter since the last offer.
    was_off_loop: AtomicBool,
    /// True if there is a [`Reader`].
    offered: AtomicBool,
    /// The buffer of incomplete frames; None once the link has ended. The lock is held during
    /// delivery, which preserves the order.
    reading: Mutex<Option<FrameReader>>,
    /// Why the loop could not read on.
    fault: Mutex<Option<Fault>>,
}

/// For an event loop: reads the socket of a link, on one thread at a time. Dropping it gives the
/// reading back to the thread of the links.
pub struct Reader {
    number: usize,
    of: Arc<dyn SharedSocket>,
    descriptor: RawStream,
}

/// Called with a reader that an event loop may begin with.
pub(crate) type ReaderCallback = Box<dyn Fn(Reader) + Send + Sync>;

/// Guard of a waiter for a link on another thread than the reading one.
pub struct OffLoopWaiter(Arc<ReadOwner>);

impl ReadOwner {
    pub fn new(reading: FrameReader) -> Arc<Self> {
        Arc::new(Self { reading: Mutex::new(Some(reading)), ..Self::default() })
    }

    /// True if the link thread reads.
    pub fn is_of_links(&self) -> bool {
        self.reader.load(Ordering::Acquire) == 0
    }

    /// True if the link thread reads, and could offer the ownership to a loop.
    pub fn is_to_offer(&self) -> bool {
        self.is_of_links() && !self.offered.load(Ordering::Acquire)
    }

    /// Why the link can't go on, if a loop has found that out.
    pub fn fault(&self) -> Option<Fault> {
        self.fault.lock().take()
    }

    /// Guard for the delivery of data that did not come over the socket: no reader delivers
    /// meanwhile.
    pub fn in_order(&self) -> impl Drop + use<'_> {
        self.reading.lock()
    }

    /// Reads, unless reading has ended. The closure `read` also delivers the bytes.
    pub fn read(
        &self,
        read: impl FnOnce(&mut FrameReader) -> Result<ReadProgress, Fault>,
    ) -> Result<ReadProgress, Fault> {
        match &mut *self.reading.lock() {
            Some(reading) => read(reading),
            None => Ok(ReadProgress::Closed),
        }
    }

    /// Ends reading.
    pub fn end(&self) {
        *self.reading.lock() = None;
    }

    /// The thread of the links reads again.
    pub fn give_back(&self) {
        if self.reader.swap(0, Ordering::SeqCst) != 0 {
            self.changed.notify_one();
        }
    }

    /// Registers a waiter outside of the loop: the link thread reads.
    pub fn wait_off_loop(self: &Arc<Self>) -> OffLoopWaiter {
        self.off_loop_waiters.fetch_add(1, Ordering::SeqCst);
        self.was_off_loop.store(true, Ordering::Release);
        self.give_back();
        OffLoopWaiter(Arc::clone(self))
    }

    /// Offers the reading, unless a loop has it, or somebody has waited elsewhere since the last
    /// time.
    pub fn offer(of: Arc<dyn SharedSocket>, plain: &RawStream, offer: impl FnOnce(Reader)) {
        let turn = Arc::clone(of.turn());
        if turn.was_off_loop.swap(turn.off_loop_waiters.load(Ordering::Acquire) > 0, Ordering::AcqRel)
            || turn.offered.swap(true, Ordering::AcqRel)
        {
            return;
        }
        match plain.duplicate() {
            Ok(descriptor) => offer(Reader { number: NEXT.fetch_add(1, Ordering::Relaxed), of, descriptor }),
            // No descriptor is left: the thread of the links goes on.
            Err(_) => turn.offered.store(false, Ordering::Release),
        }
    }
}

impl Reader {
    /// Takes the ownership. False: a caller waits outside of the loop.
    pub fn begin(&self) -> bool {
        let turn = self.of.turn();
        turn.reader.store(self.number, Ordering::SeqCst);
        // A waiter that registers after this check takes the ownership back.
        let mine = turn.off_loop_waiters.load(Ordering::SeqCst) == 0;
        if mine {
            turn.changed.notify_one()
        } else {
            turn.give_back()
        }
        mine
    }

    /// Reads what is there, or a part of it, and dispatches it. False: this reader has lost the
    /// reading, or nobody reads any more.
    pub fn read(&self) -> bool {
        let turn = self.of.turn();
        if turn.reader.load(Ordering::Acquire) != self.number {
            return false;
        }
        match self.of.read() {
            Ok(filled) => filled != ReadProgress::Closed,
            Err(fault) => {
                *turn.fault.lock() = Some(fault);
                self.of.ends();
                false
            }
        }
    }
}

impl AsFd for Reader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let turn = self.of.turn();
        turn.give_back();
        turn.offered.store(false, Ordering::Release);
    }
}

impl Drop for OffLoopWaiter {
    fn drop(&mut self) {
        self.0.off_loop_waiters.fetch_sub(1, Ordering::AcqRel);
    }
}
