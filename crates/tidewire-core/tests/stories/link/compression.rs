//! Compressed payloads: compression by the sender, inflating by the receiver.

use tidewire_core::link::hub::HubOptions;
use tidewire_core::link::session::{Event, Greeting, Refused};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::{self, CallHead, Flags, Kind, PublishHead};

use crate::link::support::compressed::{frame_of_text, packed, pair_of, text, waiting};
use crate::link::support::{KIB, MIB, World, failure, frames, lane, nothing_is_left};

/// A node that can't read what is compressed.
fn plain(name: &str) -> Greeting {
    Greeting { inflates: false, ..Greeting::new(name) }
}

fn call_packed(world: &mut World, node: usize, subject: &str, payload: &[u8], tag: u32) -> u64 {
    let head = CallHead { subject, ..CallHead::default() };
    world.nodes[node].session.call(&head, Flags::NORMAL, packed(payload), tag).expect("a call is sent")
}

#[test]
fn a_call_and_its_answer_are_shorter_on_the_wire_and_whole_at_their_ends() {
    for bytes in [1_000, 64 * KIB, 64 * KIB + 1, 3 * MIB] {
        let (mut world, caller, callee) = pair_of(1, &Greeting::new("a"), &Greeting::new("b"));
        let sent = text(bytes);
        call_packed(&mut world, caller, "svc", &sent, 1);
        assert!(waiting(&world, caller) < bytes / 2, "{bytes}");
        world.settle();
        let call = world.called(callee);
        assert!(call.payload() == sent && !call.flags.compressed(), "{bytes}");
        assert_eq!(call.into_payload().1 % 16, 0, "its numbers lie where they can be used");

        let session = &mut world.nodes[callee].session;
        let id = 1 << 32;
        assert!(session.may_compress_answer(id));
        session.reply(id, Flags::NORMAL, packed(&sent)).unwrap();
        assert!(waiting(&world, callee) < bytes / 2, "{bytes}");
        world.settle();
        let events = world.events(caller);
        let [Event::Replied(1, reply)] = &events[..] else { panic!("{events:?}") };
        assert!(reply.payload() == sent && !reply.flags.compressed(), "{bytes}");
        nothing_is_left(&world);
    }
}

#[test]
fn a_long_error_is_shorter_on_the_wire_and_whole_at_its_end() {
    for bytes in [20_000, 3 * MIB] {
        let (mut world, caller, callee) = pair_of(3, &Greeting::new("a"), &Greeting::new("b"));
        world.call(caller, "svc", b"", 1);
        world.settle();
        let (call, said) = (world.called(callee), text(bytes));
        world.nodes[callee].session.fail(call.id, ErrorCode::RemoteError, packed(&said)).unwrap();
        assert!(waiting(&world, callee) < bytes / 2, "{bytes}");
        world.settle();
        let events = world.events(caller);
        let [Event::Failed(1, number, message)] = &events[..] else { panic!("{events:?}") };
        assert_eq!(*number, ErrorCode::RemoteError.number());
        assert!(message.payload() == said, "{bytes}");
        nothing_is_left(&world);
    }
}

#[test]
fn items_of_both_sides_are_compressed_in_their_order() {
    let (mut world, caller, callee) = pair_of(2, &Greeting::new("a"), &Greeting::new("b"));
    let head = CallHead { subject: "svc", credit: 9, ..CallHead::default() };
    let id = world.nodes[caller].session.call(&head, lane(1), b""[..].into(), 1).unwrap();
    world.settle();
    let call = world.called(callee);
    world.invite((callee, call.id), (caller, 1), 2);
    let (long, short) = (text(2 * MIB), text(2_000));
    for payload in [&long, &short] {
        world.nodes[callee].session.answer_item(call.id, Flags::NORMAL, packed(payload)).unwrap();
        world.nodes[caller].session.item(id, Flags::NORMAL, packed(payload)).unwrap();
    }
    world.settle();
    let events = world.events(callee);
    let [Event::Input(one), Event::Input(two)] = &events[..] else { panic!("{events:?}") };
    assert!(one.payload() == long && two.payload() == short);
    world.nodes[callee].session.answer_over(call.id);
    world.settle();
    let events = world.events(caller);
    let [Event::Item(1, one), Event::Item(1, two), Event::Over(1)] = &events[..] else { panic!("{events:?}") };
    assert!(one.payload() == long && two.payload() == short);
    nothing_is_left(&world);
}

