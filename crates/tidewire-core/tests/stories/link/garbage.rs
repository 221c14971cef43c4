//! Frames that break the rules, one by one and at random: they end their link and nothing else.

use tidewire_core::link::hub::HubOptions;
use tidewire_core::link::session::{Event, Fault, Greeting, Session};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::{self, CallHead, Flags, Frame, Kind, PublishHead, SubscribeHead, WireError};
use tidewire_testkit::seeds::seeds;

use crate::link::support::{MIB, Random, World, filled};

const SLOT_5: u64 = 1 << 32 | 5;

fn frame(kind: Kind, flags: Flags, id: u64, head: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let head = |out: &mut Vec<u8>| {
        out.extend_from_slice(head);
        Ok(())
    };
    wire::write(&mut out, kind, flags, id, head, payload).unwrap();
    out
}

fn call_head(subject: &str) -> Vec<u8> {
    let mut head = Vec::new();
    CallHead { subject, ..CallHead::default() }.put(&mut head).unwrap();
    head
}

fn publish_head(subject: &str) -> Vec<u8> {
    let mut head = Vec::new();
    PublishHead { subject, ..PublishHead::default() }.put(&mut head).unwrap();
    head
}

/// A hub with a node that breaks the rules, and two that don't.
fn world_with_liar(seed: u64) -> (World, usize, [usize; 2]) {
    let mut world = World::with(seed, HubOptions { queue_bytes: 8 * MIB, ..HubOptions::new("hub") });
    let liar = world.join("liar");
    let good = [world.join("a"), world.join("b")];
    world.subscribe(good[0], "svc", "");
    world.subscribe(good[1], "news", "");
    (world, liar, good)
}

fn the_others_are_served(world: &mut World, [a, b]: [usize; 2]) {
    world.settled(a);
    world.events(b);
    world.call(b, "svc", &filled(200_000, 1), 77);
    world.publish(a, Flags::NORMAL, "news", b"hello");
    let events = world.settled(a);
    let Some(Event::Called(call)) = events.last() else { panic!("{events:?}") };
    world.nodes[a].session.reply(call.id, Flags::NORMAL, b"here"[..].into()).unwrap();
    let events = world.settled(b);
    assert!(events.iter().any(|event| matches!(event, Event::Published(message) if message.payload() == b"hello")));
    assert!(events.iter().any(|event| matches!(event, Event::Replied(77, _))));
}

#[test]
fn each_broken_rule_ends_the_link_that_breaks_it() {
    let (more, answer) = (Flags::NORMAL.with_more(true), Flags::NORMAL.with_answer(true));
    let stated = |bytes: u64| bytes.to_le_bytes();
    let open = frame(Kind::Call, Flags::NORMAL, SLOT_5, &call_head("svc"), b"");
    let begun = frame(Kind::Call, more, SLOT_5, &call_head("svc"), &stated(100));
    let long_news = frame(Kind::Publish, more, SLOT_5, &publish_head("news"), &stated(3_000_000));
    let chunk = |flags, bytes| frame(Kind::Chunk, flags, SLOT_5, &[], &vec![0; bytes]);
    let cases = [
        ("WELCOME", vec![frame(Kind::Welcome, Flags::URGENT, 0, &[1, 0], b"")]),
        ("NODE", vec![frame(Kind::Node, Flags::URGENT, 0, &[1, 0, 0, 0], b"")]),
        ("OK", vec![frame(Kind::Ok, answer, SLOT_5, &[], b"")]),
        ("ANSWER", vec![frame(Kind::Call, answer, SLOT_5, &call_head("svc"), b"")]),
        ("ANSWER", vec![frame(Kind::Reply, Flags::NORMAL, SLOT_5, &[], b"")]),
        ("open", vec![open.clone(), open.clone()]),
        (
            "link_in_flight=65536 is exceeded",
            vec![frame(Kind::Call, Flags::NORMAL, 1 << 32 | 70_000, &call_head("svc"), b"")],
        ),
        ("generation", vec![frame(Kind::Call, Flags::NORMAL, 5, &call_head("svc"), b"")]),
        ("in use", vec![open.clone(), frame(Kind::Publish, more, 2 << 32 | 5, &publish_head("news"), &stated(9))]),
        ("follow", vec![frame(Kind::Ping, Flags::URGENT, 1, &[], b"?")]),
        ("subject", vec![frame(Kind::Publish, Flags::NORMAL, 0, &[0; 14], b"")]),
        ("longer", vec![begun.clone(), chunk(Flags::NORMAL, 101)]),
        ("shorter", vec![begun.clone(), chunk(Flags::NORMAL, 99)]),
        ("empty", vec![begun.clone(), chunk(more, 0)]),
        ("not complete", vec![begun.clone(), frame(Kind::Item, Flags::NORMAL, SLOT_5, &[], b"x")]),
        ("not complete", vec![begun.clone(), frame(Kind::End, Flags::NORMAL, SLOT_5, &[], b"")]),
        ("length of the whole", vec![frame(Kind::Call, more, SLOT_5, &call_head("svc"), b"short")]),
        ("link_window_bytes", [vec![long_news], vec![chunk(more, 250_000); 3]].concat()),
        ("link_frame_bytes", vec![vec![0xff; 4]]),
        ("kind=", vec![vec![12, 0, 0, 0, 99, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]]),
    ];
    for (expected, frames) in cases {
        let (mut world, liar, good) = world_with_liar(1);
        for (at, bytes) in frames.iter().enumerate() {
            assert!(world.nodes[liar].link.is_some(), "{expected}: {at} is fine");
            // Windows that the hub gives must not let it send more: nobody reads at the other side.
            world.nodes[good[1]].down.paused = true;
            world.inject(liar, bytes);
            world.settle();
        }
        let Some(Fault::Told { number, text }) = &world.nodes[liar].fault else { panic!("{expected}: it is told") };
        assert!(text.contains(expected), "{expected}: {text}");
        let code = ErrorCode::from_number(*number).unwrap();
        assert!([ErrorCode::WireError, ErrorCode::LimitExceeded].contains(&code), "{code:?}");
        world.nodes[good[1]].down.paused = false;
        the_others_are_served(&mut world, good);
        assert_eq!((world.hub.open_calls(), world.hub.open_routes()), (0, 2), "{expected}");
    }
}

