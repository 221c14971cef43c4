//! Nodes with the name or the number of this one, which a split cluster may have.

use std::sync::atomic::Ordering;

use tidewire_proto::generated::errors::ErrorCode;

use super::Cluster;
use crate::cluster::BridgeError;
use crate::cluster::presence::{Presence, PresenceKind};

impl Cluster {
    pub(super) fn name_is_taken(&mut self, why: &[u8]) {
        let why = String::from_utf8_lossy(why);
        match self.beginning.take() {
            Some((ready, _)) => {
                let text = format!("{}: name: {:?}: {why}: choose another name", self.at.place, self.me.name);
                drop(ready.send(Err(BridgeError::new(ErrorCode::NameTaken, text))));
            }
            None => (self.log)(
                &format!("name: {:?}: {why}: other nodes reach the one that joined first", self.me.name),
                true,
            ),
        }
    }

    /// A presence message has the number of this node. The node that joined first keeps it.
    pub(super) async fn number_is_taken(&mut self, about: &Presence) {
        if self.me.since_us < about.since_us {
            return self.announce(self.me.written(PresenceKind::Here)).await;
        }
        if self.me.since_us == about.since_us {
            return;
        }
        let (name, place, number) = (&about.name, &self.at.place, self.me.number);
        let text = format!("{place}: node {name:?} joined before with the number {number} of this node: join again");
        match self.beginning.take() {
            Some((ready, _)) => drop(ready.send(Err(BridgeError::new(ErrorCode::LinkLost, text)))),
            None => (self.log)(&text, true),
        }
        self.at.known.store(u64::MAX, Ordering::Release);
        self.leaves = true;
    }

    /// A node with the name of this one, which joined before. While it is there, no other node
    /// reaches this one.
    pub(super) fn first_of_name(&self) -> Option<&Presence> {
        self.peers
            .values()
            .map(|peer| &peer.about)
            .find(|about| about.name == self.me.name && about.is_before(&self.me))
    }
}
