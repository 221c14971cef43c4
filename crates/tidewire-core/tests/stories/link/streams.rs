//! Streams of items, both ways: in order, and with their ends behind them.

use tidewire_core::link::session::{Event, Refused};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::Flags;

use crate::link::support::{World, filled, lane, nothing_is_left, pair};

#[test]
fn a_stream_of_answers_comes_in_order_and_ends() {
    for number in 0..4 {
        let (mut world, caller, callee) = pair(11);
        let id = world.call_in(caller, lane(number), "svc", b"", 1);
        let call = world.settled_call(callee);
        let session = &mut world.nodes[callee].session;
        session.alive(call.id);
        // A long item in the middle, and the end right behind: neither may be overtaken.
        for (at, bytes) in [10, 2_500_000, 20, 300_000, 0].into_iter().enumerate() {
            session.answer_item(call.id, Flags::NORMAL, filled(bytes, at as u32)[..].into()).unwrap();
        }
        session.answer_over(call.id);
        world.nodes[caller].session.want(id, 7);
        let mut events = world.settled(caller).into_iter();
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
    let call = world.settled_call(callee);
    world.nodes[callee].session.want_input(call.id, 3);
    assert!(matches!(world.settled(caller)[..], [Event::Credited(1, 3)]));

    let session = &mut world.nodes[caller].session;
    session.item(id, Flags::URGENT, filled(3_000_000, 1)[..].into()).unwrap();
    session.item(id, Flags::URGENT, b"short"[..].into()).unwrap();
    session.over(id);
    let mut events = world.settled(callee).into_iter();
    for expected in [filled(3_000_000, 1), b"short".to_vec()] {
        let Some(Event::Input(item)) = events.next() else { panic!("an item") };
        assert!(item.payload() == expected && item.id == call.id);
    }
    assert!(matches!(events.next(), Some(Event::InputOver(ended)) if ended == call.id));

    world.nodes[callee].session.reply(call.id, Flags::NORMAL, b"done"[..].into()).unwrap();
    assert!(matches!(world.settled(caller)[..], [Event::Replied(1, _)]));
    let sent = world.nodes[caller].session.item(id, Flags::NORMAL, b"late"[..].into());
    assert_eq!(sent, Err(Refused::Over));
    nothing_is_left(&world);
}

#[test]
fn credit_that_is_given_while_a_long_call_is_on_its_way_is_not_lost() {
    let (mut world, caller, callee) = pair(13);
    let id = world.call(caller, "svc", &filled(200_000, 0), 1);
    world.nodes[caller].session.want(id, 5);
    let events = world.settled(callee);
    let [Event::Called(call), Event::Wanted(wanting, 5)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(call.id, *wanting);
}

#[test]
fn a_reader_that_takes_no_more_items_hears_of_the_end() {
    // Before the call has come whole, and while it is open.
    for bytes in [200_000, 0] {
        let (mut world, caller, callee) = pair(18);
        let id = world.call_in(caller, lane(1), "svc", &filled(bytes, 0), 1);
        if bytes == 0 {
            world.settle();
        }
        world.nodes[caller].session.want(id, 0);
        let events = world.settled(callee);
        let [Event::Called(call), Event::Wanted(wanting, 0)] = &events[..] else { panic!("{events:?}") };
        assert_eq!(*wanting, call.id);
        // Items within the credit may still come.
        let session = &mut world.nodes[callee].session;
        session.answer_item(call.id, Flags::NORMAL, b"on its way"[..].into()).unwrap();
        session.answer_over(call.id);
        assert!(matches!(world.settled(caller)[..], [Event::Item(1, _), Event::Over(1)]));
        nothing_is_left(&world);
    }
}

// Promises: P13.32.
#[test]
fn a_failure_comes_after_the_items_before_it() {
    let (mut world, caller, callee) = pair(14);
    world.call_in(caller, lane(1), "svc", b"", 1);
    let call = world.settled_call(callee);
    let session = &mut world.nodes[callee].session;
    for (at, bytes) in [5_000_000, 70_000, 20].into_iter().enumerate() {
        session.answer_item(call.id, Flags::NORMAL, filled(bytes, at as u32)[..].into()).unwrap();
    }
    session.fail(call.id, ErrorCode::AskTimeout, b"enough"[..].into()).unwrap();
    let events = world.settled(caller);
    let [Event::Item(1, long), Event::Item(1, other), Event::Item(1, short), Event::Failed(1, ..)] = &events[..] else {
        panic!("{events:?}")
    };
    assert!(long.payload() == filled(5_000_000, 0) && other.payload() == filled(70_000, 1));
    assert!(short.payload() == filled(20, 2));
    nothing_is_left(&world);
}

// Promises: P13.28.
#[test]
fn the_writer_of_long_items_is_held_back_by_their_bytes() {
    let (mut world, caller, callee) = pair(16);
    let ids = [1, 2].map(|tag| {
        let id = world.call_in(caller, lane(1), "svc", b"", tag);
        world.settle();
        (id, world.called(callee).id)
    });
    let (other, calls) = (ids[1].0, ids.map(|(_, call)| call));
    world.nodes[caller].down.paused = true;
    let send = |world: &mut World, id: u64| {
        let session = &mut world.nodes[callee].session;
        let may = session.may_answer_item(id, 2_000_000);
        if may {
            session.answer_item(id, Flags::NORMAL, filled(2_000_000, 0)[..].into()).unwrap();
        }
        may
    };
    // One item is under way and one waits behind it. Another stream has its own capacity.
    assert_eq!([(); 4].map(|()| send(&mut world, calls[0])), [true, true, false, false]);
    world.settle();
    assert_eq!([(); 4].map(|()| send(&mut world, calls[1])), [true, true, false, false]);
    assert!(world.nodes[callee].session.out.bytes() <= 8_000_000);

    // Once the reader takes more, there is capacity. All items of an ended exchange are refused,
    // and nobody waits.
    world.nodes[caller].down.paused = false;
    world.settle();
    assert!(send(&mut world, calls[0]));
    world.nodes[caller].session.cancel(other);
    world.settle();
    let session = &mut world.nodes[callee].session;
    assert!(session.may_answer_item(calls[1], 2_000_000));
    assert_eq!(session.answer_item(calls[1], Flags::NORMAL, b"late"[..].into()), Err(Refused::Over));
}

// Promises: P13.29.
#[test]
fn streams_leave_half_of_what_may_wait_to_what_cant_wait() {
    let (mut world, caller, callee) = pair(17);
    world.call_in(caller, lane(1), "svc", b"", 1);
    let call = world.settled_call(callee);
    world.nodes[callee].up.paused = true;
    let session = &mut world.nodes[callee].session;
    let mut sent = 0;
    while session.may_answer_item(call.id, 60_000) {
        session.answer_item(call.id, Flags::NORMAL, filled(60_000, 0)[..].into()).unwrap();
        sent += 1;
    }
    let (bytes, max) = (session.out.bytes(), session.out.bytes_max());
    assert!(bytes <= max / 2 && bytes > max / 2 - 70_000, "{sent} items, {bytes} of {max} bytes");
}

#[test]
fn a_caller_that_cancels_a_long_answer_frees_it_at_the_callee() {
    let (mut world, caller, callee) = pair(15);
    let id = world.call(caller, "svc", b"", 1);
    let call = world.settled_call(callee);
    world.nodes[caller].down.paused = true;
    world.nodes[callee].session.reply(call.id, Flags::NORMAL, filled(5_000_000, 0)[..].into()).unwrap();
    world.settle();
    world.nodes[caller].session.cancel(id);
    world.settle();
    assert_eq!(world.nodes[callee].session.out.bytes(), 0);
    world.nodes[caller].down.paused = false;
    assert!(world.settled(caller).is_empty());
    nothing_is_left(&world);
}
