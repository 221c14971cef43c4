//! Socket reader of a node's link: it moves between the thread of the links and an event loop.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use tidewire_core::link::session::Fault;

use super::connection::{Connection, Transport};
use super::{Link, Shared};
use crate::frame_reader::ReadProgress;
use crate::socket::read_owner::{OffLoopWaiter, ReadOwner, Reader, SharedSocket, here};

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
            Transport::Layered(_) | Transport::Local(_) => None,
        }
    }
}

impl Link {
    /// Gives `call` a [`Reader`] whenever the event loop of this thread may read the socket: now,
    /// and after the link was lost. A link inside of one process has no socket.
    pub fn on_way(&self, call: impl Fn(Reader) + Send + Sync + 'static) {
        self.shared.loop_thread.store(here(), Ordering::Release);
        // The previous reader may be blocked by now, so it gives the reading back first.
        *self.shared.readers.lock() = Some(Box::new(call));
        let turn = self.shared.way.lock().as_ref().and_then(|way| way.turn());
        if let Some(turn) = turn {
            turn.give_back();
        }
        self.shared.offer();
    }

    /// To be held while something of this link is waited for on this thread: if it is `blocking`,
    /// or not that of the loop which may read the socket, the thread of the links has to read.
    pub fn wait_off_loop(&self, blocking: bool) -> Option<OffLoopWaiter> {
        if !blocking && self.shared.loop_thread.load(Ordering::Acquire) == here() {
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
        if let Transport::Plain(plain) = &way.kind {
            let of = Arc::new(Socket { link: self.me.clone(), way: Arc::clone(&way) });
            ReadOwner::offer(of, plain, |reader| {
                // Without a loop, the dropped reader gives the reading back.
                if let Some(readers) = &*self.readers.lock() {
                    readers(reader);
                }
            });
        }
    }
}
