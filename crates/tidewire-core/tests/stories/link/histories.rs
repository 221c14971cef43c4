//! Random histories of nodes and a hub.

use std::collections::{BTreeMap, BTreeSet};

use tidewire_core::link::hub::HubOptions;
use tidewire_core::link::session::{Event, Greeting};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::{CallHead, Flags, PublishHead, SubscribeHead};
use tidewire_testkit::seeds::seeds;

use crate::link::support::{KIB, MIB, Random, World, filled, lane, shelf};

/// Tags of subscriptions begin here.
const SUBSCRIPTIONS: u32 = 1 << 30;

/// Observations from outside of one node.
#[derive(Default)]
struct Seen {
    /// Calls that have not ended, by tag.
    waiting: BTreeMap<u32, u64>,
    /// Subscriptions that are not in force yet.
    subscribing: BTreeSet<u32>,
    subscriptions: Vec<u64>,
    /// Calls of others that are to be answered.
    open: BTreeSet<u64>,
    /// How many items they may be answered with.
    items: BTreeMap<u64, u32>,
    /// How many items the calls that have not ended may send, by tag.
    input: BTreeMap<u32, u32>,
    /// The last message of each sender, lane, and subscription.
    last: BTreeMap<(u32, usize, u64), u32>,
    /// How many it has published in each lane.
    published: [u32; 4],
    over: bool,
}

struct History {
    number: u64,
    world: World,
    seen: Vec<Seen>,
    random: Random,
    next_tag: u32,
    names: u32,
    happened: Happened,
}

/// How often each kind of event has happened.
type Happened = BTreeMap<&'static str, usize>;

impl History {
    fn new(number: u64) -> Self {
        let mut random = Random(number.wrapping_mul(0x2545_F491_4F6C_DD1D));
        let options = HubOptions {
            in_flight: random.pick(&[8, 100, 65_536]),
            queue_bytes: random.pick(&[256 * KIB, 64 * MIB]),
            payload_bytes: random.pick(&[150_000, 64 * MIB]),
            ..shelf::sharing_hub()
        };
        let mut world = World::with(number, options);
        world.unread_one_in = random.pick(&[0, 3]);
        world.full_one_in = random.pick(&[0, 3]);
        world.pipe_bytes = random.pick(&[100, 10 * KIB, 200 * KIB]);
        world.piece_bytes = random.pick(&[50, 5 * KIB, 200 * KIB]);
        let mut history =
            Self { number, world, seen: Vec::new(), random, next_tag: 0, names: 0, happened: Happened::new() };
        for _ in 0..2 + history.random.below(3) {
            history.join();
        }
        history
    }

    fn run(mut self) -> Happened {
        for _ in 0..self.random.pick(&[30, 100, 300]) {
            self.act();
            for _ in 0..self.random.below(40) {
                self.world.step();
            }
            self.look();
        }
        self.end()
    }

    fn act(&mut self) {
        let live: Vec<_> = (0..self.seen.len()).filter(|&node| !self.seen[node].over).collect();
        if live.len() < 2 || live.len() < 6 && self.random.chance(50) {
            return self.join();
        }
        let node = self.random.pick(&live);
        if self.seen[node].subscriptions.is_empty() && self.random.chance(2) {
            return self.subscribe(node);
        }
        match self.random.below(40) {
            0..=9 => self.call(node),
            10..=19 => self.answer(node),
            20..=27 => self.publish(node),
            28..=30 => self.subscribe(node),
            31 => self.unsubscribe(node),
            32 | 33 => self.cancel(node),
            34 | 35 => self.input(node),
            36 => self.world.nodes[node].down.paused ^= true,
            37 => self.world.nodes[node].up.paused ^= true,
            38 if self.random.chance(3) => self.cut(node),
            _ => {}
        }
    }

    fn join(&mut self) {
        self.names += 1;
        let name = format!("node-{}", self.names);
        let mut greeting = if self.random.chance(2) { shelf::sharing(&name) } else { Greeting::new(&name) };
        greeting.in_flight = self.random.pick(&[4, 65_536]);
        greeting.payload_bytes = self.random.pick(&[100_000, 64 * MIB]);
        self.world.connect(&greeting);
        self.seen.push(Seen::default());
    }

    fn cut(&mut self, node: usize) {
        self.world.cut(node);
        self.gone(node);
    }

