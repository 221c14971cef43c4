//! Nodes of other hubs: a bridge attaches a link for each of them. On this link it repeats what the
//! node says, and it passes everything that is sent to the node on to its hub.
//!
//! A call or a message from such a link goes to nodes of this hub alone, so that nothing goes in a
//! circle.

use std::collections::BTreeSet;

use super::routes::Route;
use super::{Hub, LinkId};
use crate::tree::SubscriptionId;

/// A subscription of a node of this hub, as the node made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionInterest {
    /// Which subscription it is; that of no other one, ever.
    pub key: SubscriptionId,
    /// The queue group, or an empty text.
    pub queue: String,
    /// Which subjects.
    pub pattern: String,
    /// The fields with which the node says something of itself.
    pub says: Vec<u8>,
    /// The subscription answers no calls.
    pub listens: bool,
}

impl Hub {
    /// A bridge stands for a node of another hub, which has this number there. Its link is as one
    /// of this process.
    pub fn connected_remote(&mut self, number: u32, secret: String, now_us: u64) -> LinkId {
        let at = self.connected_here(secret, now_us);
        if let Some(link) = self.link(at) {
            (link.number, link.remote, link.near) = (number, true, false);
        }
        at
    }

    /// The subscriptions of this hub's nodes, in the order of subscription, without those of its
    /// gateway and bridges.
    pub fn interests(&self) -> Vec<SubscriptionInterest> {
        let own = self.links.iter().flatten().filter(|link| !link.remote && !link.gateway);
        let keys = own.flat_map(|link| link.theirs.iter()).filter_map(|(_, route)| match route {
            Route::Subscription(key) => Some(*key),
            Route::To { .. } | Route::Fan(_) => None,
        });
        let mut found: Vec<SubscriptionInterest> = keys
            .filter_map(|key| {
                let one = self.tree.get(key)?;
                let (queue, pattern, says) = (one.queue.clone(), one.pattern.clone(), one.announcement.clone());
                Some(SubscriptionInterest { key, queue, pattern, says, listens: one.listens })
            })
            .collect();
        found.sort_unstable_by_key(|interest| interest.key);
        found
    }

    /// True if [`interests`](Self::interests) may have changed since the last call of this method.
    pub fn interests_changed(&mut self) -> bool {
        std::mem::take(&mut self.interests_changed)
    }

    /// Where a message of another hub goes: to the one subscription that it means, by its serial
    /// number, or to all outside of queue groups.
    pub(super) fn meant(&mut self, subject: &str, serial: u64) -> Vec<(LinkId, u64)> {
        let (mut links, mut one) = (BTreeSet::new(), None);
        self.tree.for_each_match_str(subject, |subscriber| {
            if subscriber.remote {
                return;
            }
            if subscriber.queue.is_empty() {
                links.insert(subscriber.link);
            } else if subscriber.key.is_some_and(|key| key.serial() == serial) {
                one = Some((subscriber.link, subscriber.id));
            }
        });
        self.found.clear();
        match serial {
            0 => links.into_iter().map(|link| (link, 0)).collect(),
            _ => one.into_iter().collect(),
        }
    }

    /// Calls that a link was given and has not answered.
    pub fn open_calls_of(&self, at: LinkId) -> usize {
        self.links.get(at).and_then(Option::as_ref).map_or(0, |link| link.ours.len())
    }

    pub(super) fn is_remote(&self, at: LinkId) -> bool {
        self.links.get(at).and_then(Option::as_ref).is_some_and(|link| link.remote)
    }
}