#[test]
fn a_message_is_compressed_once_for_all_subscribers() {
    let mut world = World::new(3);
    let nodes: Vec<usize> = ["a", "b", "c"].into_iter().map(|name| world.join(name)).collect();
    for &node in &nodes[1..] {
        world.subscribe(node, "news", "");
    }
    for bytes in [2_000, 3 * MIB] {
        let head = PublishHead { subject: "news", ..PublishHead::default() };
        world.nodes[nodes[0]].session.publish(&head, Flags::NORMAL, packed(&text(bytes))).unwrap();
        assert!(waiting(&world, nodes[0]) < bytes / 2);
        world.settle();
        for &node in &nodes[1..] {
            assert!(world.published(node) == [text(bytes)]);
        }
    }
    nothing_is_left(&world);
}

#[test]
fn a_node_that_can_not_read_it_gets_everything_as_it_was() {
    for (caller, callee) in
        [(plain("a"), Greeting::new("b")), (Greeting::new("a"), plain("b")), (plain("a"), plain("b"))]
    {
        let (mut world, caller, callee) = pair_of(4, &caller, &callee);
        assert!(!world.nodes[caller].session.may_compress());
        // It was compressed before the other one joined, say.
        call_packed(&mut world, caller, "svc", &text(200 * KIB), 1);
        assert!(waiting(&world, caller) > 200 * KIB);
        world.settle();
        let call = world.called(callee);
        assert!(call.payload() == text(200 * KIB));
        assert!(!world.nodes[callee].session.may_compress_answer(call.id));
        world.nodes[callee].session.reply(call.id, Flags::NORMAL, packed(&text(9_000))).unwrap();
        assert!(waiting(&world, callee) > 9_000);
        world.settle();
        let events = world.events(caller);
        assert!(matches!(&events[..], [Event::Replied(1, reply)] if reply.payload() == text(9_000)));
        nothing_is_left(&world);
    }
}

#[test]
fn a_hub_that_does_not_know_compression_gets_none() {
    let mut world = World::with(5, HubOptions { compressed: false, ..HubOptions::new("old") });
    let (caller, callee) = (world.join("a"), world.join("b"));
    world.subscribe(callee, "svc", "");
    call_packed(&mut world, caller, "svc", &text(9_000), 1);
    assert!(waiting(&world, caller) > 9_000);
    world.settle();
    let call = world.called(callee);
    assert!(call.payload() == text(9_000) && !world.nodes[callee].session.may_compress_answer(call.id));
}

#[test]
fn all_are_told_when_the_first_node_that_can_not_read_it_joins_and_when_the_last_one_has_gone() {
    let mut world = World::new(6);
    let (a, b) = (world.join("a"), world.join("b"));
    let may = |world: &World| [a, b].map(|node| world.nodes[node].session.may_compress());
    assert_eq!(may(&world), [true, true]);
    let (one, two) = (world.join_with(&plain("one")), world.join_with(&plain("two")));
    assert_eq!(may(&world), [false, false]);
    let late = world.join("late");
    assert!(!world.nodes[late].session.may_compress());
    world.cut(one);
    world.settle();
    assert_eq!(may(&world), [false, false]);
    world.cut(two);
    world.settle();
    assert_eq!(may(&world), [true, true]);
    assert!(world.nodes[late].session.may_compress());
    assert!(world.events(a).is_empty(), "nobody but the session hears of it");
}

#[test]
fn two_who_can_read_it_answer_each_other_compressed_beside_one_who_can_not() {
    let (mut world, caller, callee) = pair_of(7, &Greeting::new("a"), &Greeting::new("b"));
    world.join_with(&plain("old"));
    world.call(caller, "svc", b"question", 1);
    world.settle();
    let call = world.called(callee);
    assert!(world.nodes[callee].session.may_compress_answer(call.id));
    assert!(!world.nodes[callee].session.may_compress());
    world.nodes[callee].session.reply(call.id, Flags::NORMAL, packed(&text(9_000))).unwrap();
    assert!(waiting(&world, callee) < 4_500);
    world.settle();
    assert!(matches!(&world.events(caller)[..], [Event::Replied(1, reply)] if reply.payload() == text(9_000)));
}

