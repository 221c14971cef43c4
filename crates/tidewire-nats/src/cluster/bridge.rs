//! Task of a bridge: receives messages of other bridges, keeps a session with each, and forwards
//! the frames of the hub.

mod beat;
mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use async_nats::{Message, StatusCode, Subject};
use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _};
use tidewire_link::{HubHandle, InterestKey, SubscriptionInterest};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::generated::limits;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until};

use super::connection::{Connected, silence};
use super::envelope::{self, Envelope, What};
use super::peer::{OutgoingCall, Peer, PeerCommands};
use super::presence::{self, Presence, PresenceKind};
use super::session::Received;
use super::{BridgeError, BridgeOptions, rand_token};
use crate::clock::now_us;

/// How long it is waited for others that may be there, after the last one that was heard; and at
/// most.
const QUIET: Duration = Duration::from_millis(100);
const READY_MAX: Duration = Duration::from_secs(2);
/// How soon it is looked whether a node is still there that has to answer.
const PROBE: Duration = Duration::from_millis(500);
/// Nodes that announce themselves at one beat, in a cluster of more.
const ANNOUNCE: usize = 8;
/// Longest wait for messages in flight at the end.
const GOODBYE: Duration = Duration::from_secs(1);
/// Nodes that are known at once.
const PEERS: usize = limits::HUB_LINKS.default as usize;
/// Messages that are taken at one go.
const TURN: usize = 64;
/// A serial number that no subscription has.
const NOBODY: u64 = u64::MAX;
/// The last token of the subject on which the server reports a missing receiver.
const AWAY: &str = "away";
const ALONE: &str = "alone";

/// Result of the start: the present nodes are known, or the error.
type Begun = oneshot::Sender<Result<(), BridgeError>>;
pub(super) type Log = Arc<dyn Fn(&str, bool) + Send + Sync>;

struct Cluster {
    hub: HubHandle,
    at: Connected,
    me: Presence,
    /// The beginning of the subjects on which the server answers.
    mine: String,
    peers: BTreeMap<u32, Peer>,
    work: Arc<PeerCommands>,
    /// Peers to which more may be sent now.
    touched: BTreeSet<u32>,
    interests: Vec<SubscriptionInterest>,
    log: Log,
    beginning: Option<(Begun, Instant)>,
    /// After a loss: when the nodes that are there count as known at the latest.
    returning: Option<Instant>,
    quiet_from: Instant,
    alone: bool,
    /// Another node has the number of this one, which leaves.
    leaves: bool,
    losses: u64,
    was_up: bool,
    beat_at: Instant,
    /// Beats until this node announces itself again.
    beats: usize,
    /// The node that this one asks at each beat: the next one by number.
    watched: Option<u32>,
    probe_at: Option<Instant>,
}

/// Begins the task. Its result arrives once the other bridges are known.
pub(super) async fn begin(
    hub: HubHandle,
    at: Connected,
    options: BridgeOptions,
    log: Log,
    closing: watch::Receiver<bool>,
    closed: SyncSender<()>,
) -> Result<oneshot::Receiver<Result<(), BridgeError>>, BridgeError> {
    let me = Presence {
        heartbeat_ms: options.heartbeat_ms,
        in_flight: options.in_flight,
        frame_bytes: options.frame_bytes,
        payload_bytes: options.payload_bytes,
        ..Presence::new(options.number, &options.name)
    };
    let (ready, answer) = oneshot::channel();
    let work = Arc::new(PeerCommands::default());
    let commands = Arc::downgrade(&work);
    if !hub.take_bridge() {
        return Err(BridgeError::new(ErrorCode::InvalidArgument, "the hub has a bridge already: a hub has one"));
    }
    hub.on_interests(move || {
        if let Some(work) = commands.upgrade() {
            work.look_at_interests();
        }
    });
    let now = Instant::now();
    let (losses, mine) = (at.status.borrow().losses, format!("tw.node.{}", me.number));
    let cluster = Cluster {
        hub,
        at,
        me,
        mine,
        peers: BTreeMap::new(),
        work,
        touched: BTreeSet::new(),
        interests: Vec::new(),
        log,
        beginning: Some((ready, now + READY_MAX)),
        returning: None,
        quiet_from: now + QUIET,
        alone: false,
        leaves: false,
        losses,
        was_up: true,
        beat_at: now,
        beats: 0,
        watched: None,
        probe_at: None,
    };
    cluster.work.look_at_interests();
    tokio::spawn(async move {
        cluster.run(closing).await;
        let _ = closed.send(());
    });
    Ok(answer)
}

