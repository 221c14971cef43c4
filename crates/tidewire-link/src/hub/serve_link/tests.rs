//! Links of a hub at their ends.

use std::io::Read as _;
use std::time::{Duration, Instant};

use tidewire_core::link::hub::HubOptions;
use tidewire_proto::wire::Kind;
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
        let greeting = shared.greetings.begin(place_of(None));
        shared.accept(Socket::Unix(socket), greeting);
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
fn a_writer_of_a_lost_link_takes_nothing_of_the_next_link_with_its_number() {
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
