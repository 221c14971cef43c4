//! Long payloads in shared memory, and the frames that pass through the hub instead of them.

use tidewire_core::link::session::{Event, Fault, Greeting};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::{self, Flags, Kind, MemoryLocation, PLACE_BYTES};

use crate::link::support::shelf::{sharing, sharing_hub};
use crate::link::support::{KIB, MIB, World, failure, filled, lane, nothing_is_left};

/// A caller, and a node that answers calls on `svc`; each shares memory or not.
fn pair(seed: u64, caller_shares: bool, callee_shares: bool) -> (World, usize, usize) {
    let mut world = World::with(seed, sharing_hub());
    let greeting = |name, shares| if shares { sharing(name) } else { Greeting::new(name) };
    let caller = world.join_with(&greeting("caller", caller_shares));
    let callee = world.join_with(&greeting("callee", callee_shares));
    world.subscribe(callee, "svc", "");
    (world, caller, callee)
}

/// Of one exchange.
type Frames = Vec<(Kind, Flags, Vec<u8>)>;

fn placed(bytes: u64) -> Vec<u8> {
    let mut stated = bytes.to_le_bytes().to_vec();
    MemoryLocation::default().put(&mut stated);
    stated
}

fn frame(kind: Kind, flags: Flags, id: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    wire::write(&mut out, kind, flags, id, |_| Ok(()), payload).expect("it is short enough");
    out
}

fn reply(world: &mut World, callee: usize, payload: &[u8]) {
    let id = world.called(callee).id;
    let sending = world.sending(callee, payload);
    world.nodes[callee].session.reply(id, Flags::NORMAL, sending).expect("a reply is sent");
}

fn replied(world: &mut World, caller: usize) -> Vec<u8> {
    let events = world.events(caller);
    let [Event::Replied(1, reply)] = &events[..] else { panic!("one reply: {events:?}") };
    reply.payload().to_vec()
}

#[test]
fn a_long_payload_is_whole_whoever_can_read_it_where_it_lies() {
    for (seed, (caller_shares, callee_shares, unread)) in
        [(true, true, 0), (true, true, 1), (true, false, 0), (false, true, 0), (false, false, 0)]
            .into_iter()
            .enumerate()
    {
        let (mut world, caller, callee) = pair(seed as u64, caller_shares, callee_shares);
        world.unread_one_in = unread;
        for bytes in [64 * KIB + 1, MIB, 3 * MIB] {
            world.call(caller, "svc", &filled(bytes, 1), 1);
            world.settle();
            let call = world.nodes[callee].events.iter().find_map(|event| match event {
                Event::Called(call) => Some(call.clone()),
                _ => None,
            });
            let call = call.expect("the call has come");
            assert!(call.payload() == filled(bytes, 1), "{bytes} bytes there");
            assert_eq!(call.payload().as_ptr() as usize % 8, 0, "numbers in it can be used where they are");
            reply(&mut world, callee, &filled(bytes, 2));
            world.settle();
            assert!(replied(&mut world, caller) == filled(bytes, 2), "{bytes} bytes back");
            nothing_is_left(&world);
        }
        let laid = 3 * (u64::from(caller_shares) + u64::from(callee_shares));
        assert_eq!(world.shelf.counts(), (0, laid), "what was laid is gone");
    }
}

#[test]
fn the_hub_passes_on_where_a_payload_lies() {
    let (mut world, caller, callee) = pair(7, true, true);
    let link = world.nodes[callee].link.expect("it is joined");
    world.call(caller, "svc", &filled(5 * MIB, 1), 1);
    let mut most = 0;
    while world.nodes[callee].placed.is_empty() && world.nodes[callee].events.is_empty() {
        world.step_up(caller);
        most = most.max(world.hub.outbox(link).expect("it is there").bytes());
        world.step();
    }
    // The name of the caller, in each lane, and the reference to the payload.
    assert!((1..400).contains(&most), "{most} bytes waited at the hub");
}

#[test]
fn a_place_is_free_once_its_payload_was_read() {
    let (mut world, caller, callee) = pair(2, true, true);
    world.call(caller, "svc", &filled(MIB, 1), 1);
    assert!(world.lay(caller) && !world.lay(caller), "it is laid once");
    assert_eq!(world.shelf.counts().0, 1);
    world.settle();
    assert_eq!(world.shelf.counts().0, 0, "the handler is still at work");
    assert_eq!(world.nodes[caller].session.out.bytes(), 0, "all of it is written");
    assert!(world.nodes[caller].events.is_empty(), "it was not answered yet");
    reply(&mut world, callee, &filled(MIB, 2));
    assert!(world.lay(callee));
    assert_eq!(world.shelf.counts().0, 1);
    world.settle();
    assert_eq!(world.shelf.counts().0, 0);
    nothing_is_left(&world);
}