#[test]
fn calls_that_a_new_node_cannot_read_go_to_another_one_or_can_be_sent_again() {
    let mut world = World::new(8);
    let caller = world.join("a");
    let head = PublishHead { subject: "svc", ..PublishHead::default() };
    let news = text(9_000);
    world.nodes[caller].session.publish(&head, Flags::NORMAL, packed(&news)).unwrap();
    call_packed(&mut world, caller, "svc", &text(9_000), 1);
    // Nothing that it has written arrives before the other one is there.
    let mut late = Vec::new();
    world.nodes[caller].session.out.take(&mut late, MIB);
    let old = world.join_with(&plain("old"));
    world.subscribe(old, "svc", "");
    world.inject(caller, &late);
    world.settle();
    let (tag, code, said) = failure(&mut world, caller);
    assert_eq!((tag, code), (1, ErrorCode::NoResponders));
    assert!(said.contains("call again, it is sent as it is then"), "{said}");
    assert!(world.events(old).is_empty() && world.nodes[old].link.is_some());
    assert_eq!(world.hub.counts().dropped, 1);

    let new = world.join("new");
    world.subscribe(new, "svc", "");
    late.clear();
    let frame = compressed_call(&frame_of_text(), "svc", 3 << 32);
    world.inject(caller, &frame);
    world.settle();
    assert!(world.called(new).payload() == text(9_000), "it goes to the one that can read it");
    assert!(world.events(old).is_empty());
}

/// A CALL whose payload says of itself that it is compressed.
fn compressed_call(payload: &[u8], subject: &str, id: u64) -> Vec<u8> {
    let (mut frame, head) = (Vec::new(), CallHead { subject, ..CallHead::default() });
    let flags = Flags::NORMAL.with_compressed(true);
    wire::write(&mut frame, Kind::Call, flags, id, |out| head.put(out), payload).unwrap();
    frame
}

#[test]
fn a_node_that_compresses_without_having_said_so_is_told_and_closed() {
    let (mut world, caller, callee) = pair_of(9, &plain("a"), &Greeting::new("b"));
    world.inject(caller, &compressed_call(&frame_of_text(), "svc", 1 << 32));
    world.settle();
    assert!(world.nodes[caller].link.is_none(), "the link is closed");
    let fault = format!("{:?}", world.nodes[caller].fault);
    assert!(fault.contains("the feature lz4 was not named by both sides"), "{fault}");
    assert!(world.events(callee).is_empty() && world.nodes[callee].link.is_some());
}

#[test]
fn a_node_that_did_not_name_it_closes_the_link_of_a_hub_that_sends_it() {
    let (mut world, caller, _) = pair_of(10, &plain("a"), &Greeting::new("b"));
    let frame = compressed_call(&frame_of_text(), "svc", 1 << 32);
    let (session, mut events) = (&mut world.nodes[caller].session, Vec::new());
    let fault = session.received(&frames(&frame)[0], 0, &mut events).expect_err("nobody agreed on it");
    assert!(format!("{fault:?}").contains("the feature lz4"), "{fault:?}");
}

#[test]
fn a_payload_that_is_too_long_once_inflated_is_refused_as_any_other() {
    let small = Greeting { payload_bytes: 100 * KIB, ..Greeting::new("b") };
    let (mut world, caller, callee) = pair_of(12, &Greeting::new("a"), &small);
    call_packed(&mut world, caller, "svc", &text(MIB), 1);
    assert!(waiting(&world, caller) < MIB / 2);
    world.settle();
    let (_, code, said) = failure(&mut world, caller);
    assert_eq!(code, ErrorCode::PayloadTooLarge, "{said}");
    let head = CallHead { subject: "svc", ..CallHead::default() };
    let sent = world.nodes[callee].session.publish(
        &PublishHead { subject: "svc", ..PublishHead::default() },
        Flags::NORMAL,
        packed(&text(MIB)),
    );
    assert_eq!(sent, Ok(()), "the hub takes it");

    // A payload that the hub itself does not take is refused before anything is sent.
    let mut world = World::with(13, HubOptions { payload_bytes: 100 * KIB, ..HubOptions::new("hub") });
    let node = world.join("a");
    let sent = world.nodes[node].session.call(&head, Flags::NORMAL, packed(&text(MIB)), 1);
    assert_eq!(sent, Err(Refused::TooLong { bytes: MIB, max: 100 * KIB }));
    assert_eq!(waiting(&world, node), 0);
}
