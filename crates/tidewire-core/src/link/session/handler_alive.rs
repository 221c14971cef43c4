//! Timer of handler-alive notices: callers of open calls are notified that the handler still works.

use tidewire_proto::wire::{CallHead, Flags, Kind};

use super::{InboundExchange, Session};

/// The shortest interval of notices: a call with a short deadline must not make work for all
/// others.
const LEAST_US: u64 = 50_000;
/// Notices for each call with a deadline, until that deadline.
const PER_DEADLINE: u64 = 4;

/// Timer of one open call: the next notice that its handler is still working.
#[derive(Clone, Copy)]
pub(super) struct HandlerAliveTimer {
    pub(super) next_us: u64,
    every_us: u64,
}

impl<C> Session<C> {
    /// The time of the next notice to callers.
    pub fn telling_us(&self) -> u64 {
        self.telling_us
    }

    /// True if a notice to the callers of open calls is due. Then call
    /// [`still_at_work`](Self::still_at_work).
    pub fn is_telling_due(&self, now_us: u64) -> bool {
        now_us >= self.telling_us
    }

    /// Notifies callers whose calls have been open for some time, with the time for which the event
    /// loop has been blocked.
    pub fn still_at_work(&mut self, blocked_ms: u32, now_us: u64) {
        // A notice that is not read in time is worthless, so none is added to a full queue.
        let silent = self.out.bytes() > self.out.bytes_max() / 2;
        let (mut due, mut next) = (Vec::new(), u64::MAX);
        for (id, theirs) in self.theirs.iter_mut() {
            let InboundExchange::Open { lane, living, .. } = theirs else { continue };
            if now_us >= living.next_us {
                due.push((id, *lane));
                living.next_us = now_us.saturating_add(living.every_us);
            }
            next = next.min(living.next_us);
        }
        self.telling_us = next.max(now_us.saturating_add(LEAST_US));
        for (id, lane) in due.into_iter().filter(|_| !silent) {
            self.tell(Kind::Alive, Flags::NORMAL.in_lane(lane).with_answer(true), id, blocked_ms);
        }
    }

    /// The timer of a new call: the first notice comes after half of a heartbeat, or earlier if the
    /// deadline is near.
    pub(super) fn begin_living(&mut self, head: &[u8], now_us: u64) -> HandlerAliveTimer {
        let beat = self.heartbeat_ms.saturating_mul(500);
        let every_us = match CallHead::parse(head).map_or(0, |head| u64::from(head.deadline_ms)) {
            0 => beat,
            deadline_ms => beat.min(deadline_ms.saturating_mul(1_000) / PER_DEADLINE),
        };
        let every_us = every_us.max(LEAST_US);
        let next_us = now_us.saturating_add(every_us);
        self.telling_us = self.telling_us.min(next_us);
        HandlerAliveTimer { next_us, every_us }
    }
}
