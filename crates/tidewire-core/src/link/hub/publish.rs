//! Publishing: the hub finds the receivers of a message and passes short messages and long payloads
//! on to them.

use std::collections::BTreeMap;

use tidewire_proto::generated::limits;
use tidewire_proto::wire::{self, Fields, Flags, Frame, Kind, PublishHead, WireError};

use crate::federation::{HUBS, HubPath, MESSAGE_ID, MESSAGE_ID_BYTES};

use super::super::flow_control::FlowWindow;
use super::super::session::taken_slot;
use super::calls::{OF_HUB, OF_NODE, names_a_caller};
use super::routes::{Fanout, Receiver, ReverseRoute, Route, Subscriber};
use super::{Hub, LinkId, next_draw};

/// For how long a message of another hub is remembered, so that it is not delivered twice.
pub(super) const CROSSED_SPAN_US: u64 = 120_000_000;
/// The most messages of other hubs that are remembered.
pub(super) const CROSSED_MAX: usize = 65_536;

/// Where messages of one link with one head go. Most messages have the head of the one before.
pub(super) struct PublishRoute {
    from: LinkId,
    head: Vec<u8>,
    to: Vec<LinkId>,
}

impl Hub {
    /// Passes a message on that differs from the last one in its payload alone. False: it has to be
    /// looked at.
    pub(super) fn publish_again(&mut self, at: LinkId, frame: &Frame<'_>) -> bool {
        let flags = frame.flags;
        let is_same = |course: &mut PublishRoute| course.from == at && *course.head == *frame.head;
        if flags.more() || flags.answer() || flags.compressed() {
            return false;
        }
        let Some(course) = self.course.take_if(is_same) else { return false };
        let Some(number) = self.link(at).map(|link| link.number) else { return false };
        self.message += 1;
        for &to in &course.to {
            self.publish_to(to, 0, at, number, frame);
        }
        self.course = Some(course);
        true
    }

    pub(super) fn publish(&mut self, at: LinkId, frame: &Frame<'_>) -> Result<(), WireError> {
        let head = PublishHead::parse(frame.head)?;
        let (id, more) = (frame.id, frame.flags.more());
        let Some(link) = self.link(at) else { return Ok(()) };
        let (grant, number) = (link.grant, link.number);
        let forged = !link.gateway && !link.remote && names_a_caller(&head.fields).is_some();
        if more {
            // Even one that goes to nobody has a route: its sender waits for windows.
            let mut passing = FlowWindow::default();
            passing.take(frame)?;
            let fan = Fanout::new(Vec::new(), frame.flags.lane(), passing);
            link.theirs.insert(id, Route::Fan(Box::new(fan))).map_err(|taken| taken_slot("PUBLISH", taken))?;
        }
        let owned = [OF_HUB, OF_NODE].iter().any(|prefix| head.subject.starts_with(prefix));
        let forged = forged || !self.states_its_path(at, &head.fields);
        if owned || forged || !self.options.access.may_publish(grant, head.subject) {
            self.counts.refused += 1;
            return Ok(());
        }
        // After the checks: a message that is refused hides no other one of its id.
        if !head.fields.is_empty() && self.has_crossed_before(&head.fields) {
            return Ok(());
        }
        self.message += 1;
        let (mut receivers, to) = match self.is_remote(at) {
            true => (Vec::new(), self.meant(head.subject, head.to)),
            false => (Vec::new(), self.receivers(head.subject, Some(at))),
        };
        if !more && head.to == 0 && self.found.is_empty() {
            // Without queue groups the next message takes the same route.
            let to = to.iter().map(|(to, _)| *to).collect();
            self.course = Some(PublishRoute { from: at, head: frame.head.to_vec(), to });
        }
        for (to, subscription) in to {
            if let Some(copy) = self.publish_to(to, subscription, at, number, frame) {
                receivers.push(Receiver { link: to, id: copy, requested: 0 });
            }
        }
        if more && let Some(Route::Fan(fan)) = self.link(at).and_then(|link| link.theirs.get(id)) {
            fan.to = receivers;
        }
        Ok(())
    }

    /// True for a message of another hub that has passed this one, or came another way before.
    fn has_crossed_before(&mut self, fields: &Fields<'_>) -> bool {
        let Some(path) = fields.text(HUBS) else { return false };
        if HubPath::parse(path).has(&self.options.name) {
            return true;
        }
        let Some(id) = fields.text(MESSAGE_ID).filter(|id| id.len() <= MESSAGE_ID_BYTES) else { return false };
        let came_before = self.crossed.find(id, self.now_us).is_some();
        if !came_before {
            self.crossed.insert(id, 0, self.now_us);
        }
        came_before
    }

