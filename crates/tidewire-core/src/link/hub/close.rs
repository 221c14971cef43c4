//! Ends of exchanges and links: the hub cancels, closes and releases the routes that a node had
//! open.

use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::{Flags, Kind};

use super::routes::{ReverseRoute, Route};
use super::{Change, Hub, LinkId};
use crate::tree::SubscriptionId;

impl Hub {
    /// Ends an exchange or a subscription that a node gives up.
    pub(super) fn end_exchange(&mut self, at: LinkId, id: u64) {
        let Some(link) = self.link(at) else { return };
        match link.theirs.remove(id) {
            Some(route) => self.end_route(route),
            // The hub may be answering it itself.
            None => link.out.drop_transfer(id, true),
        }
    }

    /// Ends an exchange of a node that has left, for the other side.
    fn end_route(&mut self, route: Route) {
        match route {
            Route::To { link, id, lane, .. } => {
                if let Some(ReverseRoute::Call { subscription, .. }) = self.cancel(link, id, lane) {
                    self.finished(subscription);
                }
            }
            Route::Subscription(key) => {
                self.course = None;
                let Some(subscriber) = self.tree.remove(key) else { return };
                self.interests_changed |= !subscriber.remote;
                if let Some(link) = self.link(subscriber.link) {
                    link.subscriptions -= 1;
                }
                self.forget_announcement(key, &subscriber);
            }
            Route::Fan(fan) => {
                for receiver in fan.to {
                    self.cancel(receiver.link, receiver.id, fan.lane);
                }
            }
        }
    }

    /// Ends an exchange of the hub, and tells the node that was to answer.
    pub(super) fn cancel(&mut self, to: LinkId, id: u64, lane: u8) -> Option<ReverseRoute> {
        let link = self.link(to)?;
        let back = link.ours.retire(id)?;
        link.out.control_last(Kind::Cancel, Flags::NORMAL.in_lane(lane), id);
        self.touch(to);
        Some(back)
    }

    /// Ends an exchange that can't go on, for both sides.
    pub(super) fn give_up(&mut self, at: LinkId, id: u64, code: ErrorCode, text: &str) {
        let Some(route) = self.link(at).and_then(|link| link.theirs.remove(id)) else { return };
        let lane = if let Route::To { lane, .. } = route { lane } else { Flags::NORMAL.lane() as u8 };
        self.end_route(route);
        self.counts.refused += 1;
        self.put_fail(at, id, lane, code, text);
    }

    /// A node takes no new calls.
    pub(super) fn leaves(&mut self, at: LinkId) {
        let Some(link) = self.link(at) else { return };
        link.leaves = true;
        let of = |route: &Route| if let Route::Subscription(key) = route { Some(*key) } else { None };
        let keys: Vec<SubscriptionId> = link.theirs.iter().filter_map(|(_, route)| of(route)).collect();
        for key in keys {
            self.end_route(Route::Subscription(key));
        }
    }

    /// A call has ended at the subscription that it went to.
    pub(super) fn finished(&mut self, subscription: SubscriptionId) {
        if let Some(subscriber) = self.tree.get_mut(subscription) {
            subscriber.in_progress = subscriber.in_progress.saturating_sub(1);
            subscriber.is_full = false;
        }
    }

    pub(super) fn close(&mut self, at: LinkId, code: ErrorCode, text: &str) {
        if self.link(at).is_some_and(|link| !link.closing) {
            self.put(at, Kind::Error, Flags::URGENT, 0, &code.number().to_le_bytes(), text.as_bytes());
            self.end_link(at, format!("{}: {text}", code.as_str()));
        }
    }

    /// Nothing is taken from a link any more, and what its node had open ends at once.
    pub(super) fn end_link(&mut self, at: LinkId, reason: String) {
        let Some(link) = self.link(at) else { return };
        if !link.closing {
            link.closing = true;
            self.closing.push((at, reason));
            self.release(at);
        }
    }

    /// Closes the links that ask for answers and don't read them.
    pub(super) fn close_choked(&mut self) {
        while let Some(at) = self.choked.pop() {
            if self.link(at).is_none() {
                continue;
            }
            let is_own = self.link(at).is_some_and(|link| link.out.is_choked());
            let own = |link: &mut super::Link| link.bounds.queue_bytes.to_string();
            let limit = match self.link(at).filter(|_| is_own) {
                Some(link) => own(link),
                None => format!("hub_queue_bytes={}", self.options.hub_queue_bytes),
            };
            let text = format!("{limit}: the node asks for more than it reads");
            self.close(at, ErrorCode::LimitExceeded, &text);
        }
    }

    /// Ends what a node had open, on both sides, and forgets its name.
    pub(super) fn release(&mut self, at: LinkId) {
        let Some(link) = self.link(at) else { return };
        let (number, theirs, ours) = (link.number, link.theirs.drain(), link.ours.drain());
        let (name, known_by) = (link.name.clone(), std::mem::take(&mut link.known_by));
        let goodbye = link.leaves;
        if self.names.get(&name) == Some(&at) {
            self.names.remove(&name);
            self.unbind(at);
            self.keep_name(at);
            self.note(&name, |node| Change::Left { node, goodbye });
        }
        for (_, route) in theirs {
            self.end_route(route);
        }
        for (own, back) in ours {
            match back {
                ReverseRoute::Call { link, id, subscription, lane, .. } => {
                    self.finished(subscription);
                    self.fail(link, id, lane);
                }
                ReverseRoute::Published { link, id } => self.fan_requested(link, id, (at, own), None),
            }
        }
        self.forget_node(number, known_by);
    }

    /// The node that was to answer is lost.
    fn fail(&mut self, at: LinkId, id: u64, lane: u8) {
        if self.link(at).and_then(|link| link.theirs.remove(id)).is_some() {
            self.put_fail(at, id, lane, ErrorCode::LinkLost, "the link to the node that was to answer is lost");
        }
    }
}
