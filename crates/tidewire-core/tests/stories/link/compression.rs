//! Compressed payloads: compression by the sender, inflating by the receiver.

use tidewire_core::link::hub::HubOptions;
use tidewire_core::link::session::{Event, Greeting, Refused};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::{CallHead, Flags, PublishHead};

use crate::link::support::compressed::{packed, pair_of, text, waiting};
use crate::link::support::{KIB, MIB, World, failure, lane, nothing_is_left};

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
        let call = world.settled_call(callee);
        assert!(call.payload() == sent && !call.flags.compressed(), "{bytes}");
        assert_eq!(call.into_payload().1 % 16, 0, "its numbers lie where they can be used");

        let session = &mut world.nodes[callee].session;
        let id = 1 << 32;
        session.reply(id, Flags::NORMAL, packed(&sent)).unwrap();
        assert!(waiting(&world, callee) < bytes / 2, "{bytes}");
        let events = world.settled(caller);
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
        let events = world.settled(caller);
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
    let call = world.settled_call(callee);
    world.invite((callee, call.id), (caller, 1), 2);
    let (long, short) = (text(2 * MIB), text(2_000));
    for payload in [&long, &short] {
        world.nodes[callee].session.answer_item(call.id, Flags::NORMAL, packed(payload)).unwrap();
        world.nodes[caller].session.item(id, Flags::NORMAL, packed(payload)).unwrap();
    }
    let events = world.settled(callee);
    let [Event::Input(one), Event::Input(two)] = &events[..] else { panic!("{events:?}") };
    assert!(one.payload() == long && two.payload() == short);
    world.nodes[callee].session.answer_over(call.id);
    let events = world.settled(caller);
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
fn a_payload_that_is_too_long_once_inflated_is_refused_as_any_other() {
    let small = Greeting { payload_bytes: 100 * KIB, ..Greeting::new("b") };
    let (mut world, caller, callee) = pair_of(12, &Greeting::new("a"), &small);
    call_packed(&mut world, caller, "svc", &text(MIB), 1);
    assert!(waiting(&world, caller) < MIB / 2);
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
