//! Another node of the cluster: its session with this one, and the local hub's link that represents
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use tidewire_link::{HubHandle, InterestKey, LocalEnd, LocalFrameSink, SubscriptionInterest};
use tidewire_proto::wire::{self, CallHead, FieldsWriter, Flags, Hello, Kind, SubscribeHead, VERSION};
use tidewire_sync::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::envelope::{self, What};
use super::presence::Presence;
use super::session::Session;

/// Bytes that the hub may hand over before they are sent; the rest waits in the outbox of the link,
/// and is bounded there.
const WAITING_BYTES: usize = 1 << 20;
/// Bytes of frames that go in one message, if they are not one frame.
const MESSAGE_BYTES: usize = 256 << 10;
/// Beats after frames: one without an Ack, then one with it.
const UNCONFIRMED: u8 = 3;

/// Pending work of the task of a bridge.
#[derive(Default)]
pub(super) struct PeerCommands {
    peers: Mutex<BTreeSet<u32>>,
    interests: AtomicBool,
    pub come: Notify,
}

impl PeerCommands {
    fn add(&self, peer: u32) {
        self.peers.lock().insert(peer);
        self.come.notify_one();
    }

    /// Nodes of the hub have subscribed to something, or no longer do.
    pub fn look_at_interests(&self) {
        self.interests.store(true, Ordering::Release);
        self.come.notify_one();
    }

    /// True if interests changed since the last call.
    pub fn interests_changed(&self) -> bool {
        self.interests.swap(false, Ordering::AcqRel)
    }

    /// The peers for which the hub has something.
    pub fn take(&self) -> BTreeSet<u32> {
        std::mem::take(&mut self.peers.lock())
    }
}

/// Frames of the hub for another node.
pub(super) struct PeerFeed {
    peer: u32,
    work: Arc<PeerCommands>,
    waits: Mutex<PendingReplies>,
}

#[derive(Default)]
struct PendingReplies {
    frames: Vec<u8>,
    paused: bool,
    ended: Option<String>,
}

impl LocalFrameSink for PeerFeed {
    fn feed(&self, frames: &[u8]) {
        self.waits.lock().frames.extend_from_slice(frames);
        self.work.add(self.peer);
    }

    fn is_paused(&self) -> bool {
        let mut waits = self.waits.lock();
        waits.paused = waits.frames.len() >= WAITING_BYTES;
        waits.paused
    }

    fn ended(&self, reason: &str, _may_return: bool) {
        self.waits.lock().ended = Some(reason.to_owned());
        self.work.add(self.peer);
    }
}

/// The link of the hub that represents a node.
struct PeerLink {
    end: LocalEnd,
    feed: Arc<PeerFeed>,
}

/// Another node.
pub(super) struct Peer {
    pub about: Presence,
    pub session: Session,
    /// When its last message arrived.
    pub last_seen: Instant,
    /// The node is gone unless a message of it arrives until then.
    pub suspected_until: Option<Instant>,
    /// The hub here has closed its link, or does not take it in; until then it is not tried again.
    pub refused_until: Option<Instant>,
    /// Another one had its name before.
    pub is_second: bool,
    /// True once it has announced its subscriptions.
    pub announced: bool,
    pub to: String,
    link: Option<PeerLink>,
    /// Subscriptions announced to the other side, with their ids.
    ids: BTreeMap<InterestKey, u64>,
    keys: BTreeMap<u64, InterestKey>,
    free: Vec<u32>,
    next_slot: u32,
    generation: u32,
    /// Frames that are to be sent, from `at` on.
    queue: Vec<u8>,
    at: usize,
    /// Beats until messages sent before count as confirmed.
    unconfirmed: u8,
}

/// A message for another node.
pub(super) struct OutgoingCall {
    pub subject: String,
    pub payload: Bytes,
}

