//! Waits until a hub passes on no calls any more.

use std::sync::Arc;
use std::time::Duration;

use tidewire_core::link::hub::LinkId;
use tidewire_core::link::outbox::Filled;

use super::{HubHandle, Peer, Shared};
use crate::idle::within;
use crate::writing::Writing;

/// What a socket has to take: all that waited for it when the last call had ended. What comes later is not waited for, as it may
/// have no end.
struct Owed {
    at: LinkId,
    peer: Arc<Peer>,
    /// In the outbox.
    filled: Filled,
    /// Taken out of it, in so many writes.
    writes: Option<u64>,
}

impl HubHandle {
    /// Waits until no call is passed on any more, and the sockets have taken what waited for them then; or the time is up: true if it
    /// is not. Polled by whichever thread, it is done on that of the links. Dropping it gives up waiting.
    pub fn idle(&self, most: Option<Duration>) -> impl Future<Output = bool> + Send + use<> {
        let shared = Arc::clone(&self.shared);
        within(&self.shared.runtime, most, async move {
            let mut owed = None;
            shared.idle.until(|| shared.is_idle(&mut owed)).await;
        })
    }
}

impl Shared {
    fn is_idle(&self, owed: &mut Option<Vec<Owed>>) -> bool {
        if owed.is_none() {
            *owed = self.owed();
        }
        let Some(owed) = owed else { return false };
        owed.retain_mut(|owed| !self.has_taken(owed));
        owed.is_empty()
    }

    /// None: calls are passed on.
    fn owed(&self) -> Option<Vec<Owed>> {
        let peers: Vec<_> = self.peers.read().iter().cloned().enumerate().collect();
        let mut hub = self.hub.lock();
        let owed = |(at, peer): (LinkId, Option<Arc<Peer>>)| {
            let peer = peer.filter(|peer| peer.writing().is_some())?;
            Some(Owed { at, peer, filled: hub.outbox(at)?.filled(), writes: None })
        };
        let owed = peers.into_iter().filter_map(owed).collect();
        (hub.ending_calls() == 0).then_some(owed)
    }

    fn has_taken(&self, owed: &mut Owed) -> bool {
        let Some(writing) = owed.peer.writing() else { return true };
        if owed.writes.is_none() {
            let mut hub = self.hub.lock();
            if !self.is_peer(owed.at, &owed.peer) {
                return true;
            }
            if hub.outbox(owed.at).is_some_and(|out| !out.has_given(&owed.filled)) {
                return false;
            }
        }
        let writes = *owed.writes.get_or_insert_with(|| writing.begun());
        let has_taken = writing.has_written(writes);
        if writing.is_noted() {
            // Somebody had something to write while it was looked at here.
            self.flush_to(owed.at, &owed.peer);
        }
        has_taken
    }
}

impl Peer {
    /// What writes to its socket, if it has one.
    fn writing(&self) -> Option<&Writing> {
        match self {
            Self::Remote { writing, .. } | Self::Guest { writing, .. } => Some(writing),
            Self::Local { .. } => None,
        }
    }
}
