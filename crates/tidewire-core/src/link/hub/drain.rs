//! The drain of a hub: it waits until its nodes have read all forwarded frames.

use tidewire_proto::wire::{Flags, Kind};

use super::super::session::ARRIVAL;
use super::{Hub, LinkId};

impl Hub {
    /// Asks a node to confirm that it has read everything taken from its send queue so far. Returns
    /// false without asking in three cases: nothing was sent since its last sign of life, it has
    /// been silent for a heartbeat, or its link ends.
    pub fn ask(&mut self, at: LinkId, now_us: u64) -> bool {
        let Some(link) = self.link(at) else { return false };
        let greeting = link.greeting_until_us.is_some();
        if !link.fresh || link.closing || link.here || greeting || link.heart.is_silent(now_us) {
            return false;
        }
        link.has_read = false;
        self.tell(at, Kind::Ping, Flags::URGENT, ARRIVAL, &[]);
        true
    }

    /// True if a node has answered the [question](Self::ask) if it has read everything, or if its
    /// link has gone.
    pub fn has_read(&mut self, at: LinkId) -> bool {
        self.link(at).is_none_or(|link| link.has_read || link.closing)
    }

    pub(super) fn pinged(&mut self, at: LinkId, number: u64) {
        if let Some(link) = self.link(at) {
            link.fresh = false;
            link.has_sent_all |= link.leaves && number >= ARRIVAL;
        }
        self.tell(at, Kind::Pong, Flags::URGENT, number, &[]);
    }

    pub(super) fn answered_ping(&mut self, at: LinkId, number: u64) {
        if let Some(link) = self.link(at).filter(|_| number == ARRIVAL) {
            link.has_read = true;
        }
    }
}
