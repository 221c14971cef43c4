//! Calls and subscriptions: the hub checks a subscription, chooses a responder for each call and
//! opens the route between them.

use std::collections::BTreeSet;

use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::subject::Pattern;
use tidewire_proto::subject::grammar::{OF_AGENTS, OF_SERVICES};
use tidewire_proto::wire::{
    self, CHOICE_WITH_CAPACITY, CallHead, Fields, Flags, Frame, Kind, SubscribeHead, WireError,
};

use crate::federation::{HUBS, HubPath};

use super::super::access::fix_of;
use super::super::flow_control::FlowWindow;
use super::super::session::taken_slot;
use super::routes::{ReverseRoute, Route, Subscriber};
use super::{Hub, LinkId, next_draw};
use crate::tree::SubscriptionId;

/// Sort key of the possible responders of a call: false for a group member, false on this side of a
/// federation, load, turn, and order of subscription.
type Rank = (bool, bool, u32, u64, SubscriptionId);

/// A possible route of a call: its rank, the link, and the id of the subscription there.
type CallRoute = (Rank, LinkId, u64);

/// Prefix of the subjects on which only the hub speaks.
pub(super) const OF_HUB: &str = "$hub.";

/// The field that says on whose behalf a call is made.
const USER: &str = "tw-user";

/// The field that says from where a call comes.
const ORIGIN: &str = "tw-origin";

/// Prefix of the subjects that belong to one node; the number of the node follows.
pub(super) const OF_NODE: &str = "$node.";

impl Hub {
    pub(super) fn subscribe(&mut self, at: LinkId, frame: &Frame<'_>) -> Result<(), WireError> {
        let head = SubscribeHead::parse(frame.head)?;
        let Ok(pattern) = Pattern::new(head.pattern) else { return Ok(()) };
        let listens = match self.admit_subscriber(at, &head, frame.payload, frame.flags.again()) {
            Ok(listens) => listens,
            Err((code, text)) => {
                self.refuse_new(at, frame, code, &text);
                return Ok(());
            }
        };
        let remote = self.is_remote(at);
        let subscriber = Subscriber {
            link: at,
            id: frame.id,
            queue: head.queue.to_owned(),
            pattern: head.pattern.to_owned(),
            announcement: frame.payload.to_vec(),
            in_progress: 0,
            is_full: false,
            listens,
            remote,
            far: self.link(at).is_some_and(|link| link.hub.is_some()),
            key: None,
        };
        self.course = None;
        let key = self.tree.insert(&pattern, subscriber);
        if let Some(subscriber) = self.tree.get_mut(key) {
            subscriber.key = Some(key);
        }
        let Some(link) = self.link(at) else { return Ok(()) };
        if let Err(taken) = link.theirs.insert(frame.id, Route::Subscription(key)) {
            self.tree.remove(key);
            return Err(taken_slot("SUBSCRIBE", taken));
        }
        link.subscriptions += 1;
        self.interests_changed |= !remote;
        self.tell(at, Kind::Ok, Flags::NORMAL.with_answer(true), frame.id, &[]);
        self.record_announcement(key);
        Ok(())
    }

    pub(super) fn call(&mut self, at: LinkId, frame: &Frame<'_>) -> Result<(), WireError> {
        let head = CallHead::parse(frame.head)?;
        if self.link(at).is_some_and(|link| link.theirs.get(frame.id).is_some()) {
            let problem = "its id is that of an exchange that is open: choose another one";
            return Err(WireError::Unexpected { kind: "CALL", problem });
        }
        let refusal = match self.may_say(at, &head.fields).and_then(|()| self.route(at, &head, frame)) {
            Ok(route) => match self.connect(at, route, head.credit, frame)? {
                // Of several that are full, the first one says why.
                Some(_) if self.connect_other(at, route.0, &head, frame)? => None,
                refusal => refusal,
            },
            Err(refusal) => refusal,
        };
        if let Some((code, text)) = refusal {
            self.refuse_new(at, frame, code, &text);
        }
        Ok(())
    }

