//! Who reads the socket of a link: the thread of the links, or an event loop or an async runtime that has taken it over.
//!
//! An event loop that reads by itself saves two changes of threads for each answer. The thread of the links reads on
//! whenever somebody waits elsewhere than on that loop, and it looks with every heartbeat, so that a loop which is busy for
//! long is not taken for a lost link. `here.rs` has what an async runtime does.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread_local;

use tidewire_core::link::session::Fault;
use tidewire_sync::Mutex;
use tokio::sync::Notify;

use super::way::{Way, WayKind};
use super::{Link, Shared};
use crate::plain::Plain;
use crate::reading::{Filled, Reading};

thread_local! {
    static HERE: usize = NEXT.fetch_add(1, Ordering::Relaxed);
}

/// No thread has the number of another one, also if that has ended; neither has a reader.
static NEXT: AtomicUsize = AtomicUsize::new(1);

/// The number of this thread; never 0.
pub(super) fn here() -> usize {
    HERE.with(|here| *here)
}

/// Who reads a socket now.
pub struct Turn {
    /// The number of the [`Reader`] whose turn it is, or 0: the thread of the links reads.
    reader: AtomicUsize,
    /// Somebody else reads now than before.
    pub changed: Notify,
    /// Who waits for this link elsewhere than on the loop that reads.
    elsewhere: AtomicUsize,
    /// Whether somebody has, since the last look.
    was_elsewhere: AtomicBool,
    /// Whether there is a [`Reader`].
    offered: AtomicBool,
    /// What was read and is no frame yet; None once the link has ended. Held while what was read is handed on, which keeps the order.
    reading: Mutex<Option<Reading>>,
    /// Why the loop could not read on.
    fault: Mutex<Option<Fault>>,
}

/// For an event loop: reads the socket of a link, on one thread at a time. Dropping it gives the reading back to the thread of the links.
pub struct Reader {
    number: usize,
    pub(super) link: Weak<Shared>,
    way: Arc<Way>,
    pub(super) descriptor: Plain,
}

/// Called with a reader that an event loop may begin with.
pub type Offer = Box<dyn Fn(Reader) + Send + Sync>;

/// Held by whoever waits for something of a link on another thread than the one that reads.
pub struct Elsewhere(Arc<Way>);

impl Turn {
    pub fn new(frame_max: usize) -> Self {
        Self {
            reader: AtomicUsize::new(0),
            changed: Notify::new(),
            elsewhere: AtomicUsize::new(0),
            was_elsewhere: AtomicBool::new(false),
            offered: AtomicBool::new(false),
            reading: Mutex::new(Some(Reading::new(frame_max))),
            fault: Mutex::new(None),
        }
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

    /// Nobody reads any more.
    pub fn end(&self) {
        *self.reading.lock() = None;
    }

    /// The thread of the links reads again.
    fn give_back(&self) {
        if self.reader.swap(0, Ordering::SeqCst) != 0 {
            self.changed.notify_one();
        }
    }
}

impl Way {
    /// Reads what there is, or a part of it, and hands on what came. `Closed`: it has ended on this side.
    pub fn read(&self, shared: &Arc<Shared>) -> Result<Filled, Fault> {
        let WayKind::Plain(plain) = &self.kind else { return Ok(Filled::All) };
        let mut place = self.turn.reading.lock();
        let Some(reading) = &mut *place else { return Ok(Filled::Closed) };
        shared.read_plain(plain, reading)
    }
}

impl Reader {
    /// Takes the reading over. False: somebody waits elsewhere.
    pub fn begin(&self) -> bool {
        let turn = &self.way.turn;
        turn.reader.store(self.number, Ordering::SeqCst);
        // Whoever comes to wait after this look takes the reading back.
        let mine = turn.elsewhere.load(Ordering::SeqCst) == 0;
        if mine {
            turn.changed.notify_one()
        } else {
            turn.give_back()
        }
        mine
    }

    /// Reads what there is, or a part of it, and hands on what came. False: this is no longer the one that reads, or nobody reads any more.
    pub fn read(&self) -> bool {
        self.read_some().is_some()
    }

    /// As [`read`](Self::read), and says whether that was all. None for false.
    pub(super) fn read_some(&self) -> Option<Filled> {
        let shared = self.link.upgrade()?;
        if self.way.turn.reader.load(Ordering::Acquire) != self.number {
            return None;
        }
        match self.way.read(&shared) {
            Ok(filled) => (filled != Filled::Closed).then_some(filled),
            Err(fault) => {
                *self.way.turn.fault.lock() = Some(fault);
                self.way.end.notify_one();
                None
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
        self.way.turn.give_back();
        self.way.turn.offered.store(false, Ordering::Release);
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        self.0.turn.elsewhere.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Link {
    /// Gives `call` a [`Reader`] whenever the event loop of this thread may read the socket: now, and after the link was lost.
    pub fn on_way(&self, call: impl Fn(Reader) + Send + Sync + 'static) {
        self.shared.home.is_this_thread();
        self.offer_to(call);
    }

    /// Whoever has read until now is not home any more, and may stand still.
    pub(super) fn offer_to(&self, call: impl Fn(Reader) + Send + Sync + 'static) {
        *self.shared.readers.lock() = Some(Box::new(call));
        if let Some(way) = &*self.shared.way.lock() {
            way.turn.give_back();
        }
        self.shared.offer();
    }

    /// To be held while something of this link is waited for on this thread: if it is `blocking`, or not that of the loop or the
    /// runtime which may read the socket, the thread of the links has to read.
    pub fn elsewhere(&self, blocking: bool) -> Option<Elsewhere> {
        if !blocking && self.shared.home.is_here() {
            return None;
        }
        let way = self.shared.way.lock().clone()?;
        if !matches!(way.kind, WayKind::Plain(_)) {
            return None;
        }
        way.turn.elsewhere.fetch_add(1, Ordering::SeqCst);
        way.turn.was_elsewhere.store(true, Ordering::Release);
        way.turn.give_back();
        Some(Elsewhere(way))
    }
}

impl Shared {
    /// Offers the reading to an event loop, unless it has it, or somebody has waited elsewhere since the last time.
    pub(super) fn offer(&self) {
        let Some(way) = self.way.lock().clone() else { return };
        let WayKind::Plain(plain) = &way.kind else { return };
        let turn = &way.turn;
        if turn.was_elsewhere.swap(turn.elsewhere.load(Ordering::Acquire) > 0, Ordering::AcqRel) {
            return;
        }
        let readers = self.readers.lock();
        let Some(readers) = &*readers else { return };
        if turn.offered.swap(true, Ordering::AcqRel) {
            return;
        }
        match plain.duplicate() {
            Ok(descriptor) => {
                let number = NEXT.fetch_add(1, Ordering::Relaxed);
                readers(Reader { number, link: self.me.clone(), way: Arc::clone(&way), descriptor });
            }
            // No descriptor is left: the thread of the links goes on.
            Err(_) => turn.offered.store(false, Ordering::Release),
        }
    }
}
