//! The hub: the side of a link that routes between nodes.
//!
//! A hub reads heads and forwards payloads as they come. It stores only the route of each open
//! exchange, and the frames that wait to be written.

mod announce_rate_limit;
mod announcements;
mod auth_throttle;
mod bounds;
mod calls;
mod close;
mod directory_updates;
mod drain;
mod forward;
mod handshake;
mod memory_budget;
mod name_reservations;
mod node_list;
mod options;
mod outbound;
mod publish;
mod remote;
mod routes;
mod shared_memory;
mod timeouts;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use tidewire_proto::wire::{FailHead, Flags, Frame, Kind, WireError};

use super::access::{Access, Grant, TokenLimits};
use super::keepalive::Keepalive;
use super::outbox::Outbox;
use super::session::Fault;
use super::slots::{Mirror, Slots};
use crate::tree::{SubjectTree, SubscriptionId};

use crate::stream::dedupe::Window;

use announcements::Announcements;
use auth_throttle::{AuthThrottle, Refused};
use bounds::Bounds;
use name_reservations::NameReservations;
use publish::{CROSSED_MAX, CROSSED_SPAN_US, PublishRoute};
use routes::{ReverseRoute, Route, Subscriber};

pub use node_list::Change;
pub use options::{HubCounts, HubOptions, MachineMemory};
pub use remote::SubscriptionInterest;

/// Names one link of one hub. It may be used again once the link was closed.
pub type LinkId = usize;

struct Link {
    out: Outbox,
    theirs: Mirror<Route>,
    ours: Slots<ReverseRoute>,
    heart: Keepalive,
    number: u32,
    name: String,
    resume: String,
    /// The `resume` of its HELLO, unless it resumed a link.
    hello_secret: String,
    joined_us: u64,
    grant: Option<usize>,
    bounds: Bounds,
    /// The nodes whose names it has received.
    knows: BTreeSet<u32>,
    subscriptions: usize,
    announcements: Announcements,
    /// Bytes that wait, when they were counted last.
    queued: usize,
    /// Where it comes from; none: that is not known.
    place: Option<u128>,
    /// The reason of its refusal, sent once its delay is over.
    refused: Option<Refused>,
    payload_max: usize,
    frame_max: usize,
    greeting_until_us: Option<u64>,
    touched: bool,
    /// It missed a directory update, because too much waited.
    missed: bool,
    /// The node is in this process.
    here: bool,
    /// The link of the hub's own gateway, which states for whom it calls.
    gateway: bool,
    /// The link of a node that a bridge reaches.
    remote: bool,
    /// The grant of another hub whose messages the link passes on.
    partner: Option<usize>,
    /// The link of a console that may only look, unless it has a token.
    is_console: bool,
    /// Its other end is on this machine.
    near: bool,
    /// Its node and the hub share the memory of their machine.
    memory: bool,
    /// The other hub for which its node calls and publishes.
    hub: Option<String>,
    /// When it is looked at next for its greeting or its heartbeat.
    beat_at_us: u64,
    /// The links whose nodes know its name, and perhaps some that have gone.
    known_by: BTreeSet<LinkId>,
    /// Its node has said goodbye.
    leaves: bool,
    /// Its node has asked since then whether all has arrived, and has sent nothing after that.
    has_sent_all: bool,
    /// Frames were sent since the last sign of life of its node.
    fresh: bool,
    /// Its node has answered the last question if it has read everything.
    has_read: bool,
    closing: bool,
}

impl Link {
    /// True if its node has sent everything, and has nothing open but subscriptions. Its goodbye
    /// ended those.
    fn has_left(&self) -> bool {
        let mut open = self.theirs.iter().filter(|(_, route)| !matches!(route, Route::Subscription(_)));
        self.has_sent_all && self.ours.is_empty() && open.next().is_none()
    }
}

/// Routes between links. Time and bytes go in; what waits to be written is in the outbox of each
/// link.
pub struct Hub {
    options: HubOptions,
    links: Vec<Option<Box<Link>>>,
    free: Vec<LinkId>,
    names: BTreeMap<String, LinkId>,
    /// How many nodes are joined with each grant.
    granted: BTreeMap<usize, usize>,
    tree: SubjectTree<Subscriber>,
    /// The subscriptions that say something of themselves, by their patterns.
    announced: BTreeMap<String, SubscriptionId>,
    /// Names whose links were lost.
    reservations: NameReservations,
    /// Bytes that wait for all links.
    queued: usize,
    /// Units of work done so far; see [`work`](Hub::work).
    work: u64,
    strangers: AuthThrottle,
    /// The latest time that a caller passed.
    now_us: u64,
    touched: Vec<LinkId>,
    closing: Vec<(LinkId, String)>,
    /// Links that ask for more than they read. They are closed once no route is being changed.
    choked: Vec<LinkId>,
    next_number: u32,
    counts: HubCounts,
    draw: u64,
    /// The seed, which differs between runs of a hub.
    run: u64,
    /// The number of the last published message.
    message: u64,
    /// Messages of other hubs that came before.
    crossed: Window,
    found: Vec<SubscriptionId>,
    /// Where the last message went, until that may have changed.
    course: Option<PublishRoute>,
    leaving: bool,
    /// The place whose connection is lost, until the other nodes are met again.
    lost: Option<String>,
    /// A link has another heartbeat than before.
    retimed: bool,
    /// The next examination of each link, and some outdated times.
    due: BinaryHeap<Reverse<(u64, LinkId)>>,
    /// Recorded changes; none if nobody asks for them.
    changes: Option<Vec<Change>>,
    /// Nodes of this hub itself have subscribed to something, or no longer do.
    interests_changed: bool,
}