    /// Passes a call on to another node than the one that can't take it. False: no other node can.
    ///
    /// The reasons that keep a node from taking a call hold for all of its subscriptions, so each
    /// node is tried once.
    fn connect_other(
        &mut self,
        at: LinkId,
        full: LinkId,
        head: &CallHead<'_>,
        frame: &Frame<'_>,
    ) -> Result<bool, WireError> {
        let mut candidates = Vec::new();
        self.for_each_responder(at, head, |candidate| candidates.push(candidate));
        candidates.sort_unstable();
        let mut tried = BTreeSet::from([full]);
        for ((.., key), link, id) in candidates {
            if tried.insert(link) && self.connect(at, (link, id, key), head.credit, frame)?.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Refuses to pass on for whom a node calls: only the hub's own gateway knows that, and who is
    /// called relies on it.
    fn may_say(&mut self, at: LinkId, fields: &Fields<'_>) -> Result<(), Option<(ErrorCode, String)>> {
        let Some(name) = names_a_caller(fields) else { return Ok(()) };
        if self.link(at).is_some_and(|link| link.gateway || link.remote) {
            return Ok(());
        }
        let text = format!("the field {name:?} is not allowed: only the gateway of a hub says for whom it calls");
        Err(Some((ErrorCode::Unauthorized, text)))
    }

    /// True unless a link of another hub passes on a call or a message whose path does not end
    /// there.
    pub(super) fn states_its_path(&self, at: LinkId, fields: &Fields<'_>) -> bool {
        let hub = self.links.get(at).and_then(Option::as_ref).and_then(|link| link.hub.as_deref());
        hub.is_none_or(|hub| fields.text(HUBS).and_then(|path| path.rsplit(' ').next()) == Some(hub))
    }

    /// Where a call goes, or why it goes nowhere. Without a reason it was answered.
    fn route(
        &mut self,
        at: LinkId,
        head: &CallHead<'_>,
        frame: &Frame<'_>,
    ) -> Result<(LinkId, u64, SubscriptionId), Option<(ErrorCode, String)>> {
        let subject = head.subject;
        if !self.states_its_path(at, &head.fields) && !subject.starts_with(OF_HUB) {
            let text = format!("fields: {HUBS}: its last hub has to be the one that sends the call");
            return Err(Some((ErrorCode::Unauthorized, text)));
        }
        let grant = self.link(at).and_then(|link| link.grant);
        // Everybody may call the subjects of a node: the node knows to whom it has exported each
        // object.
        if !subject.starts_with(OF_NODE) && !self.options.access.may_call(grant, subject) {
            return Err(Some((
                ErrorCode::Unauthorized,
                format!("subject: {subject:?} is not allowed with this token: {}", fix_of(subject)),
            )));
        }
        // The hub's own node may still need other nodes to finish its work.
        if self.leaving && (!self.is_here(at) || self.is_remote(at)) {
            return Err(Some((ErrorCode::NodeStopped, "the hub is stopping, and takes no new calls".to_owned())));
        }
        if let Some(listed) = self.list(at, subject, frame) {
            return Err(listed.err());
        }
        let responder = if subject.starts_with(OF_HUB) { None } else { self.responder(at, head) };
        responder.ok_or_else(|| {
            if let Some(place) = &self.lost {
                let fix = "call again once a server runs: the hub connects again by itself";
                let text = format!("nobody is known to answer calls on {subject:?}, and the connection of this hub to {place} is lost: {fix}");
                return Some((ErrorCode::LinkLost, text));
            }
            let fix = "subscribe a handler there, and look whether its node has joined this hub";
            Some((ErrorCode::NoResponders, format!("nobody answers calls on {subject:?}: {fix}")))
        })
    }

    /// Passes a call on to one subscription, or says why it can't be.
    fn connect(
        &mut self,
        at: LinkId,
        (to, subscription, key): (LinkId, u64, SubscriptionId),
        credit: u32,
        frame: &Frame<'_>,
    ) -> Result<Option<(ErrorCode, String)>, WireError> {
        self.introduce(to, at);
        let (lane, mut passing) = (frame.flags.lane() as u8, FlowWindow::default());
        passing.take(frame)?;
        let number = self.link(at).map_or(0, |link| link.number);
        let Some(callee) = self.link_with_capacity(to) else { return Ok(None) };
        if !callee.can_take(frame) {
            let text = callee.excess(frame, "the node that answers: send less, or raise the limit there");
            return Ok(Some((ErrorCode::PayloadTooLarge, text)));
        }
        let (back, streams) = (FlowWindow::with_credit(credit), credit > 0);
        let back = ReverseRoute::Call {
            link: at,
            id: frame.id,
            subscription: key,
            lane,
            passing: back,
            ending: false,
            streams,
        };
        let Ok(id) = callee.ours.insert(back) else {
            let max = callee.ours.max();
            let text =
                format!("link_in_flight={max}: too many calls are open at the node that answers: try again later");
            return Ok(Some((ErrorCode::Overloaded, text)));
        };
        let unplaced = callee.unplaced(frame);
        let Ok(bytes) = callee.out.forward(unplaced.as_deref().unwrap_or(frame.bytes), lane.into(), id) else {
            callee.ours.remove(id);
            let limit = self.full_callee(to);
            let text = format!("{limit}: too much waits for the node that answers: try again later");
            return Ok(Some((ErrorCode::Overloaded, text)));
        };
        wire::set_route(bytes, number, subscription);
        self.touch(to);
        let route = Route::To { link: to, id, lane, passing };
        if let Some(Err(taken)) = self.link(at).map(|link| link.theirs.insert(frame.id, route)) {
            self.cancel(to, id, lane);
            return Err(taken_slot("CALL", taken));
        }
        self.ask_for_chunks(at, frame, to);
        if let Some(subscriber) = self.tree.get_mut(key) {
            subscriber.in_progress += 1;
        }
        self.counts.calls += 1;
        self.counts.forwarded += 1;
        Ok(None)
    }

    /// The subscription that a call goes to: of a queue group, if one matches.
    fn responder(&mut self, at: LinkId, head: &CallHead<'_>) -> Option<(LinkId, u64, SubscriptionId)> {
        let mut best: Option<CallRoute> = None;
        self.for_each_responder(at, head, |candidate| {
            if best.is_none_or(|other| candidate.0 < other.0) {
                best = Some(candidate);
            }
        });
        best.map(|((.., key), link, id)| (link, id, key))
    }

    /// All subscriptions that a call can go to; the one with the lowest rank is preferred. A call
    /// that came over a bridge crosses no further bridge.
    fn for_each_responder(&mut self, at: LinkId, head: &CallHead<'_>, mut visit: impl FnMut(CallRoute)) {
        let (subject, choice, remote) = (head.subject, head.choice, self.is_remote(at));
        let mut draw = next_draw(&mut self.draw);
        // Wildcard subscribers do not answer calls on subjects that belong to one node, service or
        // agent.
        let (links, path) = (&self.links, head.fields.text(HUBS).map(HubPath::parse));
        // A caller over HTTP does not cross to another hub.
        let (has_refusal, is_outside) = (choice == CHOICE_WITH_CAPACITY, head.fields.text(ORIGIN).is_some());
        // A call does not return to a hub that it has passed.
        let is_back = |subscriber: &Subscriber| {
            let hub = links[subscriber.link].as_ref().and_then(|link| link.hub.as_ref());
            path.as_ref().zip(hub).is_some_and(|(path, hub)| path.has(hub))
        };
        let owned = [OF_NODE, OF_SERVICES, OF_AGENTS].into_iter().find(|prefix| subject.starts_with(prefix));
        self.tree.for_each_match_str(subject, |subscriber| {
            let Some(key) = subscriber.key else { return };
            if subscriber.listens
                || (remote && subscriber.remote)
                || (subscriber.far && (is_outside || is_back(subscriber)))
                || (has_refusal && subscriber.is_full)
                || owned.is_some_and(|prefix| !subscriber.pattern.starts_with(prefix))
            {
                return;
            }
            draw = draw.rotate_left(17).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let load = if choice == 0 || has_refusal { subscriber.in_progress } else { 0 };
            // Equal loads take turns by chance; keys compare in the order of subscriptions.
            let turn = if choice == 1 { 0 } else { draw };
            visit(((subscriber.queue.is_empty(), subscriber.far, load, turn, key), subscriber.link, subscriber.id));
        });
    }

    /// Refuses a frame that would have opened an exchange.
    fn refuse_new(&mut self, at: LinkId, frame: &Frame<'_>, code: ErrorCode, text: &str) {
        self.counts.refused += 1;
        self.put_fail(at, frame.id, frame.flags.lane() as u8, code, text);
    }
}

/// The field that says for whom a call is made or a message published, if there is one.
pub(super) fn names_a_caller<'a>(fields: &Fields<'a>) -> Option<&'a str> {
    fields.iter().map(|(name, _)| name).find(|name| [USER, ORIGIN].contains(name))
}

/// One entry of the answer of `$hub.services`.
pub(super) fn put_service(out: &mut Vec<u8>, node: &str, subscriber: &Subscriber) {
    for text in [node, &subscriber.queue, &subscriber.pattern] {
        out.extend_from_slice(&(text.len() as u16).to_le_bytes());
        out.extend_from_slice(text.as_bytes());
    }
    out.extend_from_slice(&subscriber.in_progress.to_le_bytes());
    out.extend_from_slice(&(subscriber.announcement.len() as u32).to_le_bytes());
    out.extend_from_slice(&subscriber.announcement);
}