#[test]
fn a_payload_without_room_in_shared_memory_is_sent() {
    let (mut world, caller, callee) = pair(12, true, true);
    world.full_one_in = 1;
    world.call(caller, "svc", &filled(MIB, 1), 1);
    world.settle();
    reply(&mut world, callee, &filled(3 * MIB, 2));
    world.settle();
    assert!(replied(&mut world, caller) == filled(3 * MIB, 2));
    assert_eq!(world.shelf.counts(), (0, 0));
    nothing_is_left(&world);
}

#[test]
fn a_call_that_is_cancelled_before_its_payload_lies_there_leaves_nothing() {
    for begun in [false, true] {
        let (mut world, caller, callee) = pair(13, true, true);
        let call = world.call(caller, "svc", &filled(MIB, 1), 1);
        let to_lay = begun.then(|| world.nodes[caller].session.out.next_to_lay().expect("it is to be laid"));
        world.nodes[caller].session.cancel(call);
        if let Some(to_lay) = to_lay {
            let laid = world.shelf.lay(&filled(MIB, 1));
            world.nodes[caller].session.out.lay(to_lay.id, to_lay.answer, Some(laid));
        }
        assert!(world.settled(callee).is_empty(), "the hub was told of nothing that it could pass on");
        assert_eq!(world.shelf.counts().0, 0);
        nothing_is_left(&world);
    }
}

#[test]
fn a_place_is_free_when_the_call_ends_before_it_was_read() {
    type End = fn(&mut World, usize, usize, u64);
    let ends: [(&str, End); 4] = [
        ("cancelled", |world, caller, _, call| world.nodes[caller].session.cancel(call)),
        ("the caller is lost", |world, caller, _, _| world.cut(caller)),
        ("the callee is lost", |world, _, callee, _| world.cut(callee)),
        ("the callee reads nothing", |world, _, callee, _| world.nodes[callee].placed.clear()),
    ];
    for (name, end) in ends {
        let (mut world, caller, callee) = pair(3, true, true);
        let call = world.call(caller, "svc", &filled(MIB, 1), 1);
        world.nodes[callee].down.paused = true;
        world.settle();
        assert_eq!(world.shelf.counts().0, 1, "{name}: nobody has read it");
        end(&mut world, caller, callee, call);
        if name == "the callee reads nothing" {
            // Until the caller has had enough.
            world.settle();
            world.nodes[caller].session.cancel(call);
        }
        world.nodes[callee].down.paused = false;
        world.settle();
        assert_eq!(world.shelf.counts().0, 0, "{name}");
    }
}

#[test]
fn an_answer_whose_caller_is_gone_leaves_its_place() {
    let (mut world, caller, callee) = pair(4, true, true);
    let call = world.call(caller, "svc", b"", 1);
    world.settle();
    reply(&mut world, callee, &filled(MIB, 2));
    world.nodes[caller].down.paused = true;
    world.settle();
    assert_eq!(world.shelf.counts().0, 1, "nobody has read it");
    world.nodes[caller].session.cancel(call);
    world.settle();
    assert_eq!(world.shelf.counts().0, 0);
    world.nodes[caller].down.paused = false;
    world.settle();
    nothing_is_left(&world);
}

#[test]
fn items_keep_their_order_behind_one_that_is_placed() {
    for unread in [0, 1, 2] {
        let (mut world, caller, callee) = pair(5 + unread as u64, true, true);
        world.unread_one_in = unread;
        world.call(caller, "svc", b"", 1);
        let id = world.settled_call(callee).id;
        for (number, bytes) in [MIB, 10, 200 * KIB, 70_000, 0].into_iter().enumerate() {
            let item = filled(bytes, number as u32);
            let sending = world.sending(callee, &item);
            world.nodes[callee].session.answer_item(id, lane(2), sending).expect("an item is sent");
        }
        world.nodes[callee].session.answer_over(id);
        let events = world.settled(caller);
        let items = events.iter().filter_map(|event| if let Event::Item(1, item) = event { Some(item) } else { None });
        let items: Vec<_> = items.map(|item| item.payload().to_vec()).collect();
        let wanted = [MIB, 10, 200 * KIB, 70_000, 0].into_iter().enumerate();
        assert!(items == wanted.map(|(number, bytes)| filled(bytes, number as u32)).collect::<Vec<_>>());
        assert!(matches!(events.last(), Some(Event::Over(1))), "the end comes last");
        nothing_is_left(&world);
    }
}

