//! Nodes and a hub in virtual time, joined by pipes that deliver bytes in random pieces. A number
//! replays everything.

pub mod compressed;
pub mod shelf;

use std::collections::VecDeque;
use std::io::{Read, Write};

use tidewire_core::link::assembly::Message;
use tidewire_core::link::hub::{Hub, HubOptions, LinkId};
use tidewire_core::link::outbox::{PayloadParts, PendingSharedPayload};
use tidewire_core::link::session::{Event, Fault, Greeting, OutgoingPayload, Session, SharedPayloadArrived};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::{self, CallHead, FieldsWriter, Flags, Frame, PublishHead, SubscribeHead};

pub const KIB: usize = 1_024;
pub const MIB: usize = 1_024 * KIB;

/// Flags of a lane: 0 urgent, 1 high, 2 normal, 3 low.
pub fn lane(number: u8) -> Flags {
    Flags::NORMAL.in_lane(number)
}

/// A source of numbers that is the same everywhere.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    pub fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }
}

/// One direction of a connection.
#[derive(Default)]
pub struct Pipe {
    /// Taken from the outbox, and not written yet.
    staged: VecDeque<u8>,
    /// Written, and not read yet.
    flying: VecDeque<u8>,
    /// Read, and not a whole frame yet.
    arrived: Vec<u8>,
    /// Nobody reads.
    pub paused: bool,
}

/// One node, and its connection to the hub.
pub struct Node {
    pub session: Session<u32>,
    pub link: Option<LinkId>,
    pub events: Vec<Event<u32>>,
    /// The numbers of nodes whose end was reported to it.
    pub left: Vec<u32>,
    pub fault: Option<Fault>,
    pub up: Pipe,
    pub down: Pipe,
    /// The hub has closed the connection; what is on its way still arrives.
    ending: bool,
    /// Payloads in shared memory that it has not read yet.
    pub placed: VecDeque<SharedPayloadArrived>,
}

pub struct World {
    pub hub: Hub,
    pub nodes: Vec<Node>,
    pub now_us: u64,
    pub random: Random,
    /// Bytes that a connection holds.
    pub pipe_bytes: usize,
    /// Most bytes that move at once; less makes more pieces.
    pub piece_bytes: usize,
    /// For how long the event loops of all nodes have been blocked.
    pub blocked_ms: u32,
    /// True if the nodes that connect are on the machine of the hub.
    pub near: bool,
    /// The memory that the nodes share.
    pub shelf: shelf::Shelf,
    /// A node can't read one payload of so many where it lies; 0: it can read all.
    pub unread_one_in: usize,
    /// The shared memory lacks capacity for one payload of so many; 0: for all.
    pub full_one_in: usize,
    secrets: u64,
}

impl World {
    pub fn new(seed: u64) -> Self {
        Self::with(seed, HubOptions::new("hub"))
    }

    pub fn with(seed: u64, options: HubOptions) -> Self {
        Self {
            hub: Hub::new(options, seed),
            nodes: Vec::new(),
            now_us: 0,
            random: Random(seed),
            pipe_bytes: 64 * KIB,
            piece_bytes: 16 * KIB,
            blocked_ms: 0,
            near: true,
            shelf: shelf::Shelf::default(),
            unread_one_in: 0,
            full_one_in: 0,
            secrets: 0,
        }
    }

    /// A node connects and says HELLO; nothing has arrived yet.
    pub fn connect(&mut self, greeting: &Greeting) -> usize {
        let session = Session::join(greeting, self.now_us).expect("the greeting can be written");
        self.secrets += 1;
        let link = self.hub.connected(format!("secret-{}", self.secrets), self.now_us);
        if self.near {
            self.hub.is_near(link);
        }
        let (up, down) = (Pipe::default(), Pipe::default());
        self.nodes.push(Node {
            session,
            link: Some(link),
            events: Vec::new(),
            left: Vec::new(),
            fault: None,
            up,
            down,
            ending: false,
            placed: VecDeque::new(),
        });
        self.nodes.len() - 1
    }

    /// A node joins; its number.
    pub fn join(&mut self, name: &str) -> usize {
        self.join_with(&Greeting::new(name))
    }

    pub fn join_with(&mut self, greeting: &Greeting) -> usize {
        let at = self.connect(greeting);
        self.settle();
        assert!(matches!(self.events(at)[..], [Event::Joined(_)]), "{} joins", greeting.name);
        at
    }

    pub fn subscribe(&mut self, node: usize, pattern: &str, queue: &str) -> u64 {
        let head = SubscribeHead { queue, pattern };
        let id = self.nodes[node].session.subscribe(&head, &[], 9_999).expect("a subscription is sent");
        self.settle();
        let events = self.events(node);
        assert!(matches!(events[..], [Event::Subscribed(9_999)]), "{pattern}: {events:?}");
        id
    }

