//! Handler-alive notices: callers learn that their calls still run, and if the event loop there is
//! blocked.

use tidewire_core::link::session::{Event, Greeting};
use tidewire_proto::wire::{CallHead, Flags};

use crate::link::support::{World, nothing_is_left, pair};

const SECOND_US: u64 = 1_000_000;

#[test]
fn a_slow_call_is_told_of_every_half_heartbeat_until_it_ends() {
    let (mut world, caller, callee) = pair(1);
    world.call(caller, "svc", b"", 1);
    let call = world.settled_call(callee);
    assert_eq!(alive(&mut world, caller), [], "a quick call is not told of");
    world.wait_us(3 * SECOND_US);
    assert_eq!(alive(&mut world, caller), [(1, 0)]);
    world.wait_us(5 * SECOND_US);
    assert_eq!(alive(&mut world, caller), [(1, 0), (1, 0)]);
    world.nodes[callee].session.reply(call.id, Flags::NORMAL, b"late"[..].into()).unwrap();
    assert!(matches!(world.settled(caller)[..], [Event::Replied(1, _)]));
    world.wait_us(20 * SECOND_US);
    assert_eq!(alive(&mut world, caller), [], "nothing is said of a call that has ended");
    nothing_is_left(&world);
}

#[test]
fn a_call_with_a_short_deadline_is_told_of_while_there_is_time() {
    let (mut world, caller, callee) = pair(2);
    let head = CallHead { subject: "svc", deadline_ms: 1_000, ..CallHead::default() };
    let id = world.nodes[caller].session.call(&head, Flags::NORMAL, b""[..].into(), 7).unwrap();
    world.settled_call(callee);
    world.wait_us(300_000);
    assert_eq!(alive(&mut world, caller), [(7, 0)]);
    world.blocked_ms = 400;
    world.wait_us(650_000);
    assert_eq!(alive(&mut world, caller), [(7, 400), (7, 400)]);
    world.nodes[caller].session.cancel(id);
    world.settled(callee);
    world.wait_us(10 * SECOND_US);
    assert_eq!(alive(&mut world, caller), []);
    nothing_is_left(&world);
}

#[test]
fn short_deadlines_do_not_make_work_without_end() {
    let (mut world, caller, callee) = pair(3);
    let head = CallHead { subject: "svc", deadline_ms: 1, ..CallHead::default() };
    world.nodes[caller].session.call(&head, Flags::NORMAL, b""[..].into(), 7).unwrap();
    world.settled_call(callee);
    world.wait_us(SECOND_US);
    let told = alive(&mut world, caller).len();
    assert!((10..=20).contains(&told), "{told} times in a second");
}

#[test]
fn the_heartbeat_of_the_callee_says_how_often() {
    let mut world = World::new(4);
    let caller = world.join("caller");
    let callee = world.join_with(&Greeting { heartbeat_ms: 200, ..Greeting::new("callee") });
    world.subscribe(callee, "svc", "");
    world.call(caller, "svc", b"", 1);
    world.settled_call(callee);
    world.wait_us(SECOND_US);
    let told = alive(&mut world, caller).len();
    assert!((9..=10).contains(&told), "{told} times in a second");
}

#[test]
fn a_caller_that_does_not_read_is_not_told_for_ever() {
    let mut world = World::new(5);
    let caller = world.join("caller");
    let small = Greeting { queue_bytes: 1_000, heartbeat_ms: 100, ..Greeting::new("callee") };
    let callee = world.join_with(&small);
    world.subscribe(callee, "svc", "");
    for tag in 0..100 {
        world.call(caller, "svc", b"", tag);
    }
    assert_eq!(world.settled(callee).len(), 100);
    for second in 1..100 {
        let session = &mut world.nodes[callee].session;
        session.still_at_work(0, second * SECOND_US);
        assert!(session.out.bytes() < 5_000, "{} bytes wait", session.out.bytes());
    }
}

fn alive(world: &mut World, node: usize) -> Vec<(u32, u32)> {
    let told = |event| match event {
        Event::Alive(tag, blocked_ms) => (tag, blocked_ms),
        other => panic!("only signs of life were expected: {other:?}"),
    };
    world.events(node).into_iter().map(told).collect()
}