impl Cluster {
    async fn run(mut self, mut closing: watch::Receiver<bool>) {
        self.say_hello().await;
        let mut ends: Option<Instant> = None;
        let mut status = self.at.status.clone();
        loop {
            let wakes = self.wakes(ends);
            let work = Arc::clone(&self.work);
            let (losses, was_up) = (self.losses, self.was_up);
            let closes = async { drop(closing.wait_for(|closing| *closing).await) };
            let turns = async { drop(status.wait_for(|now| now.losses != losses || now.is_up != was_up).await) };
            tokio::select! {
                biased;
                () = closes, if ends.is_none() => ends = Some(Instant::now() + GOODBYE),
                () = turns => self.turned().await,
                message = self.at.presence.next() => match message {
                    Some(message) => self.receive_presence(&message).await,
                    None => break,
                },
                message = self.at.mine.next() => match message {
                    Some(message) => self.take(message).await,
                    None => break,
                },
                () = work.come.notified() => {}
                () = sleep_until(wakes) => {}
            }
            self.beat().await;
            self.look_at_interests();
            self.send_all().await;
            self.look_whether_ready();
            let is_over = |until: &Instant| *until <= Instant::now() || !self.peers.values().any(Peer::waits);
            if self.leaves || ends.as_ref().is_some_and(is_over) {
                break;
            }
        }
        self.say_goodbye().await;
    }

    fn wakes(&self, ends: Option<Instant>) -> Instant {
        let until = self.beginning.as_ref().map(|(_, until)| *until).or(self.returning);
        let ready = until.map(|until| until.min(self.quiet_from.max(Instant::now() + QUIET / 10)));
        [Some(self.beat_at), self.probe_at, ready, ends].into_iter().flatten().min().unwrap_or(self.beat_at)
    }

    /// Processes the received messages, up to a limit per turn.
    async fn take(&mut self, first: Message) {
        let mut next = Some(first);
        for _ in 0..TURN {
            let Some(message) = next else { return };
            self.receive(message).await;
            next = self.at.mine.next().now_or_never().flatten();
        }
        if let Some(message) = next {
            self.receive(message).await;
        }
    }

    // Messages to this node

    async fn receive(&mut self, message: Message) {
        if message.status == Some(StatusCode::NO_RESPONDERS) {
            return self.report_missing(&message.subject).await;
        }
        let Some((envelope, rest)) = Envelope::read(&message.payload) else { return };
        let number = envelope.from;
        if envelope.what == What::Close && envelope.own == 0 {
            return self.name_is_taken(rest);
        }
        if envelope.what == What::Open {
            let Some(about) = Presence::read(rest).filter(|about| about.number == number) else { return };
            self.meet(about);
        }
        let Some(peer) = self.peers.get_mut(&number) else { return };
        peer.mark_alive(Instant::now());
        self.touched.insert(number);
        let mut received = peer.session.receive(&envelope, rest.len());
        if received == Received::Broken {
            self.restart(number, "something that it said was lost, or it begins anew").await;
            if envelope.what != What::Open {
                return;
            }
            let Some(peer) = self.peers.get_mut(&number) else { return };
            received = peer.session.receive(&envelope, rest.len());
        }
        match received {
            Received::Nothing | Received::Broken => {}
            Received::Answer => self.open(number).await,
            Received::Asked => self.send_control(number, What::Ack).await,
            Received::Begun => self.attach(number).await,
            Received::Closed => self.forget(number, &String::from_utf8_lossy(rest)),
            Received::Frames { begun } => {
                if begun {
                    self.attach(number).await;
                }
                self.frames(number, &message.subject, rest).await;
            }
        }
    }

    async fn frames(&mut self, number: u32, subject: &str, frames: &[u8]) {
        let Some(peer) = self.peers.get_mut(&number) else { return };
        peer.announced = true;
        let called = subject.strip_prefix(&*self.mine).and_then(|rest| rest.strip_prefix(".call."));
        let checked = match envelope::check(frames, called, self.at.frame_max) {
            Ok(checked) => checked,
            Err(why) => {
                let text = format!("node {:?} has sent what can't be taken: {why}", peer.about.name);
                (self.log)(&text, true);
                return self.restart(number, why).await;
            }
        };
        for key in checked.refused.iter().filter_map(|id| peer.subscription_of(*id)) {
            if let Some(one) = self.interests.iter().find(|one| one.key == key) {
                let (name, pattern) = (&peer.about.name, &one.pattern);
                (self.log)(&format!("node {name:?} does not take {pattern:?} in: another node has it"), true);
            }
        }
        peer.write(&checked.with_routes(frames, |id| peer.subscription_of(id).map_or(NOBODY, InterestKey::serial)));
        if peer.session.owes_ack() {
            self.send_control(number, What::Ack).await;
        }
    }