    /// The link of a node has ended: everything of it has.
    fn gone(&mut self, node: usize) {
        self.look_at(node);
        let (number, seen) = (self.number, &mut self.seen[node]);
        seen.over = true;
        assert!(seen.waiting.is_empty(), "history {number}: calls of {node} have not ended: {:?}", seen.waiting);
        assert!(seen.subscribing.is_empty(), "history {number}: subscriptions of {node}");
        assert!(seen.open.is_empty(), "history {number}: calls for {node}: {:?}", seen.open);
        let session = &self.world.nodes[node].session;
        let left = (session.open_exchanges(), session.out.bytes(), session.coming_bytes());
        assert_eq!(left, ((0, 0), 0, 0), "history {number}: node {node}");
    }

    fn size(&mut self) -> usize {
        let small = self.random.below(200);
        let large = self.random.below(400_000);
        if self.random.chance(4) { large } else { small }
    }

    fn lane(&mut self) -> Flags {
        lane(self.random.below(4) as u8)
    }

    fn call(&mut self, node: usize) {
        let (bytes, flags, tag) = (self.size(), self.lane(), self.next_tag);
        let subject = ["svc.a", "svc.b", "$hub.services"][self.random.below(13) / 6];
        let head = CallHead { subject, choice: self.random.below(3) as u8, credit: tag, ..CallHead::default() };
        let payload = filled(bytes, tag);
        let payload = self.world.sending(node, &payload);
        let sent = self.world.nodes[node].session.call(&head, flags, payload, tag);
        if let Ok(id) = sent {
            self.seen[node].waiting.insert(tag, id);
            self.next_tag += 1;
        }
    }

    fn answer(&mut self, node: usize) {
        let open: Vec<_> = self.seen[node].open.iter().copied().collect();
        let Some(id) = self.one_of(&open) else { return };
        let (bytes, flags, what) = (self.size(), self.lane(), self.random.below(10));
        let payload = filled(bytes, 5);
        let payload = self.world.sending(node, &payload);
        let session = &mut self.world.nodes[node].session;
        let ended = match what {
            0..=3 => session.reply(id, flags, payload).is_ok(),
            4 | 5 => session.fail(id, ErrorCode::RemoteError, payload).is_ok(),
            6 => {
                session.answer_over(id);
                true
            }
            7 => {
                session.alive(id);
                session.want_input(id, 3);
                false
            }
            _ => {
                session.want_input(id, 3);
                let credit = self.seen[node].items.entry(id).or_default();
                if *credit > 0 && session.answer_item(id, flags, payload).is_ok() {
                    *credit -= 1;
                }
                false
            }
        };
        if ended {
            self.seen[node].open.remove(&id);
        }
    }

    fn publish(&mut self, node: usize) {
        let (bytes, number) = (12 + self.size(), self.random.below(4));
        let seen = &mut self.seen[node].published[number];
        let mut payload = filled(bytes, 6);
        payload[..4].copy_from_slice(&(node as u32).to_le_bytes());
        payload[4..8].copy_from_slice(&seen.to_le_bytes());
        payload[8..12].copy_from_slice(&(bytes as u32).to_le_bytes());
        let head = PublishHead { subject: "news.all", ..PublishHead::default() };
        if self.world.nodes[node].session.publish(&head, lane(number as u8), payload[..].into()).is_ok() {
            *seen += 1;
        }
    }

    fn subscribe(&mut self, node: usize) {
        let instance = format!("svc.s.{node}.*");
        let pattern = self.random.pick(&["svc.a", "svc.*", "svc.>", "news.*", "news.all", &instance]);
        let (queue, says) = match pattern == instance {
            true => ("", &b"\x01\x07service\x01\0b"[..]),
            false => (self.random.pick(&["", "q", "r"]), &b""[..]),
        };
        let head = SubscribeHead { queue, pattern };
        let tag = SUBSCRIPTIONS + self.next_tag;
        if let Ok(id) = self.world.nodes[node].session.subscribe(&head, says, tag) {
            self.seen[node].subscribing.insert(tag);
            self.seen[node].subscriptions.push(id);
            self.next_tag += 1;
        }
    }

    fn unsubscribe(&mut self, node: usize) {
        // Only active subscriptions, so that each is counted once.
        let subscriptions = self.seen[node].subscriptions.clone();
        if self.seen[node].subscribing.is_empty()
            && let Some(id) = self.one_of(&subscriptions)
        {
            self.world.nodes[node].session.unsubscribe(id);
            self.seen[node].subscriptions.retain(|other| *other != id);
        }
    }

