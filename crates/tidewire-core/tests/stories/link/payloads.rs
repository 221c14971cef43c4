//! Long payloads, and the frames that go between their chunks.

use tidewire_core::link::assembly::Assemblies;
use tidewire_core::link::hub::HubOptions;
use tidewire_core::link::outbox::{Outbox, PayloadParts};
use tidewire_core::link::session::{Event, Greeting, OutgoingPayload, Refused};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::generated::limits;
use tidewire_proto::wire::{self, Flags, Kind, PublishHead};

use crate::link::support::{KIB, MIB, World, filled, frames, lane, pair};

const WINDOW: usize = limits::LINK_WINDOW_BYTES.default as usize;
const QUEUE: usize = 64 * MIB;

fn publish(out: &mut Outbox, flags: Flags, payload: &[u8]) {
    let head = PublishHead { subject: "s", ..PublishHead::default() };
    if out.is_long(payload.len()) {
        out.send_long(Kind::Publish, flags, 1 << 32 | 5, |bytes| head.put(bytes), Box::new(payload.to_vec()), 0)
            .unwrap();
    } else {
        out.send(Kind::Publish, flags, 0, |bytes| head.put(bytes), payload).unwrap();
    }
}

fn whole(out: &mut Outbox, flags: Flags, id: u64, payload: &[u8]) {
    out.send(Kind::Reply, flags.with_answer(true), id, |_| Ok(()), payload).unwrap();
}

fn long(out: &mut Outbox, flags: Flags, id: u64, bytes: usize) {
    out.send_long(Kind::Reply, flags.with_answer(true), id, |_| Ok(()), Box::new(vec![7; bytes]), 0).unwrap();
}

/// Kind, lane and id of everything that one write takes.
fn taken(out: &mut Outbox, budget: usize) -> Vec<(Kind, usize, u64)> {
    let mut bytes = Vec::new();
    out.take(&mut bytes, budget);
    frames(&bytes).iter().map(|frame| (frame.kind, frame.flags.lane(), frame.id)).collect()
}

#[test]
fn a_long_payload_arrives_whole_over_two_links() {
    for (seed, bytes) in [65_536, 65_537, MIB, MIB + 1, 10 * MIB, 0].into_iter().enumerate() {
        let (mut world, caller, callee) = pair(seed as u64);
        world.call(caller, "svc", &filled(bytes, 1), 1);
        let call = world.settled_call(callee);
        assert!(call.payload() == filled(bytes, 1), "{bytes} there");
        assert_eq!(call.payload().as_ptr() as usize % 8, 0, "numbers in it can be used where they are");
        world.nodes[callee].session.reply(call.id, Flags::NORMAL, filled(bytes, 2)[..].into()).unwrap();
        let events = world.settled(caller);
        let [Event::Replied(1, reply)] = &events[..] else { panic!("one reply") };
        assert!(reply.payload() == filled(bytes, 2), "{bytes} back");
        assert_eq!((world.hub.open_calls(), world.hub.open_routes()), (0, 1));
    }
}

/// A payload in pieces of so many bytes.
struct Cut(Vec<u8>, usize);

impl PayloadParts for Cut {
    fn bytes(&self) -> usize {
        self.0.len()
    }

    fn piece(&self, at: usize) -> &[u8] {
        let end = (at / self.1 + 1) * self.1;
        &self.0[at..end.min(self.0.len())]
    }
}

#[test]
fn a_payload_in_pieces_is_the_same_to_whoever_receives_it() {
    for (seed, bytes) in [0, 1, 99, 20 * KIB, 65_536, 65_537, MIB].into_iter().enumerate() {
        let (mut world, caller, callee) = pair(seed as u64);
        world.call(caller, "svc", &filled(bytes, 1), 1);
        let call = world.settled_call(callee);
        let reply = Cut(filled(bytes, 2), 1_000);
        world.nodes[callee].session.reply(call.id, Flags::NORMAL, OutgoingPayload::Pieces(&reply)).unwrap();
        let events = world.settled(caller);
        let [Event::Replied(1, reply)] = &events[..] else { panic!("one reply") };
        assert!(reply.payload() == filled(bytes, 2), "{bytes} back");
    }
}