    /// Handles the server's report of a missing receiver.
    async fn report_missing(&mut self, subject: &str) {
        let Some(rest) = subject.strip_prefix(&*self.mine).and_then(|rest| rest.strip_prefix('.')) else { return };
        let mut tokens = rest.split('.');
        match (tokens.next(), tokens.next().map(str::parse::<u32>), tokens.next().map(str::parse::<u64>)) {
            (Some(ALONE), ..) => self.alone = true,
            (Some(AWAY), Some(Ok(number)), Some(Ok(token))) => {
                // After a loss, others may connect again later than this node.
                let may_return = self.returning.is_some();
                let is_gone = |peer: &Peer| peer.session.own() == token && (peer.is_attached() || !may_return);
                if let Some(peer) = self.peers.get(&number).filter(|peer| is_gone(peer)) {
                    if peer.suspected_until.is_none() {
                        self.announce(peer.about.written(PresenceKind::Gone)).await;
                    }
                    self.forget(number, "it is not there any more");
                }
            }
            _ => {}
        }
    }

    // Presence of other nodes

    async fn receive_presence(&mut self, message: &Message) {
        let Some(about) = Presence::read(&message.payload) else { return };
        if about.number == self.me.number {
            return self.number_is_taken(&about).await;
        }
        let (number, kind) = (about.number, about.says);
        if kind == PresenceKind::Gone {
            return self.suspect(number).await;
        }
        let is_new = !self.peers.contains_key(&number);
        if is_new && kind == PresenceKind::Here {
            // A split cluster has healed: nodes there don't know this one.
            self.beats = 0;
        }
        if kind == PresenceKind::Hello && about.name == self.me.name && self.me.is_before(&about) {
            let mut payload = Vec::new();
            let envelope =
                Envelope { what: What::Close, from: self.me.number, own: 0, other: 0, sequence: 0, taken: 0 };
            envelope.put(&mut payload);
            payload.extend_from_slice(b"a node of this name is in the cluster");
            self.publish(OutgoingCall { subject: format!("tw.node.{number}.session"), payload: payload.into() }, None)
                .await;
        }
        self.meet(about);
        if is_new || kind == PresenceKind::Hello {
            self.open(number).await;
        }
        if let Some(peer) = self.peers.get_mut(&number) {
            peer.mark_alive(Instant::now());
        }
    }

    /// Notes that a node is there.
    fn meet(&mut self, about: Presence) {
        let (now, number) = (Instant::now(), about.number);
        let is_new = about.name == self.me.name && !self.peers.contains_key(&number);
        if let Some(peer) = self.peers.get_mut(&number) {
            peer.about = about;
        } else if self.peers.len() < PEERS {
            self.quiet_from = now + QUIET;
            self.peers.insert(number, Peer::new(about, self.me.number, rand_token(), now));
        } else {
            let name = about.name;
            (self.log)(&format!("hub_links={PEERS}: node {name:?} is one too many: it is not reached from here"), true);
        }
        if is_new && self.beginning.is_none() && self.first_of_name().is_some() {
            let name = &self.me.name;
            let text = format!("name: a node {name:?} joined before: until it is gone, no other node reaches this one");
            (self.log)(&text, true);
            self.peers.values_mut().for_each(|peer| peer.reset(self.me.number, rand_token()));
        }
    }