    /// Like [`subscribe`](Self::subscribe), but ignores other events at the node.
    pub fn subscribe_in_place(&mut self, node: usize, pattern: &str) {
        self.events(node);
        self.subscribe(node, pattern, "");
    }

    pub fn call(&mut self, node: usize, subject: &str, payload: &[u8], tag: u32) -> u64 {
        self.call_in(node, Flags::NORMAL, subject, payload, tag)
    }

    pub fn call_in(&mut self, node: usize, flags: Flags, subject: &str, payload: &[u8], tag: u32) -> u64 {
        // Enough for the items of all stories but those of credit.
        let head = CallHead { subject, credit: 1_000, ..CallHead::default() };
        let payload = self.sending(node, payload);
        self.nodes[node].session.call(&head, flags, payload, tag).expect("a call is sent")
    }

    /// A payload as a node sends it: a long one is written to shared memory, if the node and its
    /// hub share that.
    pub fn sending<'a>(&self, node: usize, payload: &'a [u8]) -> OutgoingPayload<'a> {
        match payload.into() {
            OutgoingPayload::Long(payload) if self.nodes[node].session.may_place() => OutgoingPayload::Lay(payload),
            sending => sending,
        }
    }

    /// A node writes a payload to shared memory, if there is capacity. False: no payload waits for
    /// that.
    pub fn lay(&mut self, at: usize) -> bool {
        let node = &mut self.nodes[at];
        let Some(PendingSharedPayload { id, answer, payload }) = node.session.out.next_to_lay() else { return false };
        let full = self.full_one_in > 0 && self.random.chance(self.full_one_in);
        let laid = (!full).then(|| self.shelf.lay(&all_of(&*payload)));
        node.session.out.lay(id, answer, laid);
        true
    }

    /// A node reads the next payload that lies in shared memory for it. False: there is none.
    pub fn read_placed(&mut self, at: usize) -> bool {
        let node = &mut self.nodes[at];
        let Some(placed) = node.placed.pop_front() else { return false };
        if let Some(mut buffer) = node.session.place_buffer(&placed) {
            let unread = self.unread_one_in > 0 && self.random.chance(self.unread_one_in);
            if !unread && let Some(payload) = self.shelf.read(&placed.place) {
                buffer.extend_from_slice(&payload);
            }
            node.session.place_read(&placed, buffer, self.now_us, &mut node.events);
        }
        true
    }

    /// The callee of a call takes items of its caller.
    pub fn invite(&mut self, (callee, call): (usize, u64), (caller, tag): (usize, u32), items: u32) {
        self.nodes[callee].session.want_input(call, items);
        self.settle();
        let events = self.events(caller);
        assert!(matches!(events[..], [Event::Credited(got, count)] if (got, count) == (tag, items)), "{events:?}");
    }

    pub fn publish(&mut self, node: usize, flags: Flags, subject: &str, payload: &[u8]) {
        let head = PublishHead { subject, ..PublishHead::default() };
        self.nodes[node].session.publish(&head, flags, payload.into()).expect("a message is sent");
    }

    /// Events at a node since the last call, without departures of nodes.
    pub fn events(&mut self, node: usize) -> Vec<Event<u32>> {
        let mut events = std::mem::take(&mut self.nodes[node].events);
        let left = |event: &Event<u32>| if let Event::Left(number) = event { Some(*number) } else { None };
        self.nodes[node].left.extend(events.iter().filter_map(left));
        events.retain(|event| left(event).is_none());
        events
    }

    /// The one call that has come in at a node, and nothing else has.
    pub fn called(&mut self, node: usize) -> Message {
        let mut events = self.events(node);
        match (events.pop(), events.is_empty()) {
            (Some(Event::Called(message)), true) => message,
            (other, _) => panic!("one call was expected at {node}: {events:?} {other:?}"),
        }
    }

    /// Settles, and takes the events of a node.
    pub fn settled(&mut self, node: usize) -> Vec<Event<u32>> {
        self.settle();
        self.events(node)
    }

    /// Settles, and takes the one call that has come to a node.
    pub fn settled_call(&mut self, node: usize) -> Message {
        self.settle();
        self.called(node)
    }

    /// Messages that were published to a node; there must be no other events.
    pub fn published(&mut self, node: usize) -> Vec<Vec<u8>> {
        let payload = |event| match event {
            Event::Published(message) => message.payload().to_vec(),
            other => panic!("only messages were expected at {node}: {other:?}"),
        };
        self.events(node).into_iter().map(payload).collect()
    }

    /// Moves some bytes of one random direction.
    pub fn step(&mut self) {
        if self.nodes.is_empty() {
            return;
        }
        self.now_us += self.random.below(50) as u64;
        let node = self.random.below(self.nodes.len());
        if self.random.chance(2) {
            self.pump_up(node);
        } else {
            self.pump_down(node);
        }
        self.close();
    }

    /// Moves some bytes of a node to the hub.
    pub fn step_up(&mut self, node: usize) {
        self.pump_up(node);
    }

    /// Moves some bytes of the hub to a node.
    pub fn step_down(&mut self, node: usize) {
        self.pump_down(node);
        self.close();
    }

    /// Moves bytes until nothing moves any more.
    pub fn settle(&mut self) {
        loop {
            let mut moved = false;
            for node in 0..self.nodes.len() {
                moved |= self.pump_up(node);
                moved |= self.pump_down(node);
                moved |= self.close();
            }
            if !moved {
                return;
            }
        }
    }

    /// Time passes, with all that it asks for.
    pub fn wait_us(&mut self, us: u64) {
        let until = self.now_us + us;
        while self.now_us < until {
            let next = self.nodes.iter().filter(|node| node.link.is_some()).map(|node| node.session.next_us());
            let next = next.chain([self.hub.next_us()]).min().unwrap_or(until);
            self.now_us = next.clamp(self.now_us + 1, until);
            self.hub.tick(self.now_us);
            for at in 0..self.nodes.len() {
                let node = &mut self.nodes[at];
                if node.link.is_none() {
                    continue;
                }
                if node.session.is_telling_due(self.now_us) {
                    node.session.still_at_work(self.blocked_ms, self.now_us);
                }
                if let Err(fault) = node.session.tick(self.now_us) {
                    node.fault = Some(fault);
                    self.cut(at);
                }
            }
            self.settle();
        }
    }

    /// The connection breaks: all bytes under way are lost.
    pub fn cut(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let Some(link) = node.link.take() else { return };
        (node.up, node.down, node.ending) = (Pipe::default(), Pipe::default(), false);
        node.placed.clear();
        node.session.lost(&mut node.events);
        self.hub.closed(link);
    }

    /// Gives bytes to the hub as if the node had sent them.
    pub fn inject(&mut self, at: usize, bytes: &[u8]) {
        self.nodes[at].up.flying.extend(bytes);
    }

    fn pump_up(&mut self, at: usize) -> bool {
        let (pipe_bytes, now) = (self.pipe_bytes, self.now_us);
        let Some(link) = self.nodes[at].link else { return false };
        let mut moved = self.lay(at);
        let node = &mut self.nodes[at];
        if node.up.staged.is_empty() {
            let mut bytes = Vec::new();
            if node.session.out.take(&mut bytes, budget(&mut self.random)) {
                node.session.sent(now);
                node.up.staged.write_all(&bytes).unwrap();
                moved = true;
            }
        }
        moved |= node.up.carry(pipe_bytes, self.piece_bytes, &mut self.random);
        loop {
            match wire::read(&self.nodes[at].up.arrived, self.hub.frame_bytes()) {
                Ok(Some(frame)) => {
                    let count = frame.bytes.len();
                    self.hub.received(link, &frame, now);
                    self.nodes[at].up.arrived.drain(..count);
                }
                Ok(None) => return moved,
                Err(error) => {
                    self.hub.garbled(link, &error);
                    self.nodes[at].up.arrived.clear();
                    return true;
                }
            }
        }
    }

    fn pump_down(&mut self, at: usize) -> bool {
        let now = self.now_us;
        let Some(link) = self.nodes[at].link else { return false };
        let mut moved = false;
        if self.nodes[at].down.staged.is_empty() {
            let mut bytes = Vec::new();
            if self.hub.outbox(link).is_some_and(|out| out.take(&mut bytes, budget(&mut self.random))) {
                self.hub.sent(link, now);
                self.nodes[at].down.staged.write_all(&bytes).unwrap();
                moved = true;
            }
        }
        moved |= self.read_placed(at);
        let node = &mut self.nodes[at];
        moved |= node.down.carry(self.pipe_bytes, self.piece_bytes, &mut self.random);
        if let Err(fault) = node.read(now) {
            node.fault = Some(fault);
            self.cut(at);
            return true;
        }
        if self.nodes[at].ending && !moved {
            self.cut(at);
            return true;
        }
        moved
    }

    /// Closes what the hub wants closed, once its last frames were read.
    fn close(&mut self) -> bool {
        self.hub.touched();
        let closing = self.hub.closing();
        for (link, _) in &closing {
            for node in self.nodes.iter_mut().filter(|node| node.link == Some(*link)) {
                node.ending = true;
                node.down.paused = false;
            }
        }
        !closing.is_empty()
    }
}