    fn cancel(&mut self, node: usize) {
        let waiting: Vec<_> = self.seen[node].waiting.iter().map(|(&tag, &id)| (tag, id)).collect();
        if let Some((tag, id)) = self.one_of(&waiting) {
            self.world.nodes[node].session.cancel(id);
            self.seen[node].waiting.remove(&tag);
        }
    }

    fn input(&mut self, node: usize) {
        let credited = |seen: &Seen| -> Vec<(u32, u64)> {
            let waiting = seen.waiting.iter().map(|(&tag, &id)| (tag, id));
            waiting.filter(|(tag, _)| !seen.over && seen.input.get(tag).is_some_and(|&credit| credit > 0)).collect()
        };
        // Somebody who may send, if there is one.
        let ready = (0..self.seen.len()).find(|&other| !credited(&self.seen[other]).is_empty());
        let node = ready.unwrap_or(node);
        let waiting = match ready {
            Some(node) => credited(&self.seen[node]),
            None => self.seen[node].waiting.iter().map(|(&tag, &id)| (tag, id)).collect(),
        };
        let (bytes, flags) = (self.size(), self.lane());
        if let Some((tag, id)) = self.one_of(&waiting) {
            let payload = filled(bytes, 7);
            let payload = self.world.sending(node, &payload);
            let session = &mut self.world.nodes[node].session;
            let credit = self.seen[node].input.entry(tag).or_default();
            if *credit > 0 && session.item(id, flags, payload).is_ok() {
                *credit -= 1;
            }
            session.want(id, 2);
            // Most streams wait until somebody reads them.
            if self.random.chance(8) {
                self.world.nodes[node].session.over(id);
            }
        }
    }

    fn one_of<T: Copy>(&mut self, values: &[T]) -> Option<T> {
        (!values.is_empty()).then(|| self.random.pick(values))
    }

    fn look(&mut self) {
        for node in 0..self.seen.len() {
            self.look_at(node);
            let here = &self.world.nodes[node];
            assert_eq!(here.fault, None, "history {}: node {node}", self.number);
            assert!(here.link.is_some() || self.seen[node].over, "history {}: node {node} was closed", self.number);
        }
    }

    fn look_at(&mut self, node: usize) {
        for event in self.world.events(node) {
            self.check(node, event);
        }
    }

    fn check(&mut self, node: usize, event: Event<u32>) {
        let number = self.number;
        *self.happened.entry(name_of(&event)).or_default() += 1;
        let seen = &mut self.seen[node];
        match event {
            Event::Called(call) => {
                let head = CallHead::parse(call.head()).unwrap();
                assert!(
                    call.payload() == filled(call.payload().len(), head.credit),
                    "history {number}: a call is whole"
                );
                assert!(seen.open.insert(call.id), "history {number}: a call came twice");
                seen.items.insert(call.id, head.credit);
            }
            Event::Cancelled(id) => assert!(seen.open.remove(&id) || seen.over, "history {number}: {id} was not open"),
            Event::Replied(tag, message) => {
                let whole = message.payload() == filled(message.payload().len(), 5);
                assert!(whole || message.payload()[0] == 0xc6, "history {number}: an answer is whole");
                assert!(seen.waiting.remove(&tag).is_some(), "history {number}: call {tag} ended twice");
            }
            Event::Failed(tag, ..) | Event::Over(tag) | Event::Lost(tag) | Event::Subscribed(tag) => {
                let ended = seen.waiting.remove(&tag).is_some() || seen.subscribing.remove(&tag);
                assert!(ended, "history {number}: {tag} ended twice");
            }
            Event::Item(tag, item) => {
                assert!(seen.waiting.contains_key(&tag), "history {number}: an item of {tag} after its end");
                assert!(item.payload() == filled(item.payload().len(), 5), "history {number}: an item is whole");
            }
            Event::Input(item) => {
                assert!(item.payload() == filled(item.payload().len(), 7), "history {number}: input is whole");
            }
            Event::Credited(tag, items) => {
                assert!(seen.waiting.contains_key(&tag), "history {number}");
                *seen.input.entry(tag).or_default() += items;
            }
            Event::Alive(tag, _) => assert!(seen.waiting.contains_key(&tag), "history {number}"),
            Event::Wanted(id, items) => *seen.items.entry(id).or_default() += items,
            Event::Published(message) => self.published(node, &message),
            Event::Joined(_) | Event::InputOver(_) => {}
            Event::Left(_) => {}
            Event::Dropped(why) => panic!("history {number}: {why}"),
            Event::Goodbye => panic!("history {number}: nobody says goodbye"),
            Event::Placed(_) => unreachable!("the world reads what is placed"),
        }
    }

