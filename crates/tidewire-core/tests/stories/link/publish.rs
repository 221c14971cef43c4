//! Published messages: receivers, order, and dropped messages.

use tidewire_core::link::hub::HubOptions;
use tidewire_core::link::session::{Event, Greeting, Refused};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::{CallHead, Flags, PublishHead, SubscribeHead};

use crate::link::support::{MIB, World, announced, filled, lane};

// Promises: P13.5.
#[test]
fn every_node_with_a_matching_subscription_gets_it_once() {
    let mut world = World::new(1);
    let (sender, other) = (world.join("sender"), world.join("other"));
    world.subscribe(sender, "orders.*", "");
    world.subscribe(other, "orders.>", "");
    let second = world.subscribe(other, "orders.eu", "");
    world.subscribe(other, "stock", "");
    world.publish(sender, Flags::NORMAL, "orders.eu", b"one");
    world.publish(sender, Flags::NORMAL, "orders.eu.de", b"two");
    world.publish(sender, Flags::NORMAL, "orders", b"nobody");
    world.settle();
    assert_eq!(world.published(sender).len(), 0, "it gives them to its own subscriptions by itself");
    let events = world.events(other);
    for (event, payload) in events.iter().zip(["one", "two"]) {
        let Event::Published(message) = event else { panic!("{event:?}") };
        let head = PublishHead::parse(message.head()).unwrap();
        assert_eq!((head.to, message.payload()), (0, payload.as_bytes()));
        assert_eq!(world.nodes[other].session.name_of(head.origin).unwrap().name, "sender");
    }
    assert_eq!(events.len(), 2);

    world.nodes[other].session.unsubscribe(second);
    world.publish(sender, Flags::NORMAL, "orders.eu", b"three");
    world.settle();
    assert_eq!(world.published(other).len(), 1, "the wider one is still there");
    assert_eq!(world.hub.subscriptions(), 3);
}

#[test]
fn messages_that_are_alike_go_where_subscriptions_say_at_the_time() {
    let mut world = World::new(3);
    let (sender, other, third) = (world.join("sender"), world.join("other"), world.join("third"));
    let first = world.subscribe(other, "news", "");
    let got = |world: &mut World, payload: &[u8]| {
        world.publish(sender, Flags::NORMAL, "news", payload);
        world.settle();
        [other, third].map(|node| world.published(node).len())
    };
    assert_eq!([got(&mut world, b"one"), got(&mut world, b"two")], [[1, 0], [1, 0]]);
    world.subscribe(third, "news", "");
    assert_eq!(got(&mut world, b"three"), [1, 1]);
    world.nodes[other].session.unsubscribe(first);
    world.settle();
    assert_eq!(got(&mut world, b"four"), [0, 1]);
    world.cut(third);
    let late = world.join("late");
    world.subscribe(late, "news", "group");
    world.publish(sender, Flags::NORMAL, "news", b"five");
    world.publish(sender, Flags::NORMAL, "news", b"six");
    world.settle();
    assert_eq!(world.published(late), [b"five".to_vec(), b"six".to_vec()]);
}

// Promises: P13.8.
#[test]
fn one_member_of_each_queue_group_gets_it() {
    let mut world = World::new(2);
    let sender = world.join("sender");
    let (a, b, c) = (world.join("a"), world.join("b"), world.join("c"));
    // Two groups: one name with two patterns is two of them.
    let ids = [world.subscribe(a, "work", "q"), world.subscribe(b, "work", "q"), world.subscribe(c, "*", "q")];
    world.subscribe(a, "work", "");
    let mut counts = [0; 3];
    for _ in 0..200 {
        world.publish(sender, Flags::NORMAL, "work", b"x");
        world.settle();
        let mut plain = 0;
        for node in [a, b, c] {
            for event in world.events(node) {
                let Event::Published(message) = event else { panic!("{event:?}") };
                let to = PublishHead::parse(message.head()).unwrap().to;
                match ids.iter().position(|&id| id == to && world.nodes[node].link.is_some()) {
                    _ if to == 0 => plain += 1,
                    // Ids are those of each node: the same number may stand for another one
                    // elsewhere.
                    _ => counts[node - 1] += 1,
                }
            }
        }
        assert_eq!(plain, 1);
    }
    assert_eq!(counts[0] + counts[1], 200);
    assert!(counts[0] > 60 && counts[1] > 60, "each gets a share: {counts:?}");
    assert_eq!(counts[2], 200);
    // A member gives the message to itself: no other one of its group gets it.
    world.publish(a, Flags::NORMAL, "work", b"y");
    world.settle();
    assert_eq!([a, b, c].map(|node| world.published(node).len()), [0, 0, 1]);
}

