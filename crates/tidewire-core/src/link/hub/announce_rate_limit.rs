//! The rate limit of announcements: a node may announce its whole allowance at once, and the same
//! amount again in each [`RESTORED_US`].
//!
//! Every announcement goes to all nodes that follow it, and each of them processes it. A node that
//! announces and withdraws without end would keep all others busy. The hub therefore reads nothing
//! more from such a node until its pause is over (virtual scheduling: ITU-T I.371, GCRA).

use super::{Hub, LinkId};

/// After so long a node may again announce its whole allowance.
const RESTORED_US: u64 = 4_000_000;

/// The time until which the announcements of a node are paid for.
#[derive(Default)]
pub(super) struct AnnounceRateLimit {
    /// When the whole allowance is available again.
    paid_until_us: u64,
}

impl AnnounceRateLimit {
    /// Counts an announcement of so many bytes, of at most `max` in all. Returns the end of the
    /// node's pause.
    pub(super) fn announced(&mut self, bytes: usize, max: usize, now_us: u64) -> u64 {
        let cost_us = RESTORED_US.saturating_mul(bytes as u64) / max.max(1) as u64;
        self.paid_until_us = self.paid_until_us.max(now_us).saturating_add(cost_us);
        self.paused_until_us()
    }

    fn paused_until_us(&self) -> u64 {
        self.paid_until_us.saturating_sub(RESTORED_US)
    }
}

impl Hub {
    /// The time until which the hub reads nothing more from a link, because its node has exceeded
    /// the rate limit. None: no pause.
    pub fn rests_until_us(&self, at: LinkId) -> Option<u64> {
        let link = self.links.get(at)?.as_deref()?;
        let until_us = link.announcements.pace.paused_until_us();
        (until_us > self.now_us && !link.here && !link.closing).then_some(until_us)
    }

    /// Work done so far, for callers that divide the time of the hub. The unit is one frame that it
    /// took or queued, or one KiB of these frames.
    pub fn work(&self) -> u64 {
        self.work
    }
}

#[cfg(test)]
mod tests;
