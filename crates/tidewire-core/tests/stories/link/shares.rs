//! Callers that do not read their answers, and the capacity that they leave to others.

use tidewire_core::link::hub::HubOptions;
use tidewire_core::link::session::{Event, Refused};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::generated::limits;
use tidewire_proto::wire::Flags;

use crate::link::support::shelf::{sharing, sharing_hub};
use crate::link::support::{MIB, World, filled, nothing_is_left};

const QUEUE: usize = limits::LINK_QUEUE_BYTES.default as usize;

/// A node that answers calls on `svc`, a caller, and some that read nothing; whether all share the
/// memory of their machine.
fn with_deaf(seed: u64, count: usize, shares: bool) -> (World, usize, usize, Vec<usize>) {
    let mut world = World::with(seed, if shares { sharing_hub() } else { HubOptions::new("hub") });
    let join = |world: &mut World, name: &str| if shares { world.join_with(&sharing(name)) } else { world.join(name) };
    let (callee, caller) = (join(&mut world, "callee"), join(&mut world, "caller"));
    world.subscribe(callee, "svc", "");
    let deaf: Vec<usize> = (0..count).map(|number| join(&mut world, &format!("deaf-{number}"))).collect();
    for &one in &deaf {
        world.nodes[one].down.paused = true;
    }
    (world, callee, caller, deaf)
}

fn called(world: &mut World, caller: usize, callee: usize) -> u64 {
    world.call(caller, "svc", b"", 1);
    world.settle();
    world.called(callee).id
}

fn reply(world: &mut World, callee: usize, call: u64, bytes: usize) -> Result<(), Refused> {
    let payload = filled(bytes, 1);
    let sending = world.sending(callee, &payload);
    let sent = world.nodes[callee].session.reply(call, Flags::NORMAL, sending);
    world.settle();
    sent
}

/// Calls, and answers with so many bytes, until an answer is refused; how many were not. A window
/// of each is on its way.
fn filled_up(world: &mut World, caller: usize, callee: usize, bytes: usize) -> usize {
    for count in 0..2 * QUEUE / bytes {
        let call = called(world, caller, callee);
        if let Err(refused) = reply(world, callee, call, bytes) {
            assert!(matches!(refused, Refused::Full { .. }), "{refused}");
            return count;
        }
    }
    panic!("nothing is refused");
}

/// How many calls of a node were answered, and how many have failed since they were not taken.
fn ends(world: &mut World, caller: usize) -> (usize, usize) {
    let (mut replied, mut failed) = (0, 0);
    for event in world.events(caller) {
        match event {
            Event::Replied(..) => replied += 1,
            Event::Failed(_, number, text) => {
                assert_eq!(number, ErrorCode::LimitExceeded.number());
                let text = String::from_utf8_lossy(text.payload()).into_owned();
                assert!(text.starts_with("link_queue_bytes: the answer was not taken"), "{text}");
                failed += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    (replied, failed)
}

// Promises: P13.31.
#[test]
fn a_caller_that_takes_no_answers_makes_room_for_those_of_others() {
    for shares in [false, true] {
        let (mut world, callee, caller, deaf) = with_deaf(21, 1, shares);
        let answers = filled_up(&mut world, deaf[0], callee, MIB);
        let waits = world.nodes[callee].session.out.bytes();
        assert!(waits > QUEUE - MIB, "alone it has all of the room: {waits} bytes of {QUEUE}");
        for bytes in [MIB, 10, 7 * MIB, MIB] {
            let call = called(&mut world, caller, callee);
            reply(&mut world, callee, call, bytes).expect("there is room for others");
            let events = world.events(caller);
            let [Event::Replied(1, answer)] = &events[..] else { panic!("one reply: {events:?}") };
            assert!(answer.payload() == filled(bytes, 1));
        }
        // The node itself has capacity, too.
        world.subscribe_in_place(caller, "news");
        world.publish(callee, Flags::NORMAL, "news", &filled(MIB, 2));
        world.settle();
        assert_eq!(world.published(caller), [filled(MIB, 2)]);
        // A node that reads again gets the rest of its answers, and the errors of the others.
        world.nodes[deaf[0]].down.paused = false;
        world.settle();
        let (replied, failed) = ends(&mut world, deaf[0]);
        assert_eq!(replied + failed, answers);
        let gone = failed * (waits / answers);
        assert!((6 * MIB..9 * MIB).contains(&gone), "{failed} of {answers} were let go");
        // The call that was refused is still open.
        assert_eq!(world.nodes[callee].session.open_exchanges().1, 1);
        let call = called(&mut world, deaf[0], callee);
        reply(&mut world, callee, call, MIB).expect("it has taken the others");
        assert_eq!(ends(&mut world, deaf[0]), (1, 0));
    }
}

// Promises: P13.31.
#[test]
fn several_that_take_no_answers_have_equal_shares() {
    let (mut world, callee, caller, deaf) = with_deaf(22, 3, false);
    let answers: usize = deaf.iter().map(|&one| filled_up(&mut world, one, callee, MIB)).sum();
    let call = called(&mut world, caller, callee);
    reply(&mut world, callee, call, 12 * MIB).expect("there is room for a fourth share");
    assert_eq!(ends(&mut world, caller), (1, 0));
    let call = called(&mut world, caller, callee);
    let refused = reply(&mut world, callee, call, 30 * MIB).expect_err("it is more than a share");
    assert!(matches!(refused, Refused::Full { .. }), "{refused}");
    for &one in &deaf {
        world.nodes[one].down.paused = false;
    }
    world.settle();
    let ends: Vec<_> = deaf.iter().map(|&one| ends(&mut world, one)).collect();
    assert_eq!(ends.iter().map(|(replied, failed)| replied + failed).sum::<usize>(), answers);
    let counts: Vec<_> = ends.iter().map(|(replied, _)| *replied).collect();
    let (least, most) = (counts.iter().min().copied(), counts.iter().max().copied());
    assert!(least.zip(most).is_some_and(|(least, most)| most - least <= 1 && least > 30), "{counts:?}");
    assert_eq!(world.nodes[callee].session.out.bytes(), 0);
}

// Promises: P13.29, P13.30.
#[test]
fn readers_that_read_nothing_hold_up_no_stream_of_others() {
    let (mut world, callee, caller, deaf) = with_deaf(24, 1, false);
    // Its streams take what they may, and its answers too.
    loop {
        let call = called(&mut world, deaf[0], callee);
        if !world.nodes[callee].session.may_answer_item(call, MIB) {
            break;
        }
        world.nodes[callee].session.answer_item(call, Flags::NORMAL, filled(MIB, 1)[..].into()).unwrap();
        world.settle();
    }
    filled_up(&mut world, deaf[0], callee, MIB);
    let waits = world.nodes[callee].session.out.bytes();
    assert!(waits > QUEUE - MIB, "{waits} bytes wait");
    let call = called(&mut world, caller, callee);
    for number in 0..20 {
        assert!(world.nodes[callee].session.may_answer_item(call, MIB), "item {number}");
        world.nodes[callee].session.answer_item(call, Flags::NORMAL, filled(MIB, number)[..].into()).unwrap();
        world.settle();
    }
    world.nodes[callee].session.answer_over(call);
    let events = world.settled(caller);
    assert!(events.len() == 21 && matches!(events[20], Event::Over(1)), "{} events", events.len());
    world.cut(deaf[0]);
    world.settle();
    nothing_is_left(&world);
}