#[test]
fn an_answer_that_is_cut_wrongly_ends_the_link_of_who_cut_it() {
    let answer = Flags::NORMAL.with_answer(true);
    let (more, stated) = (answer.with_more(true), 100_u64.to_le_bytes());
    let cases: [(&str, Kind, Flags, &[u8]); 5] = [
        ("longer", Kind::Chunk, answer, &[0; 101]),
        ("shorter", Kind::Chunk, answer, &[0; 99]),
        ("empty", Kind::Chunk, more, &[]),
        ("not complete", Kind::Item, answer, b"x"),
        ("not complete", Kind::End, answer, b""),
    ];
    for (expected, kind, flags, payload) in cases {
        let (mut world, liar, good) = world_with_liar(3);
        world.subscribe(liar, "own", "");
        world.call(good[0], "own", b"", 1);
        let id = world.settled_call(liar).id;
        world.inject(liar, &frame(Kind::Reply, more, id, &[], &stated));
        world.inject(liar, &frame(kind, flags, id, &[], payload));
        world.settle();
        let Some(Fault::Told { text, .. }) = &world.nodes[liar].fault else { panic!("{expected}: it is told") };
        assert!(text.contains(expected), "{expected}: {text}");
        let events = world.events(good[0]);
        let [Event::Failed(1, number, _)] = events[..] else { panic!("{expected}: {events:?}") };
        assert_eq!(number, ErrorCode::LinkLost.number());
        the_others_are_served(&mut world, good);
    }
}

/// A frame that is nearly right, with ids that may be in use.
fn nearly(random: &mut Random) -> Vec<u8> {
    let kind = random.pick(Kind::ALL);
    let flags = Flags::of(random.below(64) as u8).unwrap();
    let id = random.pick(&[0, 1, 2, 1 << 32, 2 << 32, 3 << 32]) | random.below(6) as u64;
    let mut head = match kind {
        Kind::Call => call_head(random.pick(&["svc", "news", "own", "$hub.services"])),
        Kind::Publish => publish_head(random.pick(&["svc", "news", "own", "$hub.services.added"])),
        Kind::Subscribe => {
            let mut head = Vec::new();
            SubscribeHead { queue: random.pick(&["", "q"]), pattern: "own" }.put(&mut head).unwrap();
            head
        }
        Kind::Node | Kind::Credit | Kind::Window | Kind::Alive => (random.next() as u32).to_le_bytes().to_vec(),
        Kind::Fail | Kind::Error | Kind::Welcome => vec![random.below(40) as u8, 0],
        _ => Vec::new(),
    };
    let mut payload = match kind {
        Kind::Chunk => vec![1; random.pick(&[0, 1, 50, 100, 70_000])],
        Kind::Subscribe => random.pick(&[&b""[..], b"\x01\x01a\x01\0b"]).to_vec(),
        _ if flags.more() => random.pick(&[0_u64, 1, 100, 140_000, 1 << 40, u64::MAX]).to_le_bytes().to_vec(),
        Kind::Call | Kind::Publish | Kind::Reply | Kind::Item => vec![1; random.below(300)],
        _ => Vec::new(),
    };
    if random.chance(30) {
        let part = if random.chance(2) { &mut head } else { &mut payload };
        match part.len() {
            0 => part.push(7),
            length => part[random.below(length)] ^= 1 << random.below(8),
        }
    }
    frame(kind, flags, id, &head, &payload)
}