#[test]
fn compressed_payloads_and_failures_may_lie_in_pieces() {
    let (mut world, caller, callee) = pair(1);
    world.call(caller, "svc", b"", 1);
    let call = world.settled_call(callee);
    let why = Cut(vec![7; 3_000], 1_000);
    let packed = OutgoingPayload::Pieces(&why).packed();
    assert!(matches!(packed, OutgoingPayload::Packed(_)), "all of it is looked at");
    assert_eq!(packed.bytes(), 3_000);
    let code = ErrorCode::RemoteError;
    world.nodes[callee].session.fail(call.id, code, OutgoingPayload::Pieces(&why)).unwrap();
    let events = world.settled(caller);
    let [Event::Failed(1, number, text)] = &events[..] else { panic!("one error") };
    assert_eq!((*number, text.payload()), (code.number(), &[7; 3_000][..]));
}

#[test]
fn an_empty_payload_that_is_sent_as_a_long_one_ends_with_its_chunk() {
    let mut out = Outbox::new(QUEUE);
    long(&mut out, Flags::NORMAL, 1 << 32, 0);
    let mut bytes = Vec::new();
    out.take(&mut bytes, QUEUE);
    let mut parts = Assemblies::new(QUEUE);
    let progress: Vec<_> = frames(&bytes).iter().map(|frame| format!("{:?}", parts.take(frame).unwrap())).collect();
    assert_eq!((progress.len(), &*progress[0], &progress[1][..5]), (2, "More", "Whole"));
}

#[test]
fn a_small_call_overtakes_a_large_one_in_its_lane() {
    let (mut world, caller, callee) = pair(1);
    world.call(caller, "svc", &filled(20 * MIB, 0), 1);
    for _ in 0..500 {
        world.step();
    }
    world.call(caller, "svc", b"small", 2);
    world.settle();
    let sizes: Vec<_> = world
        .events(callee)
        .iter()
        .map(|event| if let Event::Called(call) = event { call.payload().len() } else { 0 })
        .collect();
    assert_eq!(sizes, [5, 20 * MIB]);
}

#[test]
fn a_block_that_is_a_little_longer_than_a_write_is_not_cut() {
    let mut out = Outbox::new(QUEUE);
    for (budget, each) in [(266_240, 20 * KIB), (266_240, 40_000), (20_000, 5_000)] {
        // The first block grows as it is filled, and the buffers change places with each take.
        for _ in 0..3 {
            for number in 0..40 {
                whole(&mut out, Flags::NORMAL, 1 << 32 | number, &vec![7; each]);
            }
            let (mut seen, mut most) = (Vec::new(), 0);
            while !out.is_idle() {
                let mut bytes = Vec::new();
                out.take(&mut bytes, budget);
                most = most.max(bytes.len());
                seen.extend(frames(&bytes).iter().map(|frame| frame.id & 0xff));
            }
            assert_eq!(seen, (0..40).collect::<Vec<u64>>());
            assert_eq!(most > budget, budget > 262_144, "{most} bytes of frames of {each}");
            assert!(most <= budget + budget / 4, "{most} bytes of frames of {each}");
        }
    }
}

#[test]
fn higher_lanes_go_first_and_every_lane_gets_a_share() {
    let mut out = Outbox::new(QUEUE);
    for number in [3, 2, 1, 0] {
        for _ in 0..1_000 {
            whole(&mut out, lane(number), 1 << 32, &[0; 984]);
        }
    }
    let first = taken(&mut out, 256 * KIB);
    let count = |number| first.iter().filter(|(_, lane, _)| *lane == number).count();
    assert!(first.windows(2).all(|pair| pair[0].1 <= pair[1].1), "higher lanes first");
    assert!(count(0) > 200, "most of it is urgent");
    assert!([count(1), count(2), count(3)].iter().all(|count| (8..10).contains(count)), "the others get a share");
}

