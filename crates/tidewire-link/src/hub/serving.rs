//! Looks after one link over a socket, from its first frame to its last.

use std::io;
use std::sync::Arc;

use tidewire_core::link::hub::LinkId;
use tidewire_core::link::outbox::{Burst, Taker};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::{self, Flags, Kind};

use super::{Peer, Shared, guest, secret};
use crate::clock::now_us;
use crate::reading::{Filled, Reading};
use crate::socket::Socket;
use crate::turn::Elsewhere;

impl Shared {
    pub(super) fn accept(self: &Arc<Self>, socket: Socket) {
        let (at, most) = {
            let mut hub = self.hub.lock();
            let at = hub.connected(secret(), now_us());
            if let Some(at) = at.filter(|_| socket.is_near()) {
                hub.is_near(at);
            }
            (at, hub.links_max())
        };
        let Some(at) = at else {
            (self.log)(&format!("hub_links={most}: a node was turned away, as many as possible are joined"));
            turn_away(&socket, most);
            return;
        };
        // While there are others, the loop that may read for the guest does not.
        let beside_guest = self.guest_turn().map(|turn| turn.elsewhere());
        let Ok(peer) = self.peer_of(socket) else { return self.gone(at) };
        let peer = Arc::new(peer);
        self.keep(at, Arc::clone(&peer));
        if let Peer::Guest { .. } = &*peer {
            tokio::spawn(guest::serve(Arc::clone(self), at, peer));
        } else {
            tokio::spawn(serve(Arc::clone(self), at, peer, beside_guest));
        }
    }

    pub(super) fn read(&self, at: LinkId, reading: &mut Reading) {
        let now = now_us();
        {
            let mut hub = self.hub.lock();
            if let Err(error) = reading.frames(|frame| hub.received(at, frame, now)) {
                hub.garbled(at, &error);
            }
        }
        self.settle();
    }
}

async fn serve(shared: Arc<Shared>, at: LinkId, peer: Arc<Peer>, _beside_guest: Option<Elsewhere>) {
    let Peer::Remote { socket, writing, end } = &*peer else { return };
    let mut reading = Reading::new(shared.hub.lock().frame_bytes());
    let mut full = false;
    loop {
        tokio::select! {
            biased;
            () = end.notified() => break,
            () = writing.full.notified(), if !full => full = true,
            ready = socket.writable(), if full => {
                full = false;
                let take = |burst: &mut Burst| shared.take(at, &peer, burst.bytes());
                if ready.is_err() || writing.resume(take, |burst| socket.try_write(burst.frames())).is_err() {
                    break;
                }
                shared.idle.tell();
            }
            ready = socket.readable() => {
                if ready.is_err() {
                    break;
                }
                match reading.fill(|room| socket.try_read(room)) {
                    Ok(Filled::All) => {
                        socket.drained();
                        shared.read(at, &mut reading);
                    }
                    Ok(Filled::Some) => shared.read(at, &mut reading),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                        let leaving = shared.leaving(&shared.hub.lock(), at);
                        shared.end(leaving, &error.to_string());
                        break;
                    }
                    Ok(Filled::Closed) | Err(_) => break,
                }
            }
        }
    }
    shared.gone(at);
}

/// Says that as many nodes as possible are joined, as far as that is possible at once.
fn turn_away(socket: &Socket, most: usize) {
    let text = format!(
        "hub_links={most}: as many nodes as possible have joined this hub: raise the limit there, or join later"
    );
    let number = ErrorCode::LimitExceeded.number().to_le_bytes();
    let head = |head: &mut Vec<u8>| {
        head.extend_from_slice(&number);
        Ok(())
    };
    let mut frame = Vec::new();
    if wire::write(&mut frame, Kind::Error, Flags::URGENT, 0, head, text.as_bytes()).is_ok() {
        // Whoever does not hear it finds the connection closed.
        let _ = socket.try_write(&frame);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::time::{Duration, Instant};

    use tidewire_core::link::hub::HubOptions;
    use tidewire_proto::wire::WireError;
    use tokio::net::UnixStream;

    use super::*;
    use crate::hub::HubHandle;
    use crate::runtime::Runtime;

    const SOON: Duration = Duration::from_secs(30);

    /// A link of the hub, and the other end of it.
    fn connected(hub: &HubHandle) -> std::os::unix::net::UnixStream {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("there are descriptors");
        ours.set_nonblocking(true).expect("it is a socket");
        theirs.set_read_timeout(Some(SOON)).expect("it is a socket");
        let shared = Arc::clone(&hub.shared);
        let taken = hub.shared.runtime.block_on(async move {
            let socket = UnixStream::from_std(ours).expect("it is a socket");
            // Nothing is written before the runtime has heard that it can be.
            socket.writable().await.expect("it is open");
            shared.accept(Socket::Unix(socket));
        });
        taken.expect("the thread of links runs");
        theirs
    }

    fn until(holds: impl Fn() -> bool) {
        let end = Instant::now() + SOON;
        while !holds() {
            assert!(Instant::now() < end, "it does not come to that");
            std::thread::yield_now();
        }
    }

    #[test]
    fn whoever_still_writes_to_a_lost_link_takes_nothing_of_the_next_one_with_its_number() {
        let runtime = Runtime::start("hub").expect("a thread can be started");
        let hub = HubHandle::new(&runtime, HubOptions::new("hub"), |_| {});
        let lost = connected(&hub);
        let peer = hub.shared.peer(0).expect("it is the first one");
        drop(lost);
        until(|| hub.shared.peer(0).is_none());
        let mut next = connected(&hub);
        until(|| hub.shared.peer(0).is_some());
        let broken = WireError::Unexpected { kind: Kind::Call.name(), problem: "it is none" };
        hub.shared.hub.lock().garbled(0, &broken);
        // As a thread does that had looked the link up, and was held up.
        hub.shared.flush_to(0, &peer);
        hub.shared.settle();
        let mut said = Vec::new();
        next.read_to_end(&mut said).expect("the hub closes it");
        assert!(!said.is_empty(), "the node is not told why its link is closed");
    }
}
