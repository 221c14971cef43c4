//! Idle wait of a hub: all calls have ended and their answers are flushed.

use std::sync::Arc;
use std::time::Duration;

use tidewire_core::link::hub::LinkId;
use tidewire_core::link::outbox::FlushMark;

use super::{HubHandle, Peer, Shared};
use crate::clock::now_us;
use crate::idle::within;

/// Bytes that a node has yet to read: those that waited for it when the last call ended. Later
/// bytes are not waited for, as they may have no end.
struct UnflushedBytes {
    at: LinkId,
    peer: Arc<Peer>,
    /// In the outbox.
    filled: FlushMark,
    /// It was taken out of it, and the node was asked whether it has read that.
    is_requested: bool,
}

impl HubHandle {
    /// Waits until no call is passed on any more, and the nodes have read what waited for them
    /// then; or the time is up: true if it is not. Nodes that have been silent for a heartbeat are
    /// not waited for, unless their sockets are full. Polled by whichever thread, it is done on
    /// that of the links. Dropping it gives up waiting.
    pub fn idle(&self, most: Option<Duration>) -> impl Future<Output = bool> + Send + use<> {
        let shared = Arc::clone(&self.shared);
        within(&self.shared.runtime, most, async move {
            let mut owed = None;
            shared.idle.until(|| shared.is_idle(&mut owed)).await;
        })
    }
}

impl Shared {
    fn is_idle(&self, owed: &mut Option<Vec<UnflushedBytes>>) -> bool {
        if owed.is_none() {
            *owed = self.owed();
        }
        let Some(owed) = owed else { return false };
        owed.retain_mut(|owed| !self.has_read(owed));
        owed.is_empty()
    }

    /// None: calls are passed on.
    fn owed(&self) -> Option<Vec<UnflushedBytes>> {
        if self.hub.lock().ending_calls() > 0 {
            return None;
        }
        let peers: Vec<_> = self.peers.read().iter().cloned().enumerate().collect();
        let mut hub = self.hub.lock();
        let owed = |(at, peer): (LinkId, Option<Arc<Peer>>)| {
            let peer = peer.filter(|peer| !matches!(**peer, Peer::Local { .. }))?;
            Some(UnflushedBytes { at, peer, filled: hub.outbox(at)?.filled(), is_requested: false })
        };
        let owed = peers.into_iter().filter_map(owed).collect();
        // Nothing that came meanwhile is left out.
        (hub.ending_calls() == 0).then_some(owed)
    }

    fn has_read(&self, owed: &mut UnflushedBytes) -> bool {
        if !self.is_peer(owed.at, &owed.peer) {
            return true;
        }
        {
            let mut hub = self.hub.lock();
            if owed.is_requested {
                return hub.has_read(owed.at);
            }
            if hub.outbox(owed.at).is_some_and(|out| !out.has_drained(&owed.filled)) {
                return false;
            }
            owed.is_requested = true;
            if !hub.ask(owed.at, now_us()) {
                return true;
            }
        }
        // The question goes behind what was taken.
        self.flush_to(owed.at, &owed.peer);
        false
    }
}
