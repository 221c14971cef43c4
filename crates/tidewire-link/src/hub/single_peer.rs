//! The only node that has joined the hub of a node from elsewhere: the event loop of that node may
//! read its socket, as it is the one that handles most of what comes. As soon as anybody else
//! joins, the thread of the links reads again, so that a loop which is busy holds up nobody but
//! itself.

use std::io;
use std::sync::{Arc, Weak};

use tidewire_core::link::hub::LinkId;
use tidewire_core::link::outbox::{FrameSink, WriteBatch};
use tidewire_core::link::session::Fault;
use tidewire_proto::generated::errors::ErrorCode;
use tokio::io::Interest;
use tokio::sync::Notify;

use super::pending_joins::{PendingJoin, has_to_go};
use super::{Peer, Shared};
use crate::clock::{instant, now_us};
use crate::frame_reader::{FrameReader, ReadProgress};
use crate::socket::Socket;
use crate::socket::async_stream::AsyncStream;
use crate::socket::raw_stream::RawStream;
use crate::socket::read_owner::{ReadOwner, SharedSocket};
use crate::writer::SharedWriter;

/// Most reads when the thread of the links looks after a loop.
const CATCH_UP_READS: usize = 16;

/// The socket of a guest, for whoever has its reading.
struct SinglePeer {
    hub: Weak<Shared>,
    at: LinkId,
    peer: Arc<Peer>,
    turn: Arc<ReadOwner>,
}

impl SharedSocket for SinglePeer {
    fn turn(&self) -> &Arc<ReadOwner> {
        &self.turn
    }

    fn read(&self) -> Result<ReadProgress, Fault> {
        let Peer::Guest { plain, .. } = &*self.peer else { return Ok(ReadProgress::Closed) };
        self.hub
            .upgrade()
            .map_or(Ok(ReadProgress::Closed), |shared| shared.read_guest(self.at, plain, &self.turn, true))
    }

    fn ends(&self) {
        if let Peer::Guest { end, .. } = &*self.peer {
            end.notify_one();
        }
    }

    fn is_paused(&self) -> bool {
        // The hub bounds the frames that wait for the node.
        false
    }
}

impl Shared {
    /// The peer of a connection: a guest, if the only other peer is one node of this process.
    pub(super) fn peer_of(&self, socket: Socket) -> io::Result<Peer> {
        let (writing, end) = (SharedWriter::in_turns(), Notify::new());
        let is_alone = self.peers.read().iter().flatten().all(|peer| matches!(**peer, Peer::Local { .. }));
        if !is_alone || self.feeds().len() != 1 {
            return Ok(Peer::Remote { socket, writing, end });
        }
        Ok(match socket.into_plain()? {
            Ok(plain) => Peer::Guest {
                plain,
                writing: SharedWriter::new(),
                end,
                turn: ReadOwner::new(FrameReader::small(self.hello_bytes)),
            },
            Err(layered) => Peer::Remote { socket: Socket::Layered(layered), writing, end },
        })
    }

    /// The read ownership of the socket of the guest, if there is one.
    pub(super) fn guest_turn(&self) -> Option<Arc<ReadOwner>> {
        let peers = self.peers.read();
        peers
            .iter()
            .flatten()
            .find_map(|peer| if let Peer::Guest { turn, .. } = &**peer { Some(Arc::clone(turn)) } else { None })
    }

    /// Offers the loop of the node of this process the socket of the guest.
    pub(super) fn offer(self: &Arc<Self>) {
        let guest = self.peers.read().iter().enumerate().find_map(|(at, peer)| match peer {
            Some(peer) if matches!(**peer, Peer::Guest { .. }) => Some((at, Arc::clone(peer))),
            _ => None,
        });
        let (Some((at, peer)), [feed]) = (guest, &self.feeds()[..]) else { return };
        let Peer::Guest { plain, turn, .. } = &*peer else { return };
        let of = SinglePeer { hub: Arc::downgrade(self), at, peer: Arc::clone(&peer), turn: Arc::clone(turn) };
        ReadOwner::offer(Arc::new(of), plain, |reader| feed.offered(reader));
    }