    /// A session has begun: the hub attaches the node, unless another one has its name.
    async fn attach(&mut self, number: u32) {
        let Some(about) = self.peers.get(&number).map(|peer| peer.about.clone()) else { return };
        let name = about.name.clone();
        let holds = |(other, peer): (&u32, &Peer)| *other != number && peer.is_attached() && peer.about.name == name;
        let holder = self.peers.iter().find(|(other, peer)| holds((other, peer))).map(|(other, _)| *other);
        let (again, is_second) = (Instant::now() + silence(self.me.heartbeat_ms) / 4, self.first_of_name().is_some());
        if let Some(peer) =
            holder.and_then(|holder| self.peers.get_mut(&holder)).filter(|one| about.is_before(&one.about))
        {
            (self.log)(&format!("two nodes are called {name:?}: this node reaches the one that joined first"), true);
            peer.reset(self.me.number, rand_token());
            (peer.refused_until, peer.is_second) = (Some(again), true);
        } else if holder.is_some() || name == self.me.name || is_second {
            let is_new = self.peers.get_mut(&number).is_some_and(|peer| !std::mem::replace(&mut peer.is_second, true));
            if is_new && !is_second {
                let text = format!("two nodes are called {name:?}: the one that came later is not reached from here");
                (self.log)(&text, true);
            }
            if let Some(peer) = self.peers.get_mut(&number) {
                peer.refused_until = Some(again);
            }
            if let Some(holder) = holder {
                // The holder of the name may have died, and this node may be its replacement.
                self.send_control(holder, What::Ask).await;
            }
            return;
        }
        let Some(peer) = self.peers.get_mut(&number) else { return };
        peer.refused_until = None;
        peer.attach(&self.hub, &self.work, self.at.frame_max);
        peer.announce(&self.interests);
        if let Some(first) = peer.next_message(true) {
            let away = self.away(number);
            self.publish(first, away).await;
        }
    }

    /// Resets the session with a node, and opens a new one.
    async fn restart(&mut self, number: u32, why: &str) {
        let Some(peer) = self.peers.get_mut(&number) else { return };
        if peer.is_attached() {
            (self.log)(&format!("the link to node {:?} is lost: {why}", peer.about.name), true);
        }
        peer.reset(self.me.number, rand_token());
        self.open(number).await;
    }

    fn forget(&mut self, number: u32, why: &str) {
        let Some(peer) = self.peers.remove(&number) else { return };
        if peer.is_attached() && !why.is_empty() {
            (self.log)(&format!("node {:?} is gone: {why}", peer.about.name), true);
        }
        let name = peer.about.name.clone();
        drop(peer);
        // Retry a refused node of the same name at the next beat.
        let now = Instant::now();
        for other in self.peers.values_mut().filter(|other| other.about.name == name) {
            if other.refused_until.is_some() {
                other.refused_until = Some(now);
                self.beat_at = now;
            }
        }
    }

    /// Handles a lost or restored connection. A lost connection may lose messages, and so ends all
    /// sessions.
    async fn turned(&mut self) {
        let now = self.at.status.borrow().clone();
        let lost = now.losses != self.losses;
        (self.losses, self.was_up) = (now.losses, now.is_up);
        if lost {
            self.returning = None;
            self.hub.set_lost(Some(&self.at.place));
            (self.log)(&format!("{}: the connection is lost, and calls with it", self.at.place), true);
            for peer in self.peers.values_mut() {
                peer.reset(self.me.number, rand_token());
            }
        }
        if now.is_up {
            (self.log)(&format!("{}: connected again", self.at.place), false);
            let now = Instant::now();
            self.peers.values_mut().for_each(|peer| peer.mark_alive(now));
            // Those that do not come back are forgotten after their silence.
            let until = now + silence(self.me.heartbeat_ms);
            (self.alone, self.quiet_from, self.returning) = (false, now + QUIET, Some(until));
            self.say_hello().await;
        }
    }

    // Outgoing messages

    /// Looks whether something is subscribed to here that others don't know of.
    fn look_at_interests(&mut self) {
        if !self.work.interests_changed() {
            return;
        }
        let interests = self.hub.interests();
        let own = format!("$node.{}.>", self.me.number);
        let travels = |one: &SubscriptionInterest| travels(&one.pattern, &own);
        let interests: Vec<SubscriptionInterest> = interests.into_iter().filter(travels).collect();
        if interests != self.interests {
            self.interests = interests;
            for (number, peer) in self.peers.iter_mut().filter(|(_, peer)| peer.is_attached()) {
                peer.announce(&self.interests);
                self.touched.insert(*number);
            }
        }
    }

    async fn send_all(&mut self) {
        let mut numbers = self.work.take();
        numbers.append(&mut self.touched);
        for number in numbers {
            if let Some(why) = self.peers.get(&number).and_then(Peer::ended) {
                self.hub_has_ended(number, &why).await;
            }
            while let Some(message) = self.peers.get_mut(&number).and_then(|peer| peer.next_message(false)) {
                let away = self.away(number);
                self.publish(message, away).await;
                self.probe_at.get_or_insert_with(|| Instant::now() + PROBE);
            }
        }
    }