    fn published(&mut self, node: usize, message: &tidewire_core::link::assembly::Message) {
        let number = self.number;
        let head = PublishHead::parse(message.head()).unwrap();
        let payload = message.payload();
        let word = |at: usize| u32::from_le_bytes(payload[at..at + 4].try_into().unwrap());
        let (sender, position, bytes) = (word(0), word(4), word(8) as usize);
        assert!(
            payload.len() == bytes && payload[12..] == filled(bytes, 6)[12..],
            "history {number}: a message is whole"
        );
        let last = self.seen[node].last.insert((sender, message.flags.lane(), head.to), position);
        assert!(last.is_none_or(|last| last < position), "history {number}: {position} of {sender} after {last:?}");
        assert_ne!(sender as usize, node, "history {number}: nobody gets its own messages from the hub");
        if let Some(named) = self.world.nodes[node].session.name_of(head.origin) {
            assert_eq!(named.name, format!("node-{}", sender + 1), "history {number}");
        }
    }

    /// Everything that is open is answered, and then nothing is left.
    fn end(mut self) -> Happened {
        for node in &mut self.world.nodes {
            (node.up.paused, node.down.paused) = (false, false);
        }
        for _ in 0..50 {
            self.world.settle();
            self.look();
            for node in 0..self.seen.len() {
                for id in std::mem::take(&mut self.seen[node].open) {
                    self.world.nodes[node].session.reply(id, Flags::NORMAL, b""[..].into()).unwrap();
                }
            }
        }
        for node in 0..self.seen.len() {
            for id in std::mem::take(&mut self.seen[node].subscriptions) {
                self.world.nodes[node].session.unsubscribe(id);
            }
        }
        self.world.settle();
        self.look();
        let number = self.number;
        for (at, seen) in self.seen.iter().enumerate() {
            assert!(seen.waiting.is_empty(), "history {number}: calls of {at} have not ended: {:?}", seen.waiting);
            assert!(seen.subscribing.is_empty(), "history {number}: subscriptions of {at}");
            let node = &mut self.world.nodes[at];
            let left = (node.session.open_exchanges(), node.session.out.bytes(), node.session.coming_bytes());
            assert_eq!(left, ((0, 0), 0, 0), "history {number}: node {at}");
            if let Some(link) = node.link {
                assert_eq!(self.world.hub.outbox(link).unwrap().bytes(), 0, "history {number}: link {link}");
            }
        }
        let hub = &self.world.hub;
        let left = (hub.open_calls(), hub.open_routes(), hub.subscriptions());
        assert_eq!(left, (0, 0, 0), "history {number}: calls, routes, subscriptions of the hub");
        let (lying, laid) = self.world.shelf.counts();
        assert_eq!(lying, 0, "history {number}: payloads in shared memory that nobody awaits");
        *self.happened.entry("laid").or_default() += laid as usize;
        *self.happened.entry("dropped").or_default() += hub.counts().dropped as usize;
        self.happened
    }
}

fn name_of(event: &Event<u32>) -> &'static str {
    match event {
        Event::Joined(_) => "joined",
        Event::Called(_) => "called",
        Event::Cancelled(_) => "cancelled",
        Event::Input(_) => "input",
        Event::InputOver(_) => "input over",
        Event::Wanted(..) => "wanted",
        Event::Published(_) => "published",
        Event::Dropped(_) => "unreadable",
        Event::Subscribed(_) => "subscribed",
        Event::Replied(..) => "replied",
        Event::Failed(..) => "failed",
        Event::Item(..) => "item",
        Event::Over(_) => "over",
        Event::Credited(..) => "credited",
        Event::Alive(..) => "alive",
        Event::Left(_) => "left",
        Event::Goodbye => "goodbye",
        Event::Placed(_) => "placed",
        Event::Lost(_) => "lost",
    }
}

// Promises: P13.14.
#[test]
fn every_call_ends_once_and_nothing_is_left_in_every_history() {
    let mut happened = Happened::new();
    let is_whole = seeds("histories of nodes and a hub", 100, |seed| {
        for (name, count) in History::new(seed).run() {
            *happened.entry(name).or_default() += count;
        }
    });
    println!("{happened:?}");
    if is_whole {
        assert_eq!(happened.len(), 17, "everything but a goodbye has happened: {happened:?}");
        assert!(happened.values().all(|&count| count > 20), "{happened:?}");
    }
}
