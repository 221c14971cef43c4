//! Timers of a hub: handshake timeouts, heartbeats and delayed flushes of its links.

use std::cmp::Reverse;

use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::{Flags, Kind};

use super::super::flush_policy::Batch;
use super::super::keepalive::KeepaliveAction;
use super::{Hub, Link, LinkId};

impl Hub {
    /// Does what time asks for, on all links.
    pub fn tick(&mut self, now_us: u64) {
        self.now_us = self.now_us.max(now_us);
        for (due_us, at) in self.take_due(now_us) {
            let Some(link) = self.link(at) else { continue };
            // A node of this process needs no heartbeat, even if the process has stood still for
            // long.
            if !link.is_due(due_us) || link.closing || link.here {
                continue;
            }
            let late = link.greeting_until_us.is_some_and(|until| now_us >= until);
            let beat = link.heart.beat(now_us);
            match beat {
                _ if late => self.greeting_is_over(at),
                KeepaliveAction::Rest => {}
                KeepaliveAction::Ping if !self.has_joined(at) => {}
                KeepaliveAction::Ping => self.tell(at, Kind::Ping, Flags::URGENT, 1, &[]),
                KeepaliveAction::Dead => {
                    let ms = self.options.heartbeat_ms;
                    let text = format!("link_heartbeat_ms={ms}: nothing was heard for twice this time");
                    self.close(at, ErrorCode::LinkLost, &text);
                }
            }
            self.look_at(at);
        }
        self.close_choked();
    }

    fn take_due(&mut self, now_us: u64) -> Vec<(u64, LinkId)> {
        let mut due = Vec::new();
        while let Some(&Reverse(next)) = self.due.peek()
            && next.0 <= now_us
        {
            self.due.pop();
            due.push(next);
        }
        due
    }

    /// The next time at which [`tick`](Self::tick) has to act or examine a link. Later frames may
    /// have postponed the action.
    pub fn next_us(&self) -> u64 {
        self.due.peek().map_or(u64::MAX, |Reverse((due_us, _))| *due_us)
    }

    /// Schedules the examination of a link. Only an earlier time is noted; a later one is found
    /// when the link is examined.
    pub(super) fn look_at(&mut self, at: LinkId) {
        let Some(link) = self.link(at) else { return };
        let due_us = link.due_us();
        if due_us < link.beat_at_us {
            link.beat_at_us = due_us;
            self.due.push(Reverse((due_us, at)));
        }
    }

    /// True if [`next_us`](Self::next_us) may be earlier than before the last call of this method,
    /// because a node has stated its heartbeat.
    pub fn retimed(&mut self) -> bool {
        std::mem::take(&mut self.retimed)
    }

    /// How much it writes at once to a link.
    pub fn batch(&self) -> Batch {
        self.options.batch
    }
}

impl Link {
    /// When it has to be looked at: for its greeting or heartbeat. One of this process has neither.
    fn due_us(&self) -> u64 {
        if self.here || self.closing {
            return u64::MAX;
        }
        self.heart.next_us().min(self.greeting_until_us.unwrap_or(u64::MAX))
    }

    /// Removes a noted timer, and returns true if the link is to be examined at this time.
    fn is_due(&mut self, due_us: u64) -> bool {
        let is_due = self.beat_at_us == due_us;
        if is_due {
            self.beat_at_us = u64::MAX;
        }
        is_due
    }
}
