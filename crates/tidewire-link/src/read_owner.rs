//! Who reads the socket of a link: the thread of the links, or an event loop or an async runtime
//! that has taken it over.
//!
//! An event loop that reads by itself saves two changes of threads for each answer. The thread of
//! the links reads on whenever somebody waits elsewhere than on that loop, and it looks with every
//! heartbeat, so that a loop which is busy for long is not taken for a lost link.
//! `node/runtime_reader.rs` has what an async runtime does, `hub/single_peer.rs` what the hub of a
//! node does whose loop it is.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread_local;

use tidewire_core::link::session::Fault;
use tidewire_sync::Mutex;
use tokio::sync::Notify;

use crate::frame_reader::{FrameReader, ReadProgress};
use crate::raw_stream::RawStream;

thread_local! {
    static HERE: usize = NEXT.fetch_add(1, Ordering::Relaxed);
}

/// No thread has the number of another one, also if that has ended; neither has a reader.
static NEXT: AtomicUsize = AtomicUsize::new(1);

/// The number of this thread; never 0.
pub(crate) fn here() -> usize {
    HERE.with(|here| *here)
}

/// A socket that is read in turns.
pub(crate) trait SharedSocket: Send + Sync {
    /// Whose turn it is.
    fn turn(&self) -> &Arc<ReadOwner>;
    /// Reads what there is, or a part of it, and hands on what came. `Closed`: nobody reads any
    /// more.
    fn read(&self) -> Result<ReadProgress, Fault>;
    /// It can't be read any further.
    fn ends(&self);
    /// Whether nothing is taken in at present.
    fn is_paused(&self) -> bool;
}

/// Who reads a socket now.
pub(crate) struct ReadOwner {
    /// The number of the [`Reader`] whose turn it is, or 0: the thread of the links reads.
    reader: AtomicUsize,
    /// Somebody else reads now than before.
    pub changed: Notify,
    /// Who waits for this link elsewhere than on the loop that reads.
    off_loop_waiters: AtomicUsize,
    /// Whether somebody has, since the last look.
    was_off_loop: AtomicBool,
    /// Whether there is a [`Reader`].
    offered: AtomicBool,
    /// What was read and is no frame yet; None once the link has ended. Held while what was read is
    /// handed on, which keeps the order.
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

/// Held by whoever waits for something of a link on another thread than the one that reads.
pub struct OffLoopWaiter(Arc<ReadOwner>);

impl ReadOwner {
    pub fn new(reading: FrameReader) -> Arc<Self> {
        Arc::new(Self {
            reader: AtomicUsize::new(0),
            changed: Notify::new(),
            off_loop_waiters: AtomicUsize::new(0),
            was_off_loop: AtomicBool::new(false),
            offered: AtomicBool::new(false),
            reading: Mutex::new(Some(reading)),
            fault: Mutex::new(None),
        })
    }

    /// Whether it is the thread of the links.
    pub fn is_of_links(&self) -> bool {
        self.reader.load(Ordering::Acquire) == 0
    }

    /// Whether the thread of the links reads, and could offer that to a loop.
    pub fn is_to_offer(&self) -> bool {
        self.is_of_links() && !self.offered.load(Ordering::Acquire)
    }

    /// Why the link can't go on, if a loop has found that out.
    pub fn fault(&self) -> Option<Fault> {
        self.fault.lock().take()
    }

    /// To be held while something is handed on that did not come over the socket: nobody hands on
    /// what is read meanwhile.
    pub fn in_order(&self) -> impl Drop + use<'_> {
        self.reading.lock()
    }

    /// Reads, unless nobody reads any more. What was read is to be handed on by `read`.
    pub fn read(
        &self,
        read: impl FnOnce(&mut FrameReader) -> Result<ReadProgress, Fault>,
    ) -> Result<ReadProgress, Fault> {
        match &mut *self.reading.lock() {
            Some(reading) => read(reading),
            None => Ok(ReadProgress::Closed),
        }
    }

    /// Nobody reads any more.
    pub fn end(&self) {
        *self.reading.lock() = None;
    }

    /// The thread of the links reads again.
    pub fn give_back(&self) {
        if self.reader.swap(0, Ordering::SeqCst) != 0 {
            self.changed.notify_one();
        }
    }

    /// Somebody waits elsewhere from now on: the thread of the links reads.
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
    /// Takes the reading over. False: somebody waits elsewhere.
    pub fn begin(&self) -> bool {
        let turn = self.of.turn();
        turn.reader.store(self.number, Ordering::SeqCst);
        // Whoever comes to wait after this look takes the reading back.
        let mine = turn.off_loop_waiters.load(Ordering::SeqCst) == 0;
        if mine {
            turn.changed.notify_one()
        } else {
            turn.give_back()
        }
        mine
    }

    /// Reads what there is, or a part of it, and hands on what came. False: this is no longer the
    /// one that reads, or nobody reads any more.
    pub fn read(&self) -> bool {
        self.read_some().is_some()
    }

    /// As [`read`](Self::read), and says whether that was all. None for false.
    pub(crate) fn read_some(&self) -> Option<ReadProgress> {
        let turn = self.of.turn();
        if turn.reader.load(Ordering::Acquire) != self.number {
            return None;
        }
        match self.of.read() {
            Ok(filled) => (filled != ReadProgress::Closed).then_some(filled),
            Err(fault) => {
                *turn.fault.lock() = Some(fault);
                self.of.ends();
                None
            }
        }
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.of.is_paused()
    }

    pub(crate) fn descriptor(&self) -> &RawStream {
        &self.descriptor
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
