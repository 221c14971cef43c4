use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::{Flags, Kind};

use super::super::gathering::Batch;
use super::super::heart::Beat;
use super::{Hub, Link, LinkId};

impl Hub {
    /// Does what time asks for, on all links.
    pub fn tick(&mut self, now_us: u64) {
        for at in 0..self.links.len() {
            let Some(link) = self.links[at].as_mut() else { continue };
            if link.closing || link.here {
                continue;
            }
            let late = link.greeting_until_us.is_some_and(|until| now_us >= until);
            let gathered = now_us >= link.gathering.until_us();
            let beat = link.heart.beat(now_us);
            if gathered {
                self.touch(at);
            }
            match beat {
                _ if late => self.close(at, ErrorCode::LimitExceeded, "link_greeting_ms: no HELLO came in time"),
                Beat::Rest => {}
                Beat::Ping if self.is_greeting(at) => {}
                Beat::Ping => self.tell(at, Kind::Ping, Flags::URGENT, 1, &[]),
                Beat::Dead => {
                    let ms = self.options.heartbeat_ms;
                    let text = format!("link_heartbeat_ms={ms}: nothing was heard for twice this time");
                    self.close(at, ErrorCode::LinkLost, &text);
                }
            }
        }
        self.close_choked();
    }

    /// When [`tick`](Self::tick) has something to do next.
    pub fn next_us(&self) -> u64 {
        let of = |link: &Link| {
            let due = link.heart.next_us().min(link.gathering.until_us());
            due.min(link.greeting_until_us.unwrap_or(u64::MAX))
        };
        self.links
            .iter()
            .flatten()
            .filter(|link| !link.closing && !link.here)
            .map(|link| of(link))
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Whether [`next_us`](Self::next_us) may be earlier than it was when this was asked before: a node has stated its heartbeat.
    pub fn retimed(&mut self) -> bool {
        std::mem::take(&mut self.retimed)
    }

    /// Whether what waits for a link is to wait for more, so that it makes one write. [`next_us`](Self::next_us) knows until when.
    pub fn holds(&mut self, at: LinkId, now_us: u64) -> bool {
        let batch = self.options.batch;
        self.link(at).is_some_and(|link| link.gathering.holds(&batch, link.out.waiting(), now_us))
    }

    /// How much it writes at once to a link.
    pub fn batch(&self) -> Batch {
        self.options.batch
    }

    fn is_greeting(&self, at: LinkId) -> bool {
        self.links.get(at).and_then(Option::as_ref).is_some_and(|link| link.greeting_until_us.is_some())
    }
}
