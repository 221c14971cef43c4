//! Looks after one link over a socket, from its first frame to its last.

use std::io;
use std::sync::Arc;

use tidewire_core::link::hub::LinkId;
use tidewire_core::link::outbox::{FrameSink, WriteBatch};
use tidewire_proto::wire::WireError;
use tokio::sync::{Notify, SemaphorePermit};

use super::listeners::MAKES_ROOM;
use super::pending_joins::{PendingJoin, has_to_go, place_of};
use super::{Peer, Shared, secret};
use crate::clock::{instant, now_us};
use crate::frame_reader::{FrameReader, ReadProgress, StopReading};
use crate::socket::Socket;
use crate::writer::SharedWriter;

/// Longest turn of one link.
const TURN_US: u64 = 250;
/// Work of the hub between two reads of the clock: eight calls, or one frame with many receivers.
const CLOCK_WORK: u64 = 16;
/// Bytes that a layer, such as WebSocket, reads at one go.
const LAYER_BYTES: usize = 64 * 1024;

impl Shared {
    pub(super) fn accept(self: &Arc<Self>, socket: Socket, greeting: PendingJoin) {
        let at = {
            let mut hub = self.hub.lock();
            let at = hub.connected(secret(), now_us());
            hub.comes_from(at, place_of(socket.address()));
            if socket.is_near() {
                hub.is_near(at);
            }
            if greeting.is_console {
                hub.mark_console(at);
            }
            at
        };
        let peer = Arc::new(Peer::Remote { socket, writing: SharedWriter::in_turns(), end: Notify::new() });
        self.keep(at, Arc::clone(&peer));
        tokio::spawn(serve(Arc::clone(self), at, peer, greeting));
    }

    /// A connection that has not joined closes for others.
    pub(super) fn turn_away(&self, at: LinkId) {
        let leaving = self.leaving(&self.hub.lock(), at);
        self.end(leaving, MAKES_ROOM);
    }

    /// Dispatches frames that were read, for at most one turn of a link. Returns whether none is
    /// left, or until when the link pauses.
    pub(super) fn read(&self, at: LinkId, reading: &mut FrameReader) -> ServeOutcome {
        let now = now_us();
        let handed = {
            let mut hub = self.hub.lock();
            let (mut checked, mut rests_until_us) = (hub.work(), None);
            let visited = reading.some_frames(|frame| {
                hub.received(at, frame, now);
                rests_until_us = hub.rests_until_us(at);
                let is_due = hub.work() - checked >= CLOCK_WORK;
                if is_due {
                    checked = hub.work();
                }
                StopReading(rests_until_us.is_some() || is_due && now_us() - now >= TURN_US)
            });
            let all = visited.unwrap_or_else(|error| {
                let error = match error {
                    WireError::FrameTooLong { .. } if reading.is_small() => hello_too_long(self.hello_bytes),
                    other => other,
                };
                hub.garbled(at, &error);
                true
            });
            ServeOutcome { all, rests_until_us }
        };
        self.settle();
        handed
    }

    /// Waits for the turn of a link, after its pause if it has one. A link that has brought more
    /// than one turn takes lets all other links go first. Only one such link runs at a time, so
    /// that many of them delay the others no longer than one does.
    pub(super) async fn turn(
        &self,
        waits: bool,
        rests_until_us: Option<u64>,
        comes: impl Future<Output = io::Result<()>>,
    ) -> io::Result<Option<SemaphorePermit<'_>>> {
        if let Some(until_us) = rests_until_us {
            tokio::time::sleep_until(instant(until_us).into()).await;
        }
        if waits {
            return comes.await.map(|()| None);
        }
        let seat = self.seat.acquire().await.map_err(io::Error::other)?;
        // It goes on once sockets and times were looked at.
        tokio::task::yield_now().await;
        Ok(Some(seat))
    }

    /// The longest frame of a node that has joined.
    pub(super) fn has_joined(&self, at: LinkId) -> Option<usize> {
        let hub = self.hub.lock();
        hub.has_joined(at).then(|| hub.frame_bytes())
    }
}