#[test]
fn only_the_hub_publishes_on_its_own_subjects() {
    let mut world = World::new(7);
    let (watcher, liar) = (world.join("watcher"), world.join("liar"));
    world.subscribe(watcher, "$hub.services.*", "");
    world.publish(liar, Flags::NORMAL, "$hub.services.added", b"not true");
    let said = announced("svc.liar.1.*", 0);
    let head = SubscribeHead { queue: "", pattern: "svc.liar.1.*" };
    let id = world.nodes[liar].session.subscribe(&head, &said, 1).unwrap();
    world.settle();
    world.nodes[liar].session.unsubscribe(id);
    world.settle();
    let told = world.published(watcher);
    assert_eq!(told.len(), 2, "one comes and goes");
    for entry in &told {
        assert!(entry[5..].starts_with(b"\x04\0liar"), "it names its node: {entry:?}");
    }
    let head = SubscribeHead { queue: "", pattern: "svc.liar.1.*" };
    world.nodes[liar].session.subscribe(&head, &said, 1).unwrap();
    world.settle();
    world.cut(liar);
    world.settle();
    let last = world.published(watcher).pop().unwrap();
    assert!(last[5..].starts_with(b"\x04\0liar"), "also when the node is lost");
}

// Promises: P13.6.
#[test]
fn order_is_kept_in_each_lane_around_long_messages() {
    for seed in 0..20 {
        let mut world = World::new(seed);
        let (sender, receiver) = (world.join("sender"), world.join("receiver"));
        world.subscribe(receiver, "s", "");
        let mut sent = [0_u32; 4];
        for _ in 0..60 {
            let number = world.random.below(4);
            let bytes = 4 + world.random.pick(&[0, 100, 70_000, 300_000]);
            let mut payload = filled(bytes, 0);
            payload[..4].copy_from_slice(&sent[number].to_le_bytes());
            sent[number] += 1;
            world.publish(sender, lane(number as u8), "s", &payload);
            for _ in 0..world.random.below(20) {
                world.step();
            }
        }
        world.settle();
        let mut seen = [0_u32; 4];
        for event in world.events(receiver) {
            let Event::Published(message) = event else { panic!("{event:?}") };
            let got = u32::from_le_bytes(message.payload()[..4].try_into().unwrap());
            let next = &mut seen[message.flags.lane()];
            assert_eq!(got, *next, "seed {seed}");
            *next += 1;
        }
        assert_eq!(seen, sent, "seed {seed}");
        assert_eq!(world.nodes[sender].session.open_exchanges(), (0, 0), "slots of long messages are given back");
    }
}

#[test]
fn a_receiver_that_does_not_read_loses_messages_and_no_other_does() {
    let mut world = World::with(3, HubOptions { queue_bytes: MIB, ..HubOptions::new("hub") });
    let sender = world.join("sender");
    let (good, bad) = (world.join("good"), world.join("bad"));
    for node in [good, bad] {
        world.subscribe(node, "s", "");
    }
    world.subscribe(bad, "svc", "");
    world.nodes[bad].down.paused = true;
    for _ in 0..100 {
        world.publish(sender, Flags::NORMAL, "s", &filled(50_000, 0));
        world.settle();
    }
    assert_eq!(world.published(good).len(), 100);
    let dropped = world.hub.counts().dropped;
    assert!((70..85).contains(&dropped), "{dropped} dropped: a mebibyte waits");

    world.call(sender, "svc", &filled(50_000, 0), 1);
    let events = world.settled(sender);
    let [Event::Failed(1, number, message)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(*number, ErrorCode::Overloaded.number());
    assert!(message.payload().starts_with(b"link_queue_bytes"));

    world.nodes[bad].down.paused = false;
    world.settle();
    assert_eq!(world.published(bad).len() as u64, 100 - dropped);
    world.call(sender, "svc", &filled(50_000, 0), 2);
    world.settled_call(bad);
}

#[test]
fn a_sender_whose_hub_does_not_read_is_told() {
    let mut world = World::new(4);
    let node = world.join_with(&Greeting { queue_bytes: MIB, ..Greeting::new("a") });
    world.nodes[node].up.paused = true;
    let head = PublishHead { subject: "s", ..PublishHead::default() };
    let refused = (0..100).find_map(|_| {
        world.settle();
        world.nodes[node].session.publish(&head, Flags::NORMAL, filled(50_000, 0)[..].into()).err()
    });
    assert!(matches!(refused, Some(Refused::Full { .. })), "{refused:?}");
    let head = CallHead { subject: "s", ..CallHead::default() };
    let refused = world.nodes[node].session.call(&head, Flags::NORMAL, filled(50_000, 0)[..].into(), 1);
    assert!(matches!(refused, Err(Refused::Full { .. })), "{refused:?}");
    assert_eq!(world.nodes[node].session.open_exchanges(), (0, 0), "what was refused left nothing");
    world.nodes[node].up.paused = false;
    world.settle();
    world.publish(node, Flags::NORMAL, "s", b"goes on");
}

#[test]
fn a_node_has_as_many_subscriptions_as_the_hub_takes() {
    let mut world = World::with(5, HubOptions { subscriptions: 2, ..HubOptions::new("hub") });
    let node = world.join("a");
    world.subscribe(node, "a", "");
    let second = world.subscribe(node, "b", "");
    let head = SubscribeHead { queue: "", pattern: "c" };
    world.nodes[node].session.subscribe(&head, &[], 3).unwrap();
    let events = world.settled(node);
    let [Event::Failed(3, number, _)] = events[..] else { panic!("{events:?}") };
    assert_eq!(number, ErrorCode::LimitExceeded.number());
    world.nodes[node].session.unsubscribe(second);
    world.subscribe(node, "c", "");
    assert_eq!(world.hub.subscriptions(), 2);
}
