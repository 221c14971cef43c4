//! Streams of items, both ways: in order, and with their ends behind them.

use tidewire_core::link::session::{Event, Refused};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::Flags;

use crate::link::support::{failure, filled, lane, nothing_is_left, pair};

#[test]
fn a_stream_of_answers_comes_in_order_and_ends() {
    for number in 0..4 {
        let (mut world, caller, callee) = pair(11);
        let id = world.call_in(caller, lane(number), "svc", b"", 1);
        world.settle();
        let call = world.called(callee);
        let session = &mut world.nodes[callee].session;
        session.alive(call.id);
        // A long item in the middle, and the end right behind: neither may be overtaken.
        for (at, bytes) in [10, 2_500_000, 20, 300_000, 0].into_iter().enumerate() {
            session.answer_item(call.id, Flags::NORMAL, filled(bytes, at as u32)[..].into()).unwrap();
        }
        session.answer_over(call.id);
        world.nodes[caller].session.want(id, 7);
        world.settle();

        let mut events = world.events(caller).into_iter();
        assert!(matches!(events.next(), Some(Event::Alive(1, 0))));
        for (at, bytes) in [10, 2_500_000, 20, 300_000, 0].into_iter().enumerate() {
            let Some(Event::Item(1, item)) = events.next() else { panic!("item {at} in lane {number}") };
            assert!(item.payload() == filled(bytes, at as u32), "item {at}");
        }
        assert!(matches!(events.next(), Some(Event::Over(1))));
        assert!(events.next().is_none());
        nothing_is_left(&world);
    }
}

#[test]
fn a_stream_of_input_comes_in_order_and_ends() {
    let (mut world, caller, callee) = pair(12);
    let id = world.call(caller, "svc", b"", 1);
    world.settle();
    let call = world.called(callee);
    world.nodes[callee].session.want_input(call.id, 3);
    world.settle();
    assert!(matches!(world.events(caller)[..], [Event::Credited(1, 3)]));

    let session = &mut world.nodes[caller].session;
    session.item(id, Flags::URGENT, filled(3_000_000, 1)[..].into()).unwrap();
    session.item(id, Flags::URGENT, b"short"[..].into()).unwrap();
    session.over(id);
    world.settle();
    let mut events = world.events(callee).into_iter();
    for expected in [filled(3_000_000, 1), b"short".to_vec()] {
        let Some(Event::Input(item)) = events.next() else { panic!("an item") };
        assert!(item.payload() == expected && item.id == call.id);
    }
    assert!(matches!(events.next(), Some(Event::InputOver(ended)) if ended == call.id));

    world.nodes[callee].session.reply(call.id, Flags::NORMAL, b"done"[..].into()).unwrap();
    world.settle();
    assert!(matches!(world.events(caller)[..], [Event::Replied(1, _)]));
    let sent = world.nodes[caller].session.item(id, Flags::NORMAL, b"late"[..].into());
    assert_eq!(sent, Err(Refused::Over));
    nothing_is_left(&world);
}

#[test]
fn credit_that_is_given_while_a_long_call_is_on_its_way_is_not_lost() {
    let (mut world, caller, callee) = pair(13);
    let id = world.call(caller, "svc", &filled(200_000, 0), 1);
    world.nodes[caller].session.want(id, 5);
    world.settle();
    let events = world.events(callee);
    let [Event::Called(call), Event::Wanted(wanting, 5)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(call.id, *wanting);
}

#[test]
fn a_failure_does_not_wait_for_a_long_item() {
    let (mut world, caller, callee) = pair(14);
    world.call(caller, "svc", b"", 1);
    world.settle();
    let call = world.called(callee);
    world.nodes[caller].down.paused = true;
    let session = &mut world.nodes[callee].session;
    session.answer_item(call.id, Flags::NORMAL, filled(5_000_000, 0)[..].into()).unwrap();
    world.settle();
    let session = &mut world.nodes[callee].session;
    assert!(session.out.bytes() > 3_000_000, "most of the item waits for a window");
    session.fail(call.id, ErrorCode::AskTimeout, b"enough"[..].into()).unwrap();
    world.settle();
    assert_eq!(world.nodes[callee].session.out.bytes(), 0, "the rest of the item is let go");
    world.nodes[caller].down.paused = false;
    world.settle();
    assert_eq!(failure(&mut world, caller).1, ErrorCode::AskTimeout);
    nothing_is_left(&world);
}

#[test]
fn who_cancels_a_long_answer_frees_it_at_the_callee() {
    let (mut world, caller, callee) = pair(15);
    let id = world.call(caller, "svc", b"", 1);
    world.settle();
    let call = world.called(callee);
    world.nodes[caller].down.paused = true;
    world.nodes[callee].session.reply(call.id, Flags::NORMAL, filled(5_000_000, 0)[..].into()).unwrap();
    world.settle();
    world.nodes[caller].session.cancel(id);
    world.settle();
    assert_eq!(world.nodes[callee].session.out.bytes(), 0);
    world.nodes[caller].down.paused = false;
    world.settle();
    assert!(world.events(caller).is_empty());
    nothing_is_left(&world);
}