/// Result of processing the frames that were read.
pub(super) struct ServeOutcome {
    /// True if no frame is left.
    pub(super) all: bool,
    /// No more frames may be forwarded before this time.
    pub(super) rests_until_us: Option<u64>,
}

/// Incoming bytes of one link.
struct Incoming {
    reading: FrameReader,
    /// True if more bytes have arrived than one turn takes.
    more: bool,
    /// Nothing is taken before.
    rests_until_us: Option<u64>,
}

impl Incoming {
    fn new(shared: &Shared, socket: &Socket) -> Self {
        let hello = shared.hello_bytes;
        socket.limit(hello, hello);
        Self { reading: FrameReader::small(hello), more: false, rests_until_us: None }
    }

    /// Takes what one link may bring at one go.
    fn take(&mut self, shared: &Shared, at: LinkId, socket: &Socket) -> io::Result<()> {
        let mut filled = match self.reading.is_left() {
            true => ReadProgress::Some,
            false => self.fill(socket)?,
        };
        if filled == ReadProgress::All && self.reading.is_small() {
            // A node that has left before the hub greets it does not join: its name is free.
            filled = self.fill(socket)?;
        }
        if filled == ReadProgress::All {
            socket.drained();
        }
        let handed = shared.read(at, &mut self.reading);
        self.rests_until_us = handed.rests_until_us;
        let (is_held, read_bytes) = socket.read_progress();
        self.more = !handed.all || is_held || filled == ReadProgress::Some;
        if self.reading.is_small() {
            self.greet(shared, at, socket, read_bytes);
        }
        Ok(())
    }

    fn fill(&mut self, socket: &Socket) -> io::Result<ReadProgress> {
        match self.reading.fill(|spare| socket.try_read(spare)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(ReadProgress::All),
            Ok(ReadProgress::Closed) => Err(io::ErrorKind::UnexpectedEof.into()),
            other => other,
        }
    }

    /// Widens the limits of a link once its node has joined.
    fn greet(&mut self, shared: &Shared, at: LinkId, socket: &Socket, read_bytes: u64) {
        if let Some(frame_max) = shared.has_joined(at) {
            socket.limit(LAYER_BYTES, frame_max);
            self.reading.widen(frame_max);
        } else if read_bytes > 2 * shared.hello_bytes as u64 {
            shared.hub.lock().garbled(at, &hello_too_long(shared.hello_bytes));
            shared.settle();
        }
    }
}

async fn serve(shared: Arc<Shared>, at: LinkId, peer: Arc<Peer>, greeting: PendingJoin) {
    let Peer::Remote { socket, writing, end } = &*peer else { return };
    let mut incoming = Incoming::new(&shared, socket);
    let (mut full, mut greeting) = (false, Some(greeting));
    loop {
        if !incoming.reading.is_small() {
            greeting = None;
        }
        tokio::select! {
            biased;
            () = end.notified() => break,
            () = has_to_go(greeting.as_ref()) => {
                shared.turn_away(at);
                break;
            }
            () = writing.full.notified(), if !full => full = true,
            ready = socket.writable(), if full => {
                full = false;
                let take = |burst: &mut WriteBatch| shared.take(at, &peer, burst.bytes());
                if ready.is_err() || writing.resume(take, |burst| socket.try_write(burst.frames())).is_err() {
                    break;
                }
                shared.idle.tell();
                // A peer that reads as fast as this task writes must not starve the other links.
                tokio::task::yield_now().await;
            }
            turn = shared.turn(!incoming.more, incoming.rests_until_us, socket.readable()) => {
                let outcome = turn.and_then(|_seat| incoming.take(&shared, at, socket));
                let Err(error) = outcome else { continue };
                if error.kind() == io::ErrorKind::InvalidData {
                    let leaving = shared.leaving(&shared.hub.lock(), at);
                    shared.end(leaving, &error.to_string());
                }
                break;
            }
        }
    }
    shared.remove_link(at);
}

fn hello_too_long(max: usize) -> WireError {
    WireError::Limit { name: "link_hello_bytes", max: max as u64 }
}

#[cfg(test)]
mod tests;