impl Hub {
    /// A hub without links. The seed decides which member "any" chooses.
    pub fn new(options: HubOptions, seed: u64) -> Self {
        Self {
            options,
            links: Vec::new(),
            free: Vec::new(),
            names: BTreeMap::new(),
            granted: BTreeMap::new(),
            tree: SubjectTree::default(),
            announced: BTreeMap::new(),
            reservations: NameReservations::default(),
            queued: 0,
            work: 0,
            strangers: AuthThrottle::default(),
            now_us: 0,
            touched: Vec::new(),
            closing: Vec::new(),
            choked: Vec::new(),
            next_number: 1,
            counts: HubCounts::default(),
            draw: seed | 1,
            run: seed,
            message: 0,
            crossed: Window::new(CROSSED_SPAN_US, CROSSED_MAX),
            found: Vec::new(),
            course: None,
            leaving: false,
            lost: None,
            retimed: false,
            due: BinaryHeap::new(),
            changes: None,
            interests_changed: false,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// The longest frame that it takes.
    pub fn frame_bytes(&self) -> usize {
        self.options.frame_bytes
    }

    /// Counters of the hub.
    pub fn counts(&self) -> HubCounts {
        HubCounts { nodes: self.names.len() as u64, ..self.counts }
    }

    /// Adds a link; with `secret` its node can replace this link later.
    pub fn connected(&mut self, secret: String, now_us: u64) -> LinkId {
        self.course = None;
        self.now_us = self.now_us.max(now_us);
        let at = self.free.pop().unwrap_or_else(|| {
            self.links.push(None);
            self.links.len() - 1
        });
        let heartbeat = self.options.heartbeat_ms;
        let mut out = Outbox::new(self.options.queue_bytes);
        out.chunk_bytes(self.options.chunk_bytes);
        self.links[at] = Some(Box::new(Link {
            out,
            theirs: Mirror::new(self.options.in_flight),
            ours: Slots::new(self.options.in_flight),
            heart: Keepalive::new(heartbeat, heartbeat, now_us),
            number: self.next_number,
            name: String::new(),
            resume: secret,
            hello_secret: String::new(),
            joined_us: now_us,
            grant: None,
            bounds: Bounds::new(&self.options, TokenLimits::default()),
            knows: BTreeSet::new(),
            subscriptions: 0,
            announcements: Announcements::default(),
            queued: 0,
            place: None,
            refused: None,
            payload_max: self.options.payload_bytes,
            frame_max: self.options.frame_bytes,
            greeting_until_us: Some(now_us.saturating_add(self.options.greeting_ms.saturating_mul(1_000))),
            touched: false,
            missed: false,
            here: false,
            gateway: false,
            remote: false,
            partner: None,
            is_console: false,
            near: false,
            memory: false,
            hub: None,
            beat_at_us: u64::MAX,
            known_by: BTreeSet::new(),
            leaves: false,
            has_sent_all: false,
            fresh: false,
            has_read: false,
            closing: false,
        }));
        self.next_number = self.next_number.checked_add(1).unwrap_or(1);
        self.look_at(at);
        at
    }

    /// As [`connected`](Self::connected), for a node of this process: it lives as long as the hub,
    /// and needs no heartbeat. The limits of its token do not apply, and it is not counted among
    /// the nodes of that token.
    pub fn connected_here(&mut self, secret: String, now_us: u64) -> LinkId {
        let at = self.connected(secret, now_us);
        if let Some(link) = self.link(at) {
            (link.here, link.near) = (true, true);
        }
        at
    }

    /// As [`connected_here`](Self::connected_here), for the node with the number in the options, as
    /// long as no other link has it.
    pub fn connected_own(&mut self, secret: String, now_us: u64) -> LinkId {
        let number = self.options.number;
        let at = self.connected_here(secret, now_us);
        let is_taken = number == 0 || self.links.iter().flatten().any(|link| link.number == number);
        if let Some(link) = self.link(at).filter(|_| !is_taken) {
            link.number = number;
        }
        at
    }

    /// As [`connected_here`](Self::connected_here), for the hub's own gateway: it needs no token,
    /// may call, publish and subscribe everywhere, and states for whom. The gateway checks the
    /// permissions of its clients.
    pub fn connected_gateway(&mut self, secret: String, now_us: u64) -> LinkId {
        let at = self.connected_here(secret, now_us);
        if let Some(link) = self.link(at) {
            link.gateway = true;
        }
        at
    }

    /// As [`connected_here`](Self::connected_here), for a link that passes on what another hub
    /// says: it needs no token, and has the permissions of a grant of its own.
    pub fn connected_partner(&mut self, grant: Grant, secret: String, now_us: u64) -> LinkId {
        let grant = self.options.access.add_partner(grant);
        let at = self.connected_here(secret, now_us);
        if let Some(link) = self.link(at) {
            link.partner = Some(grant);
        }
        at
    }

    /// Permissions of the tokens.
    pub fn access(&self) -> &Access {
        &self.options.access
    }

    /// Replaces the permissions: from now on only nodes with these tokens may join. Nodes that
    /// joined before keep their permissions only if they needed no token.
    pub fn set_access(&mut self, access: Access) {
        self.course = None;
        let before = std::mem::take(&mut self.options.access);
        self.options.access = access.with_partners_of(before);
    }

    /// Notes that the connection to other nodes, at this place, is lost. None: they are met again.
    /// Meanwhile calls without a responder fail with `link_lost`.
    pub fn set_lost(&mut self, place: Option<&str>) {
        self.lost = place.map(str::to_owned);
    }

    /// Sets the place that a link comes from: after many refused tokens of a place, further answers
    /// are delayed.
    pub fn comes_from(&mut self, at: LinkId, place: u128) {
        if let Some(link) = self.link(at) {
            link.place = Some(place);
        }
    }

    /// Marks a link as that of a console that may only look, if the hub has no tokens.
    pub fn mark_console(&mut self, at: LinkId) {
        if let Some(link) = self.link(at) {
            link.is_console = true;
        }
    }

    /// Marks the peer of a link as local to this machine, so that it may share memory.
    pub fn is_near(&mut self, at: LinkId) {
        if let Some(link) = self.link(at) {
            link.near = true;
        }
    }

    /// The send queue of a link.
    pub fn outbox(&mut self, link: LinkId) -> Option<&mut Outbox> {
        self.link(link).map(|link| &mut link.out)
    }

    /// The links for which there is something new to write since this was asked before.
    pub fn touched(&mut self) -> Vec<LinkId> {
        let touched = std::mem::take(&mut self.touched);
        for &at in &touched {
            if let Some(link) = self.link(at) {
                link.touched = false;
            }
        }
        touched
    }

    /// The links to close once their last frames are written, with the reasons, since the last
    /// call.
    pub fn closing(&mut self) -> Vec<(LinkId, String)> {
        std::mem::take(&mut self.closing)
    }

    /// The name of a node that has joined; else an empty text.
    pub fn name_of(&self, link: LinkId) -> &str {
        self.links.get(link).and_then(Option::as_ref).map_or("", |link| &link.name)
    }

    /// True if the node of a link has joined.
    pub fn has_joined(&self, at: LinkId) -> bool {
        self.links.get(at).and_then(Option::as_ref).is_some_and(|link| link.greeting_until_us.is_none())
    }

    /// Records a write to a link.
    pub fn sent(&mut self, at: LinkId, now_us: u64) {
        let Some(link) = self.link(at) else { return };
        link.heart.sent(now_us);
        for id in link.out.ended() {
            link.ours.release(id);
        }
        let missed = link.missed;
        self.recount(at);
        if missed {
            self.tell_missed(at);
        }
    }

    /// Takes a frame of a link. If the frame breaks a rule, the link gets an error and is among the
    /// [`closing`](Self::closing) ones.
    pub fn received(&mut self, at: LinkId, frame: &Frame<'_>, now_us: u64) {
        self.now_us = self.now_us.max(now_us);
        self.work += 1 + frame.bytes.len() as u64 / 1_024;
        let Some(link) = self.link(at) else { return };
        if link.closing || link.refused.is_some() {
            return;
        }
        link.heart.note_received(now_us);
        link.has_sent_all &= matches!(frame.kind, Kind::Ping | Kind::Pong);
        let greeting = link.greeting_until_us.is_some();
        let handled = if greeting { self.greeted(at, frame, now_us) } else { self.handle(at, frame) };
        if let Err(error) = handled {
            let text = self.error_text(at, &error);
            self.close(at, error.code(), &text);
        }
        self.close_choked();
    }

    /// Bytes of a link that are no frame.
    pub fn garbled(&mut self, at: LinkId, error: &WireError) {
        self.close(at, error.code(), &error.to_string());
        self.close_choked();
    }

    /// Handles the loss of a link: the open exchanges of its node end for the other nodes.
    pub fn closed(&mut self, at: LinkId) {
        self.release(at);
        if let Some(link) = self.links.get_mut(at).and_then(Option::take) {
            self.queued = self.queued.saturating_sub(link.queued);
            self.free.push(at);
            // Another link may have this number soon.
            self.touched.retain(|&link| link != at);
            self.closing.retain(|(link, _)| *link != at);
        }
        self.close_choked();
    }

    /// Notifies all nodes that the hub takes no new exchanges. Later calls fail, and no other node
    /// may join.
    pub fn goodbye(&mut self) {
        self.leaving = true;
        for at in 0..self.links.len() {
            if self.links[at].as_ref().is_some_and(|link| link.greeting_until_us.is_none()) {
                self.tell(at, Kind::Goodbye, Flags::URGENT, 0, &[]);
            }
        }
    }

    /// Forwarded calls that are not answered yet, and long messages that are under way.
    pub fn open_calls(&self) -> usize {
        self.links.iter().flatten().map(|link| link.ours.len()).sum()
    }

    /// The same without streams: they may have no end.
    pub fn ending_calls(&self) -> usize {
        let is_stream = |back: &&ReverseRoute| matches!(back, ReverseRoute::Call { streams: true, .. });
        self.links.iter().flatten().flat_map(|link| link.ours.values()).filter(|back| !is_stream(back)).count()
    }

    /// The number of open exchanges of all nodes: calls, subscriptions and long messages.
    pub fn open_routes(&self) -> usize {
        self.links.iter().flatten().map(|link| link.theirs.len()).sum()
    }

    /// Scheduled checks of links: few for each link, however often its frames gather.
    pub fn scheduled_checks(&self) -> usize {
        self.due.len()
    }

    /// Subscriptions that are in force.
    pub fn subscriptions(&self) -> usize {
        self.tree.len()
    }

    fn handle(&mut self, at: LinkId, frame: &Frame<'_>) -> Result<(), WireError> {
        if frame.kind == Kind::Publish && self.publish_again(at, frame) {
            return Ok(());
        }
        // An invalid frame must not be forwarded: its receiver would close the link to the hub.
        frame.check()?;
        let shares_memory = self.link(at).is_some_and(|link| link.memory);
        super::session::check_placed(frame, shares_memory)?;
        match frame.kind {
            Kind::Ping => self.pinged(at, frame.id),
            Kind::Pong => self.answered_ping(at, frame.id),
            Kind::Error => {
                let number = FailHead::parse(frame.head)?.number;
                let text = format!("the node says {number}: {}", String::from_utf8_lossy(frame.payload));
                self.end_link(at, text);
            }
            Kind::Goodbye => self.leaves(at),
            Kind::Subscribe => self.subscribe(at, frame)?,
            Kind::Publish => self.publish(at, frame)?,
            Kind::Call => self.call(at, frame)?,
            Kind::Unsubscribe | Kind::Cancel => self.end_exchange(at, frame.id),
            Kind::Taken => self.acknowledge_payload(at, frame),
            Kind::Reply
            | Kind::Fail
            | Kind::Item
            | Kind::End
            | Kind::Credit
            | Kind::Window
            | Kind::Chunk
            | Kind::Alive => {
                return if frame.flags.answer() { self.answer(at, frame) } else { self.ask_on(at, frame) };
            }
            Kind::Hello | Kind::Welcome | Kind::Node | Kind::Ok => {
                let problem = "a node that has joined does not send this to its hub";
                return Err(WireError::Unexpected { kind: frame.kind.name(), problem });
            }
        }
        Ok(())
    }

    /// The error text for a node that broke a rule of the protocol.
    fn error_text(&mut self, at: LinkId, error: &WireError) -> String {
        match (error, self.link(at)) {
            (WireError::Limit { name: "link_in_flight", .. }, Some(link)) => {
                format!("{} is exceeded: open fewer exchanges at once", link.bounds.in_flight)
            }
            _ => error.to_string(),
        }
    }

    fn link(&mut self, at: LinkId) -> Option<&mut Link> {
        self.links.get_mut(at)?.as_deref_mut()
    }
}

/// Why a driver closes a link that the hub did not.
impl From<&Fault> for String {
    fn from(fault: &Fault) -> Self {
        match fault {
            Fault::Wire(error) => error.to_string(),
            Fault::Told { text, .. } => text.clone(),
            Fault::Silent => "nothing was heard for too long".to_owned(),
        }
    }
}

fn next_draw(state: &mut u64) -> u64 {
    // xorshift: which member of a group gets a message needs no better randomness.
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}