#[test]
fn a_chunk_never_comes_before_the_frame_that_announces_it() {
    let mut out = Outbox::new(QUEUE);
    whole(&mut out, Flags::NORMAL, 1 << 32, &[0; 100]);
    whole(&mut out, Flags::NORMAL, 1 << 32, &[0; 60_000]);
    long(&mut out, Flags::NORMAL, 1 << 32 | 1, 200_000);
    let mut all = Vec::new();
    while !out.is_idle() {
        all.extend(taken(&mut out, 20_000));
    }
    let kinds: Vec<_> = all.iter().map(|(kind, ..)| *kind).collect();
    assert_eq!(kinds[..4], [Kind::Reply, Kind::Reply, Kind::Reply, Kind::Chunk]);
    assert_eq!(out.bytes(), 0);
}

#[test]
fn chunks_go_on_although_there_are_always_whole_frames() {
    let mut out = Outbox::new(QUEUE);
    long(&mut out, Flags::NORMAL, 1 << 32 | 1, WINDOW);
    let mut chunks = 0;
    for _ in 0..20 {
        for _ in 0..400 {
            // With the 16 bytes in front of it, so many as fill the budget.
            whole(&mut out, Flags::NORMAL, 1 << 32, &[0; 1_008]);
        }
        chunks += taken(&mut out, 256 * KIB).iter().filter(|(kind, ..)| *kind == Kind::Chunk).count();
    }
    assert_eq!(chunks, WINDOW / 65_536, "all of the payload");
}

#[test]
fn chunks_of_several_payloads_take_turns() {
    let mut out = Outbox::new(QUEUE);
    for id in 1..=3 {
        long(&mut out, Flags::NORMAL, 1 << 32 | id, 200_000);
    }
    let order: Vec<_> =
        taken(&mut out, QUEUE).iter().filter(|(kind, ..)| *kind == Kind::Chunk).map(|it| it.2 as u32).collect();
    assert_eq!(order, [1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3]);
}

#[test]
fn a_fifth_payload_waits_for_one_of_four_and_takes_the_place_of_one_that_stands_still() {
    let mut out = Outbox::new(QUEUE);
    let chunks = |out: &mut Outbox| -> Vec<u32> {
        taken(out, QUEUE).iter().filter(|(kind, ..)| *kind == Kind::Chunk).map(|it| it.2 as u32).collect()
    };
    for id in 1..=5 {
        long(&mut out, Flags::NORMAL, 1 << 32 | id, 65_536 * 2);
    }
    assert_eq!(chunks(&mut out), [1, 2, 3, 4, 1, 2, 3, 4, 5, 5]);
    // The windows of four are used up: they hold up nobody, and go on first once they may.
    for id in 6..=9 {
        long(&mut out, Flags::NORMAL, 1 << 32 | id, 2 * MIB);
    }
    assert_eq!(chunks(&mut out).len(), 4 * WINDOW / 65_536);
    long(&mut out, Flags::NORMAL, 1 << 32 | 10, 65_536 * 2);
    assert_eq!(chunks(&mut out), [10, 10]);
    out.window(1 << 32 | 6, true, 65_536);
    long(&mut out, Flags::NORMAL, 1 << 32 | 11, 65_536 * 2);
    let order = chunks(&mut out);
    assert_eq!((order.len(), order.iter().filter(|id| **id == 6).count()), (3, 1));
}

