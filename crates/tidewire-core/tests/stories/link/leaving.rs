//! The drain of a node or a hub: it leaves once its frames have been sent.

use tidewire_core::link::outbox::Outbox;
use tidewire_core::link::session::Event;
use tidewire_proto::generated::limits;
use tidewire_proto::wire::{Flags, Kind};

use crate::link::support::{MIB, filled, pair};

// Promises: P13.44.
#[test]
fn an_announcement_has_arrived_when_the_hub_has_read_it() {
    let (mut world, caller, callee) = pair(1);
    for round in 1..3 {
        world.call(caller, "svc", b"", round);
        let call = world.settled_call(callee);
        world.nodes[callee].up.paused = true;
        world.nodes[callee].session.reply(call.id, Flags::NORMAL, filled(MIB, 2)[..].into()).unwrap();
        world.settle();
        assert!(!world.nodes[callee].session.has_arrived(), "it is on its way");
        world.nodes[callee].up.paused = false;
        world.settle();
        let _asked = world.nodes[callee].session.has_arrived();
        world.settle();
        assert!(world.nodes[callee].session.has_arrived(), "all of it was read");
        assert!(matches!(world.events(caller)[..], [Event::Replied(..)]));
    }
}

#[test]
fn announcements_after_a_list_request_are_not_in_its_answer() {
    let (mut world, caller, callee) = pair(7);
    world.call(caller, "svc", b"", 1);
    let call = world.settled_call(callee);
    world.nodes[callee].down.paused = true;
    let _asked = world.nodes[callee].session.has_arrived();
    world.settle();
    world.nodes[callee].up.paused = true;
    world.nodes[callee].session.reply(call.id, Flags::NORMAL, b"late"[..].into()).unwrap();
    world.nodes[callee].down.paused = false;
    world.settle();
    assert!(!world.nodes[callee].session.has_arrived(), "it is on its way");
    world.nodes[callee].up.paused = false;
    assert!(matches!(world.settled(caller)[..], [Event::Replied(..)]));
    assert!(world.nodes[callee].session.has_arrived());
}

#[test]
fn nothing_has_arrived_while_the_hub_says_nothing() {
    let (mut world, _, callee) = pair(2);
    world.nodes[callee].down.paused = true;
    for _ in 0..3 {
        assert!(!world.nodes[callee].session.has_arrived());
        world.settle();
    }
    world.nodes[callee].down.paused = false;
    world.settle();
    assert!(world.nodes[callee].session.has_arrived());
}

#[test]
fn a_long_payload_of_an_own_call_is_nothing_to_wait_for() {
    let (mut world, caller, callee) = pair(3);
    // The callee asks for no more than the first window.
    world.nodes[callee].down.paused = true;
    world.call(caller, "svc", &filled(4 * MIB, 1), 1);
    world.settle();
    let _asked = world.nodes[caller].session.has_arrived();
    world.settle();
    let session = &mut world.nodes[caller].session;
    assert!(session.has_arrived() && session.out.bytes() > MIB, "{} bytes wait", session.out.bytes());
}

#[test]
fn a_drain_does_not_wait_for_later_calls() {
    let mut out = Outbox::new(MIB);
    let add = |out: &mut Outbox, lane: u8, payload: &[u8]| {
        out.control(Kind::Reply, Flags::NORMAL.in_lane(lane), 1, |_| Ok(()), payload).unwrap();
    };
    assert!(out.has_drained(&out.filled()), "there is nothing to wait for");
    (0..200).for_each(|_| add(&mut out, 2, &[1; 1_000]));
    add(&mut out, 3, &[1; 100]);
    let filled = out.filled();
    let mut writes = 0;
    while !out.has_drained(&filled) {
        // Somebody always has more to send in the lane that is full.
        if writes < 30 {
            add(&mut out, 2, &[2; 1_000]);
        }
        assert!(out.take(&mut Vec::new(), 10_000), "there is something to take");
        writes += 1;
    }
    assert!(writes > 20, "{writes} writes");
    add(&mut out, 0, &[3; 100]);
    assert!(out.has_drained(&filled) && out.bytes() > 0);
}

#[test]
fn a_hub_that_asks_knows_when_a_node_has_read_what_was_sent_before() {
    let (mut world, caller, callee) = pair(5);
    let at = world.nodes[caller].link.unwrap();
    for round in 1..3 {
        world.nodes[caller].down.paused = true;
        world.call(caller, "svc", b"", round);
        let call = world.settled_call(callee);
        world.nodes[callee].session.reply(call.id, Flags::NORMAL, filled(MIB, 2)[..].into()).unwrap();
        world.settle();
        assert!(world.hub.ask(at, world.now_us));
        world.settle();
        assert!(!world.hub.has_read(at), "it is on its way");
        world.nodes[caller].down.paused = false;
        world.settle();
        assert!(world.hub.has_read(at));
        assert!(matches!(world.events(caller)[..], [Event::Replied(..)]));
    }
    assert!(world.hub.ask(at, world.now_us));
    world.cut(caller);
    assert!(world.hub.has_read(at), "nobody is left who could read it");
    assert!(!world.hub.ask(at, world.now_us));
}

// Promises: P13.46.
#[test]
fn a_hub_asks_neither_who_is_silent_nor_who_was_sent_nothing() {
    let (mut world, caller, callee) = pair(6);
    let at = world.nodes[callee].link.unwrap();
    assert!(world.hub.ask(at, world.now_us), "it was welcomed, and has said nothing since");
    world.wait_us(60_000_000);
    assert!(!world.hub.ask(at, world.now_us), "it has pinged, and was sent nothing");
    world.call(caller, "svc", b"", 1);
    world.settle();
    assert!(world.hub.ask(at, world.now_us));
    world.nodes[callee].up.paused = true;
    world.wait_us(limits::LINK_HEARTBEAT_MS.default * 1_000 + 1);
    assert!(!world.hub.ask(at, world.now_us));
}
