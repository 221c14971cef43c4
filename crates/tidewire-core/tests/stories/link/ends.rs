//! Ends of links: in the middle of any exchange, by silence, and by fault.

use tidewire_core::link::hub::HubOptions;
use tidewire_core::link::session::{Event, Fault, Greeting};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::{self, Flags, Kind};

use crate::link::support::{MIB, World, filled, lane};

const SECOND_US: u64 = 1_000_000;

#[test]
fn a_node_that_goes_away_in_the_middle_of_everything_leaves_nothing() {
    for seed in 0..60 {
        let mut world = World::new(seed);
        let (gone, a, b) = (world.join("gone"), world.join("a"), world.join("b"));
        for node in [gone, a, b] {
            world.subscribe(node, &format!("svc.{node}"), "");
            world.subscribe(node, "all", "");
        }
        let mut calls = 0;
        for (from, to) in [(gone, a), (a, gone), (b, gone), (gone, gone)] {
            for bytes in [10, 3_000_000] {
                let number = world.random.below(4) as u8;
                world.call_in(from, lane(number), &format!("svc.{to}"), &filled(bytes, 0), calls);
                calls += 1;
            }
        }
        for node in [gone, a, b] {
            world.publish(node, Flags::NORMAL, "all", &filled(2 * MIB, 0));
        }
        for _ in 0..world.random.below(1_000) {
            world.step();
        }
        for at in [a, b] {
            for event in std::mem::take(&mut world.nodes[at].events) {
                if let Event::Called(call) = event {
                    let session = &mut world.nodes[at].session;
                    session.reply(call.id, Flags::NORMAL, filled(2 * MIB, 0)[..].into()).unwrap();
                }
            }
        }
        for _ in 0..world.random.below(1_000) {
            world.step();
        }
        world.cut(gone);
        let ends = |event: &Event<u32>| matches!(event, Event::Lost(_) | Event::Replied(..));
        let endings = world.events(gone).into_iter().filter(ends);
        assert_eq!(endings.count(), 4, "its own calls have ended, seed {seed}");
        assert_eq!(world.nodes[gone].session.open_exchanges(), (0, 0));
        assert_eq!(world.nodes[gone].session.out.bytes() + world.nodes[gone].session.coming_bytes(), 0);

        world.settle();
        let mut open = Vec::new();
        for node in [a, b] {
            for event in world.events(node) {
                match event {
                    Event::Failed(_, number, _) => {
                        // The call had arrived at the hub, or it had not.
                        let lost = [ErrorCode::LinkLost.number(), ErrorCode::NoResponders.number()];
                        assert!(lost.contains(&number), "{number}, seed {seed}");
                    }
                    Event::Called(call) => open.push((node, call.id)),
                    Event::Cancelled(id) => open.retain(|it| *it != (node, id)),
                    Event::Published(_) => {}
                    other => panic!("seed {seed}: {other:?}"),
                }
            }
        }
        assert!(open.is_empty(), "callees were told, seed {seed}: {open:?}");
        for node in [a, b] {
            let session = &world.nodes[node].session;
            assert_eq!(session.open_exchanges(), (2, 0), "two subscriptions, seed {seed}");
            assert_eq!((session.out.bytes(), session.coming_bytes()), (0, 0), "seed {seed}");
        }
        assert_eq!(
            (world.hub.open_calls(), world.hub.open_routes(), world.hub.subscriptions()),
            (0, 4, 4),
            "seed {seed}"
        );
    }
}

#[test]
fn the_next_node_on_the_same_link_gets_nothing_that_was_meant_for_the_last_one() {
    let mut world = World::new(1);
    let (sender, old) = (world.join("sender"), world.join("old"));
    world.subscribe(old, "all", "");
    world.nodes[old].down.paused = true;
    world.publish(sender, Flags::NORMAL, "all", &filled(4 * MIB, 1));
    world.settle();
    let link = world.nodes[old].link;
    world.cut(old);
    let new = world.connect(&Greeting::new("new"));
    assert_eq!(world.nodes[new].link, link, "it has the number of the old link");
    world.settle();
    world.subscribe_in_place(new, "svc");
    // Its first exchange has the id that the long message had on the old link.
    world.call(sender, "svc", &filled(300_000, 2), 7);
    let call = world.settled_call(new);
    assert!(call.payload() == filled(300_000, 2));
    assert_eq!(world.nodes[new].fault, None);
    assert_eq!(world.nodes[sender].session.out.bytes(), 0, "the long message went on, to nobody");
}

#[test]
fn a_link_that_was_closed_does_not_close_the_next_one_of_its_number() {
    let mut world = World::new(2);
    let at = world.join("a");
    let link = world.nodes[at].link.unwrap();
    let mut again = Vec::new();
    wire::write(&mut again, Kind::Welcome, Flags::URGENT, 0, |_| Ok(()), &[]).unwrap();
    world.hub.received(link, &wire::read(&again, 100).unwrap().unwrap(), 0);
    // The driver learns that the connection has broken before it asks for the links to close.
    world.hub.closed(link);
    assert_eq!(world.hub.connected("next".to_owned(), 0), link);
    assert_eq!(world.hub.closing(), []);
}

