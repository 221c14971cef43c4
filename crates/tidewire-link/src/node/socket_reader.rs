//! Socket reader of a node's link: it moves between the thread of the links and an event loop.

use std::sync::{Arc, Weak};

use tidewire_core::link::session::Fault;

use super::connection::{Connection, Transport};
use super::{Link, Shared};
use crate::frame_reader::ReadProgress;
use crate::socket::read_owner::{OffLoopWaiter, ReadOwner, Reader, SharedSocket};

/// Socket of a link, for the current reader.
struct Socket {
    link: Weak<Shared>,
    way: Arc<Connection>,
}

impl SharedSocket for Socket {
    fn turn(&self) -> &Arc<ReadOwner> {
        &self.way.turn
    }

    fn read(&self) -> Result<ReadProgress, Fault> {
        self.link.upgrade().map_or(Ok(ReadProgress::Closed), |shared| self.way.read(&shared))
    }

    fn ends(&self) {
        self.way.end.notify_one();
    }

    fn is_paused(&self) -> bool {
        self.link.upgrade().is_some_and(|shared| shared.is_paused())
    }
}

impl Connection {
    /// Reads what is there, or a part of it, and dispatches it. `Closed`: the connection has ended
    /// on this side.
    pub fn read(&self, shared: &Arc<Shared>) -> Result<ReadProgress, Fault> {
        let Transport::Plain(plain) = &self.kind else { return Ok(ReadProgress::All) };
        self.turn.read(|reading| shared.read_plain(plain, reading))
    }

    /// Read ownership of the socket; none if the thread of the links always reads.
    fn turn(&self) -> Option<Arc<ReadOwner>> {
        match &self.kind {
            Transport::Plain(_) => Some(Arc::clone(&self.turn)),
            Transport::Layered(_) => None,
            Transport::Local(end) => end.turn(),
        }
    }
}

impl Link {
    /// Gives `call` a [`Reader`] whenever the event loop of this thread may read the socket: now,
    /// and after the link was lost. A link inside of one process has none; the loop may read that
    /// of the first node that joins its hub from elsewhere, while no other node is joined.
    pub fn on_way(&self, call: impl Fn(Reader) + Send + Sync + 'static) {
        self.shared.home.is_this_thread();
        self.offer_to(call);
    }

    /// Offers the reading to `call`. The previous reader may be blocked by now, so it gives the
    /// reading back first.
    pub(super) fn offer_to(&self, call: impl Fn(Reader) + Send + Sync + 'static) {
        *self.shared.readers.lock() = Some(Box::new(call));
        let turn = self.shared.way.lock().as_ref().and_then(|way| way.turn());
        if let Some(turn) = turn {
            turn.give_back();
        }
        self.shared.offer();
    }

    /// To be held while something of this link is waited for on this thread: if it is `blocking`,
    /// or not that of the loop or the runtime which may read the socket, the thread of the links
    /// has to read.
    pub fn wait_off_loop(&self, blocking: bool) -> Option<OffLoopWaiter> {
        if !blocking && self.shared.home.is_here() {
            return None;
        }
        let turn = self.shared.way.lock().as_ref().and_then(|way| way.turn())?;
        Some(turn.wait_off_loop())
    }
}

impl Shared {
    /// Offers the reading to an event loop, unless the loop has it, or a waiter was off the loop
    /// since the last time.
    pub(super) fn offer(&self) {
        let Some(way) = self.way.lock().clone() else { return };
        match &way.kind {
            Transport::Plain(plain) => {
                let of = Arc::new(Socket { link: self.me.clone(), way: Arc::clone(&way) });
                ReadOwner::offer(of, plain, |reader| self.offered(reader));
            }
            Transport::Layered(_) => {}
            Transport::Local(end) => end.offer(),
        }
    }

    /// Gives the reading to an event loop, if there is one; dropped, it goes back to the thread of
    /// the links.
    pub(super) fn offered(&self, reader: Reader) {
        if let Some(readers) = &*self.readers.lock() {
            readers(reader);
        }
    }
}