    /// A loop hands on all that was read: it hears of what comes, not of what is left.
    fn read_guest(
        &self,
        at: LinkId,
        plain: &RawStream,
        turn: &ReadOwner,
        is_loop: bool,
    ) -> Result<ReadProgress, Fault> {
        turn.read(|reading: &mut FrameReader| {
            let filled = match reading.is_left() {
                true => ReadProgress::Some,
                false => match reading.fill(|room| plain.try_read(room)) {
                    Ok(ReadProgress::Closed) => return Err(gone()),
                    Ok(filled) => filled,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(ReadProgress::All),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(ReadProgress::Some),
                    Err(_) => return Err(gone()),
                },
            };
            let mut all = self.read(at, reading).all;
            while is_loop && !all {
                // While a loop reads, nobody else has to wait for what a guest says too often.
                all = self.read(at, reading).all;
            }
            if reading.is_small()
                && let Some(frame_max) = self.has_joined(at)
            {
                reading.widen(frame_max);
            }
            Ok(if all { filled } else { ReadProgress::Some })
        })
    }

    /// Reads the waiting bytes, although a loop may own the reading: the loop may be busy, and the
    /// guest must not count as silent then.
    fn catch_up(&self, at: LinkId, plain: &RawStream, turn: &ReadOwner) -> Result<(), Fault> {
        for _ in 0..CATCH_UP_READS {
            if self.read_guest(at, plain, turn, true)? != ReadProgress::Some {
                break;
            }
        }
        Ok(())
    }
}

/// Looks after a guest, from its first frame to its last.
pub(super) async fn serve(shared: Arc<Shared>, at: LinkId, peer: Arc<Peer>, greeting: PendingJoin) {
    if let Peer::Guest { plain, turn, .. } = &*peer {
        shared.offer();
        // The node is notified as for any other link, for every cause of the end.
        let _ = keep(&shared, at, &peer, greeting).await;
        turn.end();
        plain.shutdown();
    }
    shared.gone(at);
}

async fn keep(shared: &Arc<Shared>, at: LinkId, peer: &Arc<Peer>, greeting: PendingJoin) -> Result<(), Fault> {
    let Peer::Guest { plain, writing, end, turn } = &**peer else { return Ok(()) };
    let (mut watched, mut full, mut much, mut rests_until_us) = (AsyncStream::default(), false, false, None);
    let look_us = shared.heartbeat_ms.saturating_mul(500);
    let mut look = now_us() + look_us;
    let mut greeting = Some(greeting);
    loop {
        if greeting.is_some() && shared.has_joined(at).is_some() {
            greeting = None;
        }
        let reads = turn.is_of_links();
        tokio::select! {
            biased;
            () = end.notified() => return Ok(()),
            () = has_to_go(greeting.as_ref()) => {
                // A loop may have read its greeting meanwhile.
                if shared.has_joined(at).is_none() {
                    shared.turn_away(at);
                    return Ok(());
                }
            }
            () = turn.changed.notified() => {}
            () = writing.full.notified(), if !full => full = true,
            taken = shared.turn(!much, rests_until_us, watched.ready(plain, reads, full)) => {
                let _seat = taken.map_err(|_| gone())?;
                if full {
                    let mut done = Ok(());
                    watched.act(Interest::WRITABLE, || {
                        full = false;
                        let take = |burst: &mut WriteBatch| shared.take(at, peer, burst.bytes());
                        done = writing.resume(take, |burst| plain.try_write(burst));
                        Err(io::ErrorKind::WouldBlock.into())
                    });
                    done.map_err(|_| gone())?;
                    shared.idle.tell();
                }
                if reads || much {
                    let mut filled = Ok(ReadProgress::All);
                    watched.act(Interest::READABLE, || {
                        filled = shared.read_guest(at, plain, turn, !reads);
                        let all = matches!(filled, Ok(ReadProgress::All));
                        if all { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
                    });
                    much = filled? == ReadProgress::Some;
                    rests_until_us = if reads { shared.hub.lock().rests_until_us(at) } else { None };
                }
            }
            () = tokio::time::sleep_until(instant(look).into()) => {
                shared.catch_up(at, plain, turn)?;
                shared.offer();
                look = now_us() + look_us;
            }
        }
    }
}

fn gone() -> Fault {
    Fault::Told { number: ErrorCode::LinkLost.number(), text: "the node closed the connection".to_owned() }
}
