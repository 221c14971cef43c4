//! Keepalive of a link: pings, and the timeout of a silent peer.

/// When to send a ping, and when the other side has been silent for too long. Times are
/// microseconds.
#[derive(Clone, Debug)]
pub struct Keepalive {
    /// After so long without sending, a ping is due.
    ping_after_us: u64,
    /// After so long without hearing anything, the link is dead.
    dead_after_us: u64,
    sent_us: u64,
    received_us: u64,
}

/// The action that a link has to take now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepaliveAction {
    /// Nothing.
    Rest,
    /// Send a ping.
    Ping,
    /// Close: the other side has been silent for too long.
    Dead,
}

impl Keepalive {
    /// A link that both sides have just used. `theirs_ms` is the heartbeat that the other side
    /// stated.
    pub fn new(ours_ms: u64, theirs_ms: u64, now_us: u64) -> Self {
        Self {
            ping_after_us: theirs_ms.saturating_mul(500),
            dead_after_us: ours_ms.saturating_mul(2_000),
            sent_us: now_us,
            received_us: now_us,
        }
    }

    /// Records that a frame was sent.
    pub fn sent(&mut self, now_us: u64) {
        self.sent_us = self.sent_us.max(now_us);
    }

    /// Records that something was received.
    pub fn note_received(&mut self, now_us: u64) {
        self.received_us = self.received_us.max(now_us);
    }

    /// Returns the action that is due. [`KeepaliveAction::Ping`] counts as a ping that was sent.
    pub fn beat(&mut self, now_us: u64) -> KeepaliveAction {
        if now_us >= self.received_us.saturating_add(self.dead_after_us) {
            return KeepaliveAction::Dead;
        }
        if now_us >= self.sent_us.saturating_add(self.ping_after_us) {
            self.sent_us = now_us;
            return KeepaliveAction::Ping;
        }
        KeepaliveAction::Rest
    }

    /// True if the other side has been silent for half of the dead time. A peer that is alive pings
    /// within that time.
    pub fn is_silent(&self, now_us: u64) -> bool {
        now_us >= self.received_us.saturating_add(self.dead_after_us / 2)
    }

    /// The time of the next action of `beat`, if nothing is sent or received until then.
    pub fn next_us(&self) -> u64 {
        (self.sent_us.saturating_add(self.ping_after_us)).min(self.received_us.saturating_add(self.dead_after_us))
    }
}