impl Peer {
    pub fn new(about: Presence, me: u32, token: u64, now: Instant) -> Self {
        let to = format!("tw.node.{}", about.number);
        Self {
            session: Session::new(me, token),
            last_seen: now,
            suspected_until: None,
            refused_until: None,
            is_second: false,
            announced: false,
            to,
            link: None,
            ids: BTreeMap::new(),
            keys: BTreeMap::new(),
            free: Vec::new(),
            next_slot: 0,
            generation: 0,
            queue: Vec::new(),
            at: 0,
            unconfirmed: 0,
            about,
        }
    }

    /// Ends the session with its open calls; another one can begin.
    pub fn reset(&mut self, me: u32, token: u64) {
        let (about, last_seen) = (self.about.clone(), self.last_seen);
        let (refused_until, is_second) = (self.refused_until, self.is_second);
        *self = Self { refused_until, is_second, ..Self::new(about, me, token, last_seen) };
    }

    pub fn is_attached(&self) -> bool {
        self.link.is_some()
    }

    /// Attaches the node to the hub, once its session has begun.
    pub fn attach(&mut self, hub: &HubHandle, work: &Arc<PeerCommands>, frame_max: usize) {
        let number = self.about.number;
        let feed = Arc::new(PeerFeed { peer: number, work: Arc::clone(work), waits: Mutex::default() });
        let weak: Weak<dyn LocalFrameSink> = Arc::downgrade(&(Arc::clone(&feed) as Arc<dyn LocalFrameSink>));
        let end = hub.attach_remote(number, weak);
        end.write(&self.hello(frame_max));
        self.link = Some(PeerLink { end, feed });
    }

    /// HELLO frame of the node to the hub. The node uses half of the exchanges that it lets others
    /// open: the other half are its subscriptions.
    fn hello(&self, frame_max: usize) -> Vec<u8> {
        let about = &self.about;
        let mut fields = Vec::new();
        let mut out = FieldsWriter::new(&mut fields);
        let frame_bytes = about.frame_bytes.min(frame_max as u64);
        let settings = [
            ("name", about.name.clone()),
            ("in-flight", (about.in_flight / 2).to_string()),
            ("frame-bytes", frame_bytes.to_string()),
            ("payload-bytes", about.payload_bytes.to_string()),
            ("heartbeat-ms", about.heartbeat_ms.to_string()),
        ];
        for (name, text) in settings {
            // A name is at most 255 bytes.
            drop(out.add(name, text.as_bytes()));
        }
        let mut frame = Vec::new();
        drop(wire::write(&mut frame, Kind::Hello, Flags::URGENT, 0, |out| Hello::put(VERSION, VERSION, out), &fields));
        frame
    }

    /// Passes the frames of the node to the hub.
    pub fn write(&self, frames: &[u8]) {
        if let Some(link) = &self.link {
            link.end.write(frames);
        }
    }

    /// Notes that it is there.
    pub fn mark_alive(&mut self, now: Instant) {
        (self.last_seen, self.suspected_until) = (now, None);
    }

    /// True if an Ack is due at this beat: it shows the loss of the last frames.
    pub fn owes_count(&mut self) -> bool {
        self.unconfirmed = self.unconfirmed.saturating_sub(1);
        self.is_attached() && (1..UNCONFIRMED - 1).contains(&self.unconfirmed)
    }

    /// Why the hub has ended the link, if it has.
    pub fn ended(&self) -> Option<String> {
        self.link.as_ref()?.feed.waits.lock().ended.take()
    }

    /// Calls that the node has not answered.
    pub fn open_calls(&self) -> usize {
        self.link.as_ref().map_or(0, |link| link.end.open_calls())
    }

    /// The announced subscription of this side with an id.
    pub fn subscription_of(&self, id: u64) -> Option<InterestKey> {
        self.keys.get(&id).copied()
    }