impl Node {
    fn read(&mut self, now_us: u64) -> Result<(), Fault> {
        while let Some(frame) = wire::read(&self.down.arrived, 16 * MIB)? {
            let count = frame.bytes.len();
            self.session.received(&frame, now_us, &mut self.events)?;
            self.session.inflate(now_us, &mut self.events);
            self.down.arrived.drain(..count);
        }
        let is_placed = |event: &mut Event<u32>| matches!(event, Event::Placed(_));
        let placed = |event| if let Event::Placed(placed) = event { Some(placed) } else { None };
        self.placed.extend(self.events.extract_if(.., is_placed).filter_map(placed));
        Ok(())
    }
}

impl Pipe {
    /// Moves a piece into the connection, and a piece out of it.
    fn carry(&mut self, pipe_bytes: usize, piece_bytes: usize, random: &mut Random) -> bool {
        let room = pipe_bytes.saturating_sub(self.flying.len());
        let count = (1 + random.below(piece_bytes)).min(room).min(self.staged.len());
        let mut piece = vec![0; count];
        self.staged.read_exact(&mut piece).unwrap();
        self.flying.write_all(&piece).unwrap();
        if self.paused {
            return count > 0;
        }
        let read = (1 + random.below(piece_bytes)).min(self.flying.len());
        let from = self.arrived.len();
        self.arrived.resize(from + read, 0);
        self.flying.read_exact(&mut self.arrived[from..]).unwrap();
        count + read > 0
    }
}