#[test]
fn a_sender_stops_at_the_end_of_its_window() {
    let mut out = Outbox::new(QUEUE);
    long(&mut out, Flags::NORMAL, 1 << 32, 2 * WINDOW);
    taken(&mut out, QUEUE);
    assert_eq!((out.is_idle(), out.bytes()), (true, WINDOW));
    assert!(taken(&mut out, QUEUE).is_empty());
    out.window(1 << 32, false, 1_000);
    assert!(out.is_idle(), "that was the window of the other side");
    out.window(1 << 32, true, 1_000);
    assert_eq!(taken(&mut out, QUEUE), [(Kind::Chunk, 2, 1 << 32)]);
    assert_eq!(out.bytes(), WINDOW - 1_000);
    out.drop_transfer(1 << 32, true);
    assert_eq!(out.bytes(), 0);
}

#[test]
fn messages_keep_their_order_around_long_ones() {
    let mut out = Outbox::new(QUEUE);
    let sizes = [10, 1_500_000, 20, 300_000, 70_000, 30];
    for bytes in sizes {
        publish(&mut out, Flags::NORMAL, &vec![1; bytes]);
        publish(&mut out, lane(1), &vec![2; bytes]);
    }
    let (mut parts, mut arrived) = (Assemblies::new(QUEUE), [Vec::new(), Vec::new()]);
    while out.bytes() > 0 {
        let mut bytes = Vec::new();
        out.take(&mut bytes, 100_000);
        for frame in frames(&bytes) {
            // One id in both lanes would be an error of the sender; here only the order within a
            // lane counts.
            let frame = wire::Frame { id: frame.flags.lane() as u64, ..frame };
            if let tidewire_core::link::assembly::Progress::Whole(message) = parts.take(&frame).unwrap() {
                arrived[2 - message.flags.lane()].push(message.payload().len());
            }
        }
        out.window(1 << 32 | 5, false, 100_000);
    }
    assert_eq!(arrived, [sizes, sizes]);
    assert_eq!(out.ended().count(), 6, "each long message gives its slot back");
}

#[test]
fn an_outbox_is_empty_when_everything_was_taken_and_keeps_little() {
    let mut out = Outbox::new(10 * QUEUE);
    for round in 0..20_000_u64 {
        whole(&mut out, lane((round % 4) as u8), 1 << 32 | 1 << 31, &vec![0; (round % 1_000) as usize]);
        if round % 20 == 0 {
            long(&mut out, lane((round / 20 % 4) as u8), 1 << 32 | round, 100_000);
        }
        if round % 100 == 0 {
            publish(&mut out, Flags::NORMAL, &vec![0; 100_000]);
            out.control_last(Kind::Cancel, lane((round / 100 % 4) as u8), round);
        }
        if round % 40 == 20 {
            out.drop_transfer(1 << 32 | (round - 20), true);
        }
    }
    assert!(out.bytes() > 20 * MIB);
    while !out.is_idle() {
        taken(&mut out, 256 * KIB);
    }
    assert_eq!(out.bytes(), 0);
    assert_eq!(out.ended().count(), 400, "each end is told once");
    assert!(out.buffer_bytes() < MIB, "{} bytes are kept", out.buffer_bytes());
}

#[test]
fn a_sender_is_told_what_is_too_long_before_it_sends() {
    let mut world = World::with(2, HubOptions { payload_bytes: 1_000, ..HubOptions::new("hub") });
    let (node, other) = (world.join("a"), world.join("b"));
    world.subscribe(other, "svc", "");
    let head = PublishHead { subject: "svc", ..PublishHead::default() };
    let sent = world.nodes[node].session.publish(&head, Flags::NORMAL, vec![0; 1_001][..].into());
    assert_eq!(sent, Err(Refused::TooLong { bytes: 1_001, max: 1_000 }));
    world.publish(node, Flags::NORMAL, "svc", &[0; 1_000]);
    world.settle();
    assert_eq!(world.published(other).len(), 1);
}