    /// Announces the current subscriptions of this node.
    pub fn announce(&mut self, interests: &[SubscriptionInterest]) {
        let keys: BTreeSet<_> = interests.iter().map(|interest| interest.key).collect();
        let removed: Vec<_> = self.ids.keys().filter(|key| !keys.contains(key)).copied().collect();
        for key in removed {
            let Some(id) = self.ids.remove(&key) else { continue };
            self.keys.remove(&id);
            self.free.push(id as u32);
            drop(wire::write(&mut self.queue, Kind::Unsubscribe, Flags::NORMAL, id, |_| Ok(()), &[]));
        }
        for interest in interests {
            if self.ids.contains_key(&interest.key) {
                continue;
            }
            let Some(id) = self.next_id() else { return };
            let head = SubscribeHead { queue: &interest.queue, pattern: &interest.pattern };
            let flags = Flags::NORMAL.with_again(interest.listens);
            drop(wire::write(&mut self.queue, Kind::Subscribe, flags, id, |out| head.put(out), &interest.says));
            self.ids.insert(interest.key, id);
            self.keys.insert(id, interest.key);
        }
    }

    /// The next id of a subscription. None: there are as many as there may be.
    fn next_id(&mut self) -> Option<u64> {
        let half = u32::try_from(self.about.in_flight / 2).unwrap_or(u32::MAX / 2);
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.next_slot < half => {
                self.next_slot += 1;
                half + self.next_slot - 1
            }
            None => return None,
        };
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        Some(u64::from(self.generation) << 32 | u64::from(slot))
    }

    /// True if frames wait to be sent.
    pub fn waits(&self) -> bool {
        self.at < self.queue.len() || self.link.as_ref().is_some_and(|link| !link.feed.waits.lock().frames.is_empty())
    }

    /// The next message with frames, if there are some and they may be sent. `first` is sent
    /// without any.
    pub fn next_message(&mut self, first: bool) -> Option<OutgoingCall> {
        if !self.session.is_open() || self.session.sendable_bytes() == 0 {
            return None;
        }
        let mut resumes = false;
        let link = self.link.as_ref()?;
        if self.at >= self.queue.len() {
            self.queue.clear();
            self.at = 0;
            let mut waits = link.feed.waits.lock();
            std::mem::swap(&mut self.queue, &mut waits.frames);
            resumes = std::mem::take(&mut waits.paused);
        }
        let message = self.message(first);
        if resumes && let Some(link) = &self.link {
            link.end.resume();
        }
        message
    }

    fn message(&mut self, first: bool) -> Option<OutgoingCall> {
        let mut payload = Vec::with_capacity(envelope::BYTES + (self.queue.len() - self.at).min(MESSAGE_BYTES));
        payload.resize(envelope::BYTES, 0);
        let mut subject = format!("{}.frames", self.to);
        while let Ok(Some(frame)) = wire::read(&self.queue[self.at..], usize::MAX) {
            let (length, begins) = (frame.bytes.len(), payload.len() == envelope::BYTES);
            if envelope::travels(frame.kind) {
                if !begins && (frame.kind == Kind::Call || payload.len() + length > MESSAGE_BYTES) {
                    break;
                }
                if frame.kind == Kind::Call
                    && let Ok(head) = CallHead::parse(frame.head)
                {
                    subject = format!("{}.call.{}", self.to, head.subject);
                }
                payload.extend_from_slice(frame.bytes);
            }
            self.at += length;
        }
        if payload.len() == envelope::BYTES && !first {
            return None;
        }
        self.unconfirmed = UNCONFIRMED;
        let mut head = Vec::with_capacity(envelope::BYTES);
        self.session.next_envelope(What::Frames, payload.len() - envelope::BYTES).put(&mut head);
        payload[..envelope::BYTES].copy_from_slice(&head);
        Some(OutgoingCall { subject, payload: payload.into() })
    }

    /// A message without frames, with a text behind its envelope.
    pub fn control_message(&mut self, what: What, text: &[u8]) -> OutgoingCall {
        let envelope = self.session.next_envelope(what, 0);
        let mut payload = Vec::with_capacity(envelope::BYTES + text.len());
        envelope.put(&mut payload);
        payload.extend_from_slice(text);
        OutgoingCall { subject: format!("{}.session", self.to), payload: payload.into() }
    }
}