/// How much is taken for one write.
fn budget(random: &mut Random) -> usize {
    random.pick(&[1, 100, 10 * KIB, 256 * KIB])
}

/// A caller, and a node that answers calls on `svc`.
pub fn pair(seed: u64) -> (World, usize, usize) {
    let mut world = World::new(seed);
    let (caller, callee) = (world.join("caller"), world.join("callee"));
    world.subscribe(callee, "svc", "");
    (world, caller, callee)
}

/// Settles, and takes the one call that has failed at a node; nothing else has happened there.
pub fn failure(world: &mut World, node: usize) -> (u32, ErrorCode, String) {
    let events = world.settled(node);
    let [Event::Failed(tag, number, message)] = &events[..] else { panic!("one failure was expected: {events:?}") };
    let text = String::from_utf8(message.payload().to_vec()).unwrap();
    (*tag, ErrorCode::from_number(*number).unwrap(), text)
}

/// Nothing waits anywhere, and nothing but subscriptions is open.
pub fn nothing_is_left(world: &World) {
    for (at, node) in world.nodes.iter().enumerate() {
        assert_eq!(node.session.out.bytes(), 0, "the outbox of {at}");
        assert_eq!(node.session.coming_bytes(), 0, "the payloads of {at}");
        assert_eq!(node.session.open_exchanges().1, 0, "the calls of {at}");
    }
    assert_eq!(world.hub.open_calls(), 0);
    assert_eq!(world.hub.open_routes(), world.hub.subscriptions());
}

/// All bytes of a payload.
fn all_of(payload: &dyn PayloadParts) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < payload.bytes() {
        all.extend_from_slice(payload.piece(all.len()));
    }
    all
}

/// The whole frames in these bytes.
pub fn frames(mut bytes: &[u8]) -> Vec<Frame<'_>> {
    let mut found = Vec::new();
    while let Some(frame) = wire::read(bytes, 16 * MIB).expect("the bytes are frames") {
        bytes = &bytes[frame.bytes.len()..];
        found.push(frame);
    }
    assert!(bytes.is_empty(), "no part of a frame is left");
    found
}

/// Bytes that differ from place to place, so that a payload put together wrongly is seen.
pub fn filled(bytes: usize, tag: u32) -> Vec<u8> {
    // The period is a prime, so that no cut fits it.
    let period: Vec<u8> =
        (0..4_099_u32).map(|at| (at.wrapping_add(tag).wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut payload = period.repeat(bytes / period.len() + 1);
    payload.truncate(bytes);
    payload
}

/// An announcement of an instance or an agent on its subject, in about so many bytes.
pub fn announced(pattern: &str, bytes: usize) -> Vec<u8> {
    let (description, mut said) = ("m".repeat(bytes), Vec::new());
    let tokens: Vec<&str> = pattern.split('.').collect();
    let (field, json) = match tokens[..] {
        ["svc", name, instance, "*"] => (
            "service",
            serde_json::json!({
                "name": name, "description": description, "visibility": "private", "methods": [], "events": [],
                "instances": [instance],
            }),
        ),
        ["agent", id] => ("agent", serde_json::json!({"id": id, "type": "desk", "capabilities": [description]})),
        _ => panic!("{pattern}: nothing is announced there"),
    };
    FieldsWriter::new(&mut said).add(field, json.to_string().as_bytes()).unwrap();
    said
}