#[test]
fn a_hub_with_a_node_that_sends_anything_serves_the_others() {
    let mut closed = 0;
    let is_whole = seeds("nodes that send anything", 300, |seed| {
        let (mut world, liar, good) = world_with_liar(seed);
        let mut random = Random(seed);
        for _ in 0..400 {
            if world.nodes[liar].link.is_none() {
                break;
            }
            world.inject(liar, &nearly(&mut random));
            if random.chance(4) {
                world.call(good[1], "own", b"to the liar", 3);
                world.publish(good[0], Flags::NORMAL, "own", b"to the liar");
            }
            for _ in 0..random.below(4) {
                world.step();
            }
            // The liar ignores all errors, unless the hub closes the link.
            world.nodes[liar].down.paused = random.chance(2);
            for node in good {
                for event in world.events(node) {
                    if let Event::Called(call) = event {
                        // It may have been cancelled meanwhile.
                        let _ = world.nodes[node].session.reply(call.id, Flags::NORMAL, filled(300, 0)[..].into());
                    }
                }
            }
        }
        closed += u64::from(world.nodes[liar].link.is_none());
        for node in good {
            assert_eq!(world.nodes[node].fault, None, "seed {seed}: the hub passed on what it must not");
            assert!(world.nodes[node].link.is_some(), "seed {seed}");
        }
        world.cut(liar);
        world.settle();
        the_others_are_served(&mut world, good);
        assert_eq!((world.hub.open_calls(), world.hub.open_routes()), (0, 2), "seed {seed}");
        for node in good {
            let session = &world.nodes[node].session;
            assert_eq!(session.open_exchanges(), (1, 0), "seed {seed}");
            assert_eq!((session.out.bytes(), session.coming_bytes()), (0, 0), "seed {seed}");
        }
    });
    assert!(!is_whole || closed > 100, "most are caught: {closed}");
}

#[test]
fn a_session_survives_whatever_a_hub_sends() {
    seeds("hubs that send anything", 1, |seed| {
        let greeting = Greeting { payload_bytes: 200_000, queue_bytes: MIB, ..Greeting::new("a") };
        let mut session = joined(&greeting);
        let (mut random, mut events, mut calls) = (Random(seed), Vec::new(), 0);
        for tag in 0..300 {
            if random.chance(10) {
                let head = CallHead { subject: "s", ..CallHead::default() };
                calls += usize::from(session.call(&head, Flags::NORMAL, b""[..].into(), tag).is_ok());
            }
            let bytes = nearly(&mut random);
            let frame = wire::read(&bytes, 16 * MIB).unwrap().unwrap();
            if session.received(&frame, 0, &mut events).is_err() {
                break;
            }
            assert!(session.coming_bytes() <= 4 * 200_000, "seed {seed}");
            assert!(session.out.bytes() < 2 * MIB + 2 * MIB, "seed {seed}");
        }
        session.lost(&mut events);
        let ended = |event: &&Event<u32>| {
            matches!(event, Event::Replied(..) | Event::Failed(..) | Event::Over(_) | Event::Lost(_))
        };
        assert_eq!(events.iter().filter(ended).count(), calls, "seed {seed}: each call ends once");
        assert_eq!(session.open_exchanges(), (0, 0));
        assert_eq!((session.out.bytes(), session.coming_bytes()), (0, 0));
    });
}

#[test]
fn a_hub_that_asks_and_never_reads_ends_the_link() {
    let mut session = joined(&Greeting { queue_bytes: MIB, ..Greeting::new("a") });
    let bytes = frame(Kind::Ping, Flags::URGENT, 1, &[], b"");
    let ping = wire::read(&bytes, 100).unwrap().unwrap();
    let fault = (0..1_000_000).find_map(|_| session.received(&ping, 0, &mut Vec::new()).err());
    let expected = WireError::Limit { name: "link_queue_bytes", max: MIB as u64 };
    assert_eq!(fault, Some(Fault::Wire(expected)));
    assert!(session.out.bytes() < 4 * MIB);
}

#[test]
fn a_hub_that_passes_on_more_items_than_were_asked_for_is_told_so() {
    let mut session = joined(&Greeting::new("node"));
    let head = CallHead { subject: "svc", credit: 2, ..CallHead::default() };
    let id = session.call(&head, Flags::NORMAL, b""[..].into(), 1).unwrap();
    session.want(id, 1);
    let item = frame(Kind::Item, Flags::NORMAL.with_answer(true), id, &[], b"");
    let item = wire::read(&item, 100).unwrap().unwrap();
    let mut events = Vec::new();
    for _ in 0..3 {
        session.received(&item, 0, &mut events).unwrap();
    }
    let expected = WireError::Limit { name: "stream_credit", max: 3 };
    assert_eq!(session.received(&item, 0, &mut events), Err(Fault::Wire(expected)));
    assert_eq!(events.len(), 3);
}

fn joined(greeting: &Greeting) -> Session<u32> {
    let mut session = Session::join(greeting, 0).unwrap();
    session.out.clear();
    let bytes = frame(Kind::Welcome, Flags::URGENT, 0, &[1, 0], b"");
    let welcome: Frame<'_> = wire::read(&bytes, 100).unwrap().unwrap();
    session.received(&welcome, 0, &mut Vec::new()).unwrap();
    session
}