#[test]
fn a_payload_is_too_long_for_the_one_that_takes_less() {
    for bytes in [5_001, 100_000, 3 * MIB] {
        let mut world = World::new(3);
        let big = world.join("big");
        let small = world.join_with(&Greeting { payload_bytes: 5_000, ..Greeting::new("small") });
        let third = world.join("third");
        world.subscribe(big, "big", "");
        world.subscribe(small, "small", "");
        for node in [small, third] {
            world.subscribe(node, "all", "");
        }
        let too_large = |world: &mut World, node, tag, told: [&str; 2]| {
            let events = world.events(node);
            let [Event::Failed(got, number, message)] = &events[..] else { panic!("{bytes}: {events:?}") };
            assert_eq!((*got, *number), (tag, ErrorCode::PayloadTooLarge.number()));
            let [before, after] = told;
            let text = format!("{before}{bytes} bytes are more than payload_bytes=5000 of {after}");
            assert_eq!(str::from_utf8(message.payload()), Ok(&*text));
        };
        // A call.
        world.call(big, "small", &filled(bytes, 0), 1);
        world.settle();
        too_large(&mut world, big, 1, ["", "the node that answers: send less, or raise the limit there"]);
        // An answer.
        world.call(small, "big", b"", 2);
        let call = world.settled_call(big);
        world.nodes[big].session.reply(call.id, Flags::NORMAL, filled(bytes, 0)[..].into()).unwrap();
        world.settle();
        let here = ["the answer: ", "this node: ask for less at once, or raise the limit here"];
        too_large(&mut world, small, 2, here);
        // An item of an answer: the callee learns that it can stop.
        world.call(small, "big", b"", 3);
        let call = world.settled_call(big);
        world.nodes[big].session.answer_item(call.id, Flags::NORMAL, filled(bytes, 0)[..].into()).unwrap();
        world.settle();
        too_large(&mut world, small, 3, here);
        assert!(matches!(world.events(big)[..], [Event::Cancelled(id)] if id == call.id));
        // An item of a caller.
        let id = world.call(big, "small", b"", 4);
        let call = world.settled_call(small);
        world.invite((small, call.id), (big, 4), 1);
        world.nodes[big].session.item(id, Flags::NORMAL, filled(bytes, 0)[..].into()).unwrap();
        world.settle();
        let there = ["an item: ", "the node that answers: send less at once, or raise the limit there"];
        too_large(&mut world, big, 4, there);
        assert!(matches!(world.events(small)[..], [Event::Cancelled(id)] if id == call.id));
        // A message: those who take it get it.
        world.publish(big, Flags::NORMAL, "all", &filled(bytes, 9));
        world.publish(big, Flags::NORMAL, "all", b"next");
        world.settle();
        assert!(world.published(third) == [filled(bytes, 9), b"next".to_vec()]);
        assert_eq!(world.published(small), [b"next".to_vec()]);
        assert_eq!(world.hub.counts().dropped, 1);
        for (node, subscriptions) in [(big, 1), (small, 2), (third, 1)] {
            let session = &world.nodes[node].session;
            assert_eq!((session.out.bytes(), session.coming_bytes()), (0, 0));
            assert_eq!(session.open_exchanges(), (subscriptions, 0));
        }
        assert_eq!((world.hub.open_calls(), world.hub.open_routes()), (0, 4));
    }
}