    /// The hub here does not have a node any more.
    async fn hub_has_ended(&mut self, number: u32, why: &str) {
        let again = Instant::now() + silence(self.me.heartbeat_ms) / 4;
        if let Some(peer) = self.peers.get_mut(&number) {
            (self.log)(&format!("the link to node {:?} is closed: {why}", peer.about.name), true);
            peer.reset(self.me.number, rand_token());
            peer.refused_until = Some(again);
        }
        self.open(number).await;
    }

    async fn open(&mut self, number: u32) {
        let about = self.me.written(PresenceKind::Here);
        let Some(peer) = self.peers.get_mut(&number) else { return };
        let message = peer.control_message(What::Open, &about);
        let away = self.away(number);
        self.publish(message, away).await;
    }

    async fn send_control(&mut self, number: u32, what: What) {
        let Some(peer) = self.peers.get_mut(&number) else { return };
        let message = peer.control_message(what, &[]);
        let away = self.away(number);
        self.publish(message, away).await;
    }

    async fn say_hello(&mut self) {
        let hello = self.me.written(PresenceKind::Hello);
        let message = OutgoingCall { subject: presence::SUBJECT.to_owned(), payload: hello.into() };
        self.publish(message, Some(format!("{}.{ALONE}", self.mine).into())).await;
        let numbers: Vec<u32> = self.peers.keys().copied().collect();
        for number in numbers {
            self.open(number).await;
        }
    }

    async fn announce(&mut self, presence: Vec<u8>) {
        self.publish(OutgoingCall { subject: presence::SUBJECT.to_owned(), payload: presence.into() }, None).await;
    }

    async fn say_goodbye(&mut self) {
        let numbers: Vec<u32> = self.peers.keys().copied().collect();
        for number in numbers {
            let Some(peer) = self.peers.get_mut(&number) else { continue };
            let message = peer.control_message(What::Close, &[]);
            self.publish(message, None).await;
        }
        self.peers.clear();
        if self.was_up {
            drop(tokio::time::timeout(GOODBYE, self.at.client.drain()).await);
            while let Ok(Some(_)) = tokio::time::timeout(GOODBYE, self.at.mine.next()).await {}
        }
    }

    /// The subject on which the server reports the departure of a node.
    fn away(&self, number: u32) -> Option<Subject> {
        let token = self.peers.get(&number)?.session.own();
        Some(format!("{}.{AWAY}.{number}.{token}", self.mine).into())
    }

    /// Publishes while there is a connection. Without one it is dropped: the session is lost.
    async fn publish(&mut self, message: OutgoingCall, reply: Option<Subject>) {
        let mut status = self.at.status.clone();
        if !status.borrow_and_update().is_up {
            return;
        }
        let (client, payload): (_, Bytes) = (&self.at.client, message.payload);
        let publish = async {
            match reply {
                Some(reply) => client.publish_with_reply(message.subject, reply, payload).await,
                None => client.publish(message.subject, payload).await,
            }
        };
        let lost = async { drop(status.wait_for(|status| !status.is_up).await) };
        let sent = tokio::select! {
            biased;
            sent = publish => sent,
            () = lost => return,
        };
        if let Err(error) = sent {
            (self.log)(&format!("{}: a message was not sent: {error}", self.at.place), true);
        }
    }

    // The beginning

    fn look_whether_ready(&mut self) {
        let Some(until) = self.beginning.as_ref().map(|(_, until)| *until).or(self.returning) else { return };
        let now = Instant::now();
        let all_announced = self.peers.values().all(|peer| peer.announced || peer.refused_until.is_some());
        let is_quiet = self.alone || now >= self.quiet_from;
        if now < until && !(all_announced && is_quiet) {
            return;
        }
        self.returning = None;
        if self.was_up {
            self.at.known.store(self.losses, Ordering::Release);
            self.hub.set_lost(None);
        }
        if let Some((ready, _)) = self.beginning.take() {
            (self.me.since_us, self.beats) = (now_us(), 0);
            drop(ready.send(Ok(())));
        }
    }
}

/// True if other nodes learn of a subscription: the `$` subjects of a hub are for its own nodes.
fn travels(pattern: &str, own: &str) -> bool {
    !pattern.starts_with('$') || pattern == own
}