    /// The links that a message goes to, each with the subscription that is meant, or 0 for all
    /// outside of queue groups.
    ///
    /// Its sender has given it to its own subscriptions, and to a member of each queue group that
    /// it has one of.
    pub(super) fn receivers(&mut self, subject: &str, sender: Option<LinkId>) -> Vec<(LinkId, u64)> {
        let mut plain = Vec::new();
        let remote = sender.is_some_and(|at| self.is_remote(at));
        // The tree lends its values for the length of a visit only, so that members of groups are
        // collected by key.
        let mut keys = std::mem::take(&mut self.found);
        keys.clear();
        self.tree.for_each_match_str(subject, |subscriber| {
            if remote && subscriber.remote {
                return;
            }
            if subscriber.queue.is_empty() {
                if Some(subscriber.link) != sender {
                    plain.push((subscriber.link, 0));
                }
            } else {
                keys.extend(subscriber.key);
            }
        });
        plain.sort_unstable();
        plain.dedup();
        if !keys.is_empty() {
            let mut groups: BTreeMap<(&str, &str), Vec<&Subscriber>> = BTreeMap::new();
            for subscriber in keys.iter().filter_map(|&key| self.tree.get(key)) {
                groups.entry((&subscriber.queue, &subscriber.pattern)).or_default().push(subscriber);
            }
            for members in groups.values() {
                if members.iter().any(|member| Some(member.link) == sender) {
                    continue;
                }
                let draw = next_draw(&mut self.draw);
                let chosen = members[(draw % members.len() as u64) as usize];
                plain.push((chosen.link, chosen.id));
            }
        }
        self.found = keys;
        plain
    }

    /// Passes a message on; the id of the exchange if it has a long payload.
    fn publish_to(&mut self, to: LinkId, subscription: u64, at: LinkId, number: u32, frame: &Frame<'_>) -> Option<u64> {
        self.introduce(to, at);
        let message = self.message;
        let link = self.link_with_capacity(to)?;
        let to_number = if link.hub.is_some() && subscription == 0 { message } else { subscription };
        let opened = match frame.flags.more() {
            _ if !link.can_take(frame) => None,
            true => link.ours.insert(ReverseRoute::Published { link: at, id: frame.id }).ok(),
            false => Some(0),
        };
        let passed = opened.and_then(|id| link.out.forward(frame.bytes, frame.flags.lane(), id).ok());
        let Some(bytes) = passed else {
            opened.map(|id| link.ours.remove(id));
            self.counts.dropped += 1;
            return None;
        };
        wire::set_route(bytes, number, to_number);
        self.counts.published += 1;
        self.counts.forwarded += 1;
        self.touch(to);
        opened
    }

    /// A chunk of a long published payload.
    pub(super) fn fan(&mut self, at: LinkId, frame: &Frame<'_>) -> Result<(), WireError> {
        let Some(Route::Fan(fan)) = self.link(at).and_then(|link| link.theirs.get(frame.id)) else { return Ok(()) };
        if !fan.passing.take(frame)? {
            return Ok(());
        }
        fan.received += frame.payload.len() as u64;
        let (mut receivers, lane, last) = (std::mem::take(&mut fan.to), fan.lane, !frame.flags.more());
        receivers.retain(|receiver| self.fan_to(receiver, lane, frame, last));
        if last {
            self.link(at).map(|link| link.theirs.remove(frame.id));
        } else if let Some(Route::Fan(fan)) = self.link(at).and_then(|link| link.theirs.get(frame.id)) {
            fan.to = receivers;
            self.pace(at, frame.id);
        }
        Ok(())
    }

    /// Passes a chunk on to one receiver. False: it gets no more.
    fn fan_to(&mut self, receiver: &Receiver, lane: u8, frame: &Frame<'_>, last: bool) -> bool {
        let fits = self.link(receiver.link).is_some_and(|link| link.can_take(frame));
        if !fits || !self.pass(receiver.link, receiver.id, lane, frame) {
            self.counts.dropped += 1;
            self.cancel(receiver.link, receiver.id, lane);
            return false;
        }
        if last && let Some(link) = self.link(receiver.link) {
            link.ours.retire(receiver.id);
            link.out.ends(lane.into(), receiver.id);
        }
        true
    }

    /// A receiver of a long payload gives a window, or refuses the rest (None).
    pub(super) fn fan_requested(&mut self, at: LinkId, id: u64, receiver: (LinkId, u64), further: Option<u32>) {
        let Some(Route::Fan(fan)) = self.link(at).and_then(|link| link.theirs.get(id)) else { return };
        let is_it = |other: &Receiver| (other.link, other.id) == receiver;
        match further {
            None => fan.to.retain(|other| !is_it(other)),
            Some(bytes) => {
                for other in fan.to.iter_mut().filter(|other| is_it(other)) {
                    other.requested += u64::from(bytes);
                }
            }
        }
        self.pace(at, id);
    }

    /// Gives the sender of a long payload a window, if its receivers take more.
    fn pace(&mut self, at: LinkId, id: u64) {
        let Some(Route::Fan(fan)) = self.link(at).and_then(|link| link.theirs.get(id)) else { return };
        let lane = Flags::NORMAL.in_lane(fan.lane).with_answer(true);
        if let Some(bytes) = fan.grant(limits::LINK_WINDOW_BYTES.default / 2) {
            self.tell(at, Kind::Window, lane, id, &bytes.to_le_bytes());
        }
    }
}
