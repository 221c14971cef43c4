//! The memory budget of send queues, shared by all links.
//!
//! A link may fill as much as is left. One link that nobody reads takes half of all; several take
//! equal shares. Links that are read always have capacity (dynamic thresholds: Choudhury and Hahne,
//! IEEE/ACM Transactions on Networking 6(2), 1998).

use super::{Hub, Link, LinkId};

/// Bytes that each link may always queue, however much the other links use.
const LEAST_BYTES: usize = 16_384;
/// Queued bytes above which a link may be closed because of mandatory frames, while all links
/// together have no capacity.
const MUCH_BYTES: usize = 1 << 20;

impl Hub {
    /// A link, with its present capacity set.
    pub(super) fn link_with_capacity(&mut self, at: LinkId) -> Option<&mut Link> {
        let capacity = self.options.hub_queue_bytes.saturating_sub(self.queued).max(LEAST_BYTES);
        let link = self.link(at)?;
        link.out.share(capacity);
        Some(link)
    }

    /// Updates the totals after frames of a link were added or taken.
    pub(super) fn recount(&mut self, at: LinkId) {
        let Some(link) = self.links.get_mut(at).and_then(Option::as_deref_mut) else { return };
        let bytes = link.out.bytes();
        self.work += 1 + bytes.saturating_sub(link.queued) as u64 / 1_024;
        self.queued = (self.queued + bytes).saturating_sub(link.queued);
        link.queued = bytes;
    }

    /// True if a link has queued more than its share of the memory budget and does not read.
    pub(super) fn is_choked(&mut self, at: LinkId) -> bool {
        let is_full = self.queued > self.options.hub_queue_bytes;
        self.link(at).is_some_and(|link| link.out.is_choked() || is_full && link.out.bytes() > MUCH_BYTES)
    }

    /// Bytes that wait for all links.
    pub fn queued_bytes(&self) -> usize {
        self.queued
    }

    /// The limit that leaves no capacity for a link, as text for its own node.
    pub(super) fn full(&self, at: LinkId) -> String {
        self.limit_of(at, |link| link.bounds.queue_bytes.to_string())
    }

    /// The limit that leaves no capacity for a link, as text for another node that calls it.
    pub(super) fn full_callee(&self, at: LinkId) -> String {
        self.limit_of(at, |link| link.bounds.queue_bytes.of_callee())
    }

    fn limit_of(&self, at: LinkId, own: impl FnOnce(&Link) -> String) -> String {
        match self.links.get(at).and_then(Option::as_deref) {
            Some(link) if link.out.is_shared() => format!("hub_queue_bytes={}", self.options.hub_queue_bytes),
            Some(link) => own(link),
            None => String::new(),
        }
    }
}