#[test]
fn a_link_without_traffic_is_kept_alive_by_pings() {
    let mut world = World::new(3);
    let nodes = [world.join("a"), world.join("b")];
    world.wait_us(3_600 * SECOND_US);
    for node in nodes {
        assert!(world.nodes[node].link.is_some());
        assert!(world.events(node).is_empty());
    }
    assert_eq!(world.hub.counts().nodes, 2);
}

#[test]
fn a_node_that_says_nothing_for_twice_its_heartbeat_is_dead() {
    let mut world = World::with(4, HubOptions { heartbeat_ms: 1_000, ..HubOptions::new("hub") });
    let (caller, silent) = (world.join("caller"), world.join("silent"));
    world.subscribe(silent, "svc", "");
    world.call(caller, "svc", b"", 1);
    world.settle();
    let since = world.now_us;
    world.nodes[silent].up.paused = true;
    world.wait_us(SECOND_US * 19 / 10);
    assert!(world.events(caller).is_empty(), "not yet");
    world.wait_us(SECOND_US / 5);
    let events = world.events(caller);
    let [Event::Failed(1, number, _)] = events[..] else { panic!("{events:?}") };
    assert_eq!(number, ErrorCode::LinkLost.number());
    assert!(world.nodes[silent].link.is_none() && world.now_us - since < 3 * SECOND_US);
    assert!(world.nodes[caller].link.is_some());
}

#[test]
fn a_hub_that_says_nothing_is_dead_for_its_nodes() {
    let mut world = World::new(5);
    let node = world.join_with(&Greeting { heartbeat_ms: 1_000, ..Greeting::new("a") });
    world.subscribe(node, "svc", "");
    world.call(node, "svc", b"", 1);
    let call = world.settled_call(node);
    world.nodes[node].down.paused = true;
    world.wait_us(3 * SECOND_US);
    assert_eq!(world.nodes[node].fault, Some(Fault::Silent));
    let events = world.events(node);
    assert!(matches!(events[..], [Event::Lost(1), Event::Cancelled(id)] if id == call.id), "{events:?}");
}

#[test]
fn a_heartbeat_of_nothing_makes_nobody_busy() {
    let mut world = World::new(6);
    let node = world.join_with(&Greeting { heartbeat_ms: 0, ..Greeting::new("a") });
    let link = world.nodes[node].link.unwrap();
    assert!(world.hub.next_us() > world.now_us + 10_000, "the next ping is not due at once");
    assert!(world.hub.outbox(link).unwrap().is_idle());
}

#[test]
fn names_of_nodes_that_have_gone_are_forgotten() {
    let mut world = World::new(7);
    let stays = world.join("stays");
    world.subscribe(stays, "s", "");
    for at in 0..200_u32 {
        let node = world.join(&format!("passes-{at}"));
        world.publish(node, Flags::NORMAL, "s", b"hello");
        world.settle();
        assert_eq!(world.published(stays).len(), 1);
        assert!(world.nodes[stays].session.name_of(at + 2).is_some());
        world.cut(node);
        world.settle();
        assert_eq!(world.nodes[stays].session.name_of(at + 2), None);
    }
}

#[test]
fn a_node_that_asks_and_never_reads_is_closed() {
    let mut world = World::with(8, HubOptions { queue_bytes: MIB, ..HubOptions::new("hub") });
    let (good, bad) = (world.join("good"), world.join("bad"));
    world.nodes[bad].down.paused = true;
    let mut ping = Vec::new();
    wire::write(&mut ping, Kind::Ping, Flags::URGENT, 1, |_| Ok(()), &[]).unwrap();
    let link = world.nodes[bad].link.unwrap();
    let frame = wire::read(&ping, 100).unwrap().unwrap();
    let mut most = 0;
    for _ in 0..400_000 {
        world.hub.received(link, &frame, 0);
        most = most.max(world.hub.outbox(link).unwrap().bytes());
    }
    assert!(most < 4 * MIB, "{most} bytes waited");
    let closing = world.hub.closing();
    assert!(closing.len() == 1 && closing[0].1.contains("link_queue_bytes"), "{closing:?}");
    world.publish(good, Flags::NORMAL, "s", b"");
    world.settle();
    assert!(world.nodes[good].link.is_some());
}

#[test]
fn empty_items_for_a_node_that_does_not_read_end_their_call_and_nothing_else() {
    let mut world = World::with(9, HubOptions { queue_bytes: MIB, ..HubOptions::new("hub") });
    let (caller, callee) = (world.join("caller"), world.join("callee"));
    world.subscribe(callee, "svc", "");
    let id = world.call(caller, "svc", b"", 1);
    let call = world.settled_call(callee).id;
    world.invite((callee, call), (caller, 1), 120_000);
    world.nodes[callee].down.paused = true;
    for _ in 0..120_000 {
        // Refused once the call has failed.
        let _ = world.nodes[caller].session.item(id, Flags::NORMAL, b""[..].into());
        world.settle();
        if world.nodes[caller].session.open_exchanges().0 == 0 {
            break;
        }
    }
    let events = world.events(caller);
    let [Event::Failed(1, number, _)] = events[..] else { panic!("{events:?}") };
    assert_eq!(number, ErrorCode::LimitExceeded.number());
    world.nodes[callee].down.paused = false;
    world.settle();
    assert!(world.nodes[callee].link.is_some());
    assert!(matches!(world.events(callee).last(), Some(Event::Cancelled(_))));
}