#[test]
fn a_long_message_reaches_all_at_the_pace_of_the_fastest() {
    let mut world = World::with(4, HubOptions { queue_bytes: 4 * MIB, ..HubOptions::new("hub") });
    let sender = world.join("sender");
    let (fast, slow, stuck) = (world.join("fast"), world.join("slow"), world.join("stuck"));
    for node in [fast, slow, stuck] {
        world.subscribe(node, "all", "");
    }
    world.nodes[slow].down.paused = true;
    world.nodes[stuck].down.paused = true;
    world.publish(sender, Flags::NORMAL, "all", &filled(3 * MIB, 1));
    world.publish(sender, Flags::NORMAL, "all", b"behind");
    world.settle();
    assert!(world.published(fast) == [filled(3 * MIB, 1), b"behind".to_vec()]);
    world.nodes[slow].down.paused = false;
    world.settle();
    assert!(world.published(slow) == [filled(3 * MIB, 1), b"behind".to_vec()]);
    // More than may wait for the one that is stuck.
    world.publish(sender, Flags::NORMAL, "all", &filled(6 * MIB, 2));
    world.settle();
    for node in [fast, slow] {
        assert!(world.published(node) == [filled(6 * MIB, 2)]);
    }
    assert_eq!(world.hub.counts().dropped, 1);
    world.nodes[stuck].down.paused = false;
    world.settle();
    assert!(world.published(stuck) == [filled(3 * MIB, 1), b"behind".to_vec()]);
    assert_eq!(world.nodes[stuck].session.open_exchanges(), (1, 0));
    assert_eq!(world.nodes[stuck].session.coming_bytes(), 0);
    assert_eq!((world.hub.open_calls(), world.hub.open_routes()), (0, 3));
}

#[test]
fn a_long_message_to_one_node_waits_for_it() {
    let mut world = World::with(5, HubOptions { queue_bytes: 4 * MIB, ..HubOptions::new("hub") });
    let (sender, receiver) = (world.join("sender"), world.join("receiver"));
    world.subscribe(receiver, "all", "");
    world.nodes[receiver].down.paused = true;
    world.publish(sender, Flags::NORMAL, "all", &filled(20 * MIB, 1));
    world.settle();
    assert!(world.nodes[sender].session.out.bytes() > 15 * MIB, "the rest stays with the sender");
    world.nodes[receiver].down.paused = false;
    world.settle();
    assert!(world.published(receiver) == [filled(20 * MIB, 1)], "and arrives");
    assert_eq!(world.hub.counts().dropped, 0);
}

#[test]
fn the_fastest_receiver_may_go_in_the_middle() {
    for seed in 0..50 {
        let mut world = World::new(seed);
        let sender = world.join("sender");
        let receivers = [world.join("a"), world.join("b"), world.join("c")];
        for node in receivers {
            world.subscribe(node, "all", "");
        }
        let gone = receivers[seed as usize % 3];
        let kept = receivers.map(|node| if node == gone { sender } else { node });
        for node in kept {
            world.nodes[node].down.paused = node != sender;
        }
        world.publish(sender, Flags::NORMAL, "all", &filled(4 * MIB, 1));
        for _ in 0..world.random.below(2_000) {
            world.step();
        }
        world.cut(gone);
        for node in kept {
            world.nodes[node].down.paused = false;
        }
        world.settle();
        for node in kept.into_iter().filter(|node| *node != sender) {
            assert!(world.published(node) == [filled(4 * MIB, 1)], "seed {seed}");
        }
        assert_eq!(world.hub.open_calls(), 0, "seed {seed}");
    }
}

#[test]
fn a_payload_beyond_the_limit_gets_an_error_of_its_own() {
    let mut world = World::new(6);
    let caller = world.join("caller");
    let callee = world.join_with(&Greeting { payload_bytes: 200_000, ..Greeting::new("callee") });
    world.subscribe(callee, "svc", "");
    world.piece_bytes = 100;
    // Four of the longest that it takes can be under way. Their chunks take turns, so that all are.
    for tag in 0..6 {
        world.call(caller, "svc", &filled(200_000, tag), tag);
    }
    world.settle();
    let failed: Vec<_> = world
        .events(caller)
        .iter()
        .map(|event| if let Event::Failed(_, number, _) = event { *number } else { panic!("{event:?}") })
        .collect();
    assert_eq!(failed, [ErrorCode::LimitExceeded.number(); 2]);
    assert_eq!(world.events(callee).len(), 4);
    assert_eq!(world.nodes[callee].session.coming_bytes(), 0);
}
