//! The writer of a node's link: when frames are written, and in which bursts.

use std::io;
use std::sync::atomic::Ordering;

use tidewire_core::link::outbox::{FrameSink, WriteBatch};
use tidewire_core::link::session::OutgoingPayload;
use tidewire_proto::generated::limits;

use super::Shared;
use super::connection::{Connection, Transport};
use crate::clock::now_us;

impl Shared {
    pub(super) fn compresses(&self, payload: usize) -> bool {
        payload >= self.compressed_from.load(Ordering::Relaxed)
    }

    /// A payload as it is sent. No lock is held while it is compressed.
    pub(super) fn packed<'a>(&self, payload: OutgoingPayload<'a>) -> OutgoingPayload<'a> {
        if self.compresses(payload.bytes()) { payload.packed() } else { payload }
    }

    /// As [`packed`](Self::packed), but a long payload is to be placed in shared memory if the hub
    /// can pass its location on.
    pub(super) fn readied<'a>(&self, payload: OutgoingPayload<'a>) -> OutgoingPayload<'a> {
        match payload {
            OutgoingPayload::Long(payload) if self.may_lay(payload.bytes()) => OutgoingPayload::Lay(payload),
            payload => self.packed(payload),
        }
    }

    fn may_lay(&self, payload: usize) -> bool {
        self.memory.is_some()
            && payload > self.greeting.chunk_bytes
            && payload as u64 <= limits::LINK_PLACED_BYTES.default
            && self.state.lock().session.may_place()
    }

    /// Flushes the outbox, as far as the socket takes bytes, or leaves it to the thread of a
    /// gateway that is about to flush.
    pub(super) fn flush(&self) {
        let waiting = || self.state.lock().session.out.bytes();
        if !self.spreading.as_ref().is_some_and(|spreading| spreading.writes(waiting)) {
            self.write_now();
        }
    }

    /// Flushes the outbox, as far as the socket takes bytes.
    pub(super) fn write_now(&self) {
        self.write_out();
        self.let_write();
    }

    /// Has the thread of the links flush the outbox, once for all requests meanwhile.
    pub(super) fn flush_soon(&self) {
        let connection = self.connection.lock().clone();
        match connection {
            // Nobody looks after a link inside of one process.
            Some(connection) if matches!(connection.kind, Transport::Local(_)) => self.flush(),
            _ if !self.to_flush.swap(true, Ordering::AcqRel) => self.wakeup.notify_one(),
            _ => {}
        }
    }

    /// On the thread of the links: writes what others have asked it to write.
    pub(super) fn flush_requested(&self) {
        if self.to_flush.swap(false, Ordering::AcqRel) {
            self.flush();
        }
    }

    fn write_out(&self) {
        let Some(connection) = self.connection.lock().clone() else { return };
        let flushed =
            connection.writing.flush(|burst| self.take(&connection, burst), |burst| self.write(&connection, burst));
        if flushed.is_err() {
            connection.end.notify_one();
        }
        self.idle.tell();
    }

    pub(super) fn write(&self, connection: &Connection, burst: &WriteBatch) -> io::Result<usize> {
        let count = connection.kind.write(burst)?;
        self.sent_bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }

    pub(super) fn take(&self, connection: &Connection, burst: &mut WriteBatch) -> bool {
        let count = self.greeting.batch.write_bytes();
        let mut state = self.state.lock();
        if state.epoch != connection.epoch {
            return false;
        }
        let out = &mut state.session.out;
        let has_frames =
            if connection.kind.writes_parts() { out.take(burst, count) } else { out.take(burst.bytes(), count) };
        let lays = out.has_to_lay();
        if has_frames {
            state.session.sent(now_us());
        }
        drop(state);
        if lays {
            self.lays();
        }
        has_frames
    }
}
