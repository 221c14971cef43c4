//! Writes to all links what is new for them, and closes those that are to be closed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidewire_core::link::hub::{Hub, LinkId};
use tidewire_core::link::outbox::{FrameSink, WriteBatch};

use super::in_process::fed;
use super::{Peer, Shared};
use crate::clock::now_us;

impl Shared {
    /// Writes what is new, and closes what is to be closed.
    pub(super) fn settle(&self) {
        loop {
            let (touched, closing, retimed, interests, nodes, changes) = {
                let mut hub = self.hub.lock();
                let touched = hub.touched();
                // Looked up now: their numbers may soon be those of others.
                let closing = hub.closing().into_iter().map(|(at, reason)| (self.leaving(&hub, at), reason));
                (
                    touched,
                    closing.collect::<Vec<_>>(),
                    hub.retimed(),
                    hub.interests_changed(),
                    hub.counts().nodes,
                    hub.changes(),
                )
            };
            if self.nodes.swap(nodes, Ordering::Relaxed) != nodes
                && let Some(on_nodes) = self.on_nodes.get()
            {
                on_nodes();
            }
            if let Some(on_changes) = self.on_changes.get() {
                changes.into_iter().for_each(on_changes);
            }
            if interests {
                self.on_interests.read().iter().for_each(|on_interests| on_interests());
            }
            if retimed {
                self.wakeup.notify_one();
            }
            if touched.is_empty() && closing.is_empty() {
                return self.idle.tell();
            }
            for at in touched {
                self.flush(at);
            }
            for (leaving, reason) in closing {
                self.end(leaving, &reason);
            }
        }
    }

    pub(super) fn flush(&self, at: LinkId) {
        if let Some(peer) = self.peer(at) {
            self.flush_to(at, &peer);
        }
    }

    pub(super) fn flush_to(&self, at: LinkId, peer: &Arc<Peer>) {
        let take = |burst: &mut WriteBatch| self.take(at, peer, burst.bytes());
        match &**peer {
            Peer::Remote { socket, writing, end } => {
                if writing.flush(take, |burst| socket.try_write(burst.frames())).is_err() {
                    end.notify_one();
                }
            }
            Peer::Local { feed, writing } => {
                let Some(feed) = feed.upgrade() else { return };
                let fed = writing.flush(take, |burst| fed(&*feed, burst.frames()));
                debug_assert!(fed.is_ok(), "feeding does not fail");
                if feed.due_us() < self.sleeps_until_us.load(Ordering::Acquire) {
                    self.wakeup.notify_one();
                }
            }
        }
    }

    pub(super) fn take(&self, at: LinkId, peer: &Arc<Peer>, bytes: &mut Vec<u8>) -> bool {
        let mut hub = self.hub.lock();
        // The number may be that of another link by now. It can't become so while the hub is
        // locked.
        if !self.is_peer(at, peer) {
            return false;
        }
        let has_frames = hub.outbox(at).is_some_and(|out| out.take(bytes, self.batch.write_bytes()));
        if has_frames {
            hub.sent(at, now_us());
        }
        has_frames
    }

    pub(super) fn say(&self, line: &str) {
        self.log.line(line);
        if self.log.tick() < self.sleeps_until_us.load(Ordering::Acquire) {
            self.wakeup.notify_one();
        }
    }

    /// A link that is to be closed, and the name of its node.
    pub(super) fn leaving(&self, hub: &Hub, at: LinkId) -> (Option<Arc<Peer>>, String) {
        (self.peer(at), hub.name_of(at).to_owned())
    }

    pub(super) fn end(&self, (peer, name): (Option<Arc<Peer>>, String), reason: &str) {
        let who =
            if name.is_empty() { "a link that has not joined".to_owned() } else { format!("the link of {name:?}") };
        self.say(&format!("{who} is closed: {reason}"));
        match peer.as_deref() {
            Some(Peer::Remote { end, .. }) => end.notify_one(),
            Some(Peer::Local { feed, .. }) => {
                if let Some(feed) = feed.upgrade() {
                    feed.ended(reason, true);
                }
            }
            None => {}
        }
    }
}