#[test]
fn a_payload_that_is_too_long_for_its_receiver_is_refused_and_its_place_is_free() {
    let mut world = World::with(6, sharing_hub());
    let caller = world.join_with(&sharing("caller"));
    let callee = world.join_with(&Greeting { payload_bytes: 100_000, ..sharing("callee") });
    world.subscribe(callee, "svc", "");
    world.call(caller, "svc", &filled(100_001, 1), 1);
    let (tag, code, text) = failure(&mut world, caller);
    assert_eq!((tag, code), (1, ErrorCode::PayloadTooLarge), "{text}");
    assert_eq!(world.shelf.counts().0, 0);
}

#[test]
fn a_published_payload_is_sent_over_the_link() {
    let (mut world, publisher, listener) = pair(8, true, true);
    world.subscribe(listener, "news", "");
    let message = filled(MIB, 1);
    let sending = world.sending(publisher, &message);
    let head = wire::PublishHead { subject: "news", ..wire::PublishHead::default() };
    world.nodes[publisher].session.publish(&head, Flags::NORMAL, sending).expect("it is sent");
    world.settle();
    assert_eq!(world.shelf.counts(), (0, 0), "several might want to read it");
    assert!(world.published(listener) == [message]);
}

#[test]
fn only_those_share_memory_who_are_near_and_know_it() {
    let elsewhere = Greeting { place: Some("elsewhere".to_owned()), ..Greeting::new("far") };
    for (near, greeting, shares) in [
        (true, sharing("n"), true),
        (false, sharing("n"), false),
        (true, elsewhere, false),
        (true, Greeting::new("n"), false),
    ] {
        let mut world = World::with(9, sharing_hub());
        world.near = near;
        let node = world.join_with(&greeting);
        assert_eq!(world.nodes[node].session.may_place(), shares, "{near} {:?}", greeting.place);
    }
    let mut world = World::new(9);
    let node = world.join_with(&sharing("n"));
    assert!(!world.nodes[node].session.may_place(), "its hub knows nothing of memory");
}

#[test]
fn a_node_that_breaks_the_rules_of_shared_memory_is_closed_and_told_why() {
    let answer = Flags::NORMAL.with_answer(true);
    let (more, asks) = (answer.with_more(true), answer.with_more(true).with_placed(true));
    let cases: [(&str, bool, Frames); 5] = [
        ("shm was not named", false, vec![(Kind::Reply, asks, placed(MIB as u64))]),
        ("link_window_bytes", true, vec![(Kind::Reply, asks, placed(MIB as u64)), (Kind::Chunk, more, vec![1; 10])]),
        ("not complete", true, vec![(Kind::Reply, asks, placed(MIB as u64)), (Kind::Item, answer, vec![1])]),
        ("where the place begins", true, vec![(Kind::Reply, asks, placed(MIB as u64)[..PLACE_BYTES / 2].to_vec())]),
        ("link_placed_bytes", true, vec![(Kind::Reply, asks, placed(1 << 24))]),
    ];
    for (expected, shares, frames) in cases {
        let (mut world, caller, callee) = pair(10, true, shares);
        world.nodes[caller].down.paused = true;
        world.call(caller, "svc", b"", 1);
        let id = world.settled_call(callee).id;
        for (kind, flags, payload) in frames {
            world.inject(callee, &frame(kind, flags, id, &payload));
        }
        world.settle();
        let Some(Fault::Told { text, .. }) = &world.nodes[callee].fault else { panic!("{expected}: it is told") };
        assert!(text.contains(expected), "{expected}: {text}");
        world.nodes[caller].down.paused = false;
        assert_eq!(failure(&mut world, caller).1, ErrorCode::LinkLost, "{expected}");
    }
}

#[test]
fn taken_and_window_for_what_is_not_placed_are_skipped() {
    let (mut world, caller, callee) = pair(11, true, true);
    let call = world.call(caller, "svc", b"short", 1);
    let number = world.settled_call(callee).id;
    for (node, exchange, flags) in
        [(callee, number, lane(2).with_answer(true)), (caller, call, lane(2)), (caller, 77, lane(2))]
    {
        world.inject(node, &frame(Kind::Taken, flags, exchange, &[]));
    }
    world.settle();
    world.nodes[callee].session.reply(number, Flags::NORMAL, b"fine"[..].into()).expect("it is open");
    world.settle();
    assert_eq!(replied(&mut world, caller), b"fine");
    nothing_is_left(&world);
}
