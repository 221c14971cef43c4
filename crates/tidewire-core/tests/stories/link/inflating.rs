//! Compressed payloads on arrival: they are inflated as they come, and a fault ends their exchange
//! where it is found.

use tidewire_core::link::assembly::{Assemblies, Inflated, Progress};
use tidewire_core::link::compression::Packed;
use tidewire_core::link::session::{Event, Greeting, Session};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::{self, CallHead, Flags, Kind, PublishHead};

use crate::link::support::compressed::{broken, packed, pair_of, text, waiting};
use crate::link::support::{KIB, MIB, World, failure, frames, nothing_is_left};

#[test]
fn a_broken_payload_fails_its_call_and_nothing_else() {
    for (payload, problem) in broken() {
        let (mut world, caller, callee) = pair_of(11, &Greeting::new("a"), &Greeting::new("b"));
        // As a call.
        let flags = Flags::NORMAL.with_compressed(true);
        let head = CallHead { subject: "svc", ..CallHead::default() };
        world.nodes[caller].session.call(&head, flags, payload[..].into(), 1).unwrap();
        let (_, code, said) = failure(&mut world, caller);
        assert_eq!(code, ErrorCode::WireError);
        assert!(said.contains(problem) && said.contains("lz4"), "{said}, not {problem}");
        assert!(world.events(callee).is_empty());
        // As its answer, and as an item.
        for kind in [Kind::Reply, Kind::Item] {
            world.call(caller, "svc", b"question", 2);
            let call = world.settled_call(callee);
            let mut frame = Vec::new();
            wire::write(&mut frame, kind, flags.with_answer(true), call.id, |_| Ok(()), &payload).unwrap();
            world.inject(callee, &frame);
            let (_, code, said) = failure(&mut world, caller);
            assert_eq!(code, ErrorCode::WireError);
            assert!(said.contains(problem), "{said}, not {problem}");
            let _ = world.nodes[callee].session.reply(call.id, Flags::NORMAL, b"late"[..].into());
            world.settled(callee);
        }
        // As a message, and as an item of the caller.
        world.subscribe(callee, "news", "");
        let head = PublishHead { subject: "news", ..PublishHead::default() };
        world.nodes[caller].session.publish(&head, flags, payload[..].into()).unwrap();
        let events = world.settled(callee);
        assert!(matches!(&events[..], [Event::Dropped(why)] if why.contains(problem)), "{events:?}");
        let id = world.call(caller, "svc", b"question", 3);
        let call = world.settled_call(callee);
        world.invite((callee, call.id), (caller, 3), 1);
        world.nodes[caller].session.item(id, flags, payload[..].into()).unwrap();
        let events = world.settled(callee);
        assert!(matches!(&events[..], [Event::Cancelled(_)]), "{events:?}");
        assert_eq!(failure(&mut world, caller).1, ErrorCode::WireError);
        assert!(world.nodes[caller].link.is_some() && world.nodes[callee].link.is_some(), "both links stay");
        nothing_is_left(&world);
    }
}

/// A long payload, and its compressed form with a fault behind the middle; chunks of it come before
/// and after that.
fn broken_late() -> Vec<u8> {
    let mut form = Packed::of(&text(4 * MIB)).unwrap().into_bytes();
    let mut block = 8;
    while block < form.len() / 2 {
        let bytes = u32::from_le_bytes(form[block..block + 4].try_into().unwrap());
        block += 4 + bytes as usize;
    }
    form[block + 3] = 1;
    assert!(form.len() > MIB, "it has many chunks");
    form
}

/// Moves bytes until a call of a node fails. Answers the failure, and what waited at the sender
/// just before.
fn until_failure(world: &mut World, node: usize, sender: usize) -> (ErrorCode, String, usize) {
    for _ in 0..1_000_000 {
        let before = waiting(world, sender);
        world.step();
        if world.nodes[node].events.iter().any(|event| matches!(event, Event::Failed(..))) {
            let (_, code, said) = failure(world, node);
            return (code, said, before);
        }
    }
    panic!("it does not fail");
}

#[test]
fn a_fault_in_a_long_payload_ends_its_exchange_before_the_rest_has_come() {
    let (form, flags) = (broken_late(), Flags::NORMAL.with_compressed(true));
    let (mut world, caller, callee) = pair_of(14, &Greeting::new("a"), &Greeting::new("b"));
    let head = CallHead { subject: "svc", credit: 9, ..CallHead::default() };
    let failed = |world: &mut World, sender: usize| {
        let (code, said, unsent) = until_failure(world, caller, sender);
        assert_eq!(code, ErrorCode::WireError);
        assert!(said.contains("a block is longer"), "{said}");
        assert!(unsent > 100 * KIB, "{unsent} bytes had not been sent");
        world.settled(callee);
        nothing_is_left(world);
    };
    world.nodes[caller].session.call(&head, flags, form[..].into(), 1).unwrap();
    failed(&mut world, caller);
    for kind in [Kind::Reply, Kind::Item, Kind::Fail] {
        world.call(caller, "svc", b"question", 2);
        world.settle();
        let (call, session) = (world.called(callee).id, &mut world.nodes[callee].session);
        match kind {
            Kind::Reply => session.reply(call, flags, form[..].into()).unwrap(),
            Kind::Item => session.answer_item(call, flags, form[..].into()).unwrap(),
            _ => send_long(&mut world, callee, Kind::Fail, call, &form),
        }
        failed(&mut world, callee);
    }
    let id = world.call(caller, "svc", b"question", 3);
    let call = world.settled_call(callee);
    world.invite((callee, call.id), (caller, 3), 1);
    world.nodes[caller].session.item(id, flags, form[..].into()).unwrap();
    failed(&mut world, caller);
    assert!(world.nodes[caller].link.is_some() && world.nodes[callee].link.is_some(), "both links stay");
}

/// A long compressed payload of an exchange that a node answers.
fn send_long(world: &mut World, node: usize, kind: Kind, id: u64, form: &[u8]) {
    let flags = Flags::NORMAL.with_compressed(true).with_answer(true);
    let head = |out: &mut Vec<u8>| {
        out.extend_from_slice(&ErrorCode::RemoteError.number().to_le_bytes());
        Ok(())
    };
    world.nodes[node].session.out.send_long(kind, flags, id, head, Box::new(form.to_vec()), 0).unwrap();
}

#[test]
fn a_fault_in_a_long_message_costs_one_receiver_the_message_and_nobody_else() {
    let small = Greeting { payload_bytes: 3 * MIB, ..Greeting::new("small") };
    let mut world = World::new(15);
    let (sender, reader, small) = (world.join("sender"), world.join("reader"), world.join_with(&small));
    for node in [reader, small] {
        world.subscribe(node, "news", "");
    }
    let head = PublishHead { subject: "news", ..PublishHead::default() };
    // The hub takes its compressed form for short enough.
    world.nodes[sender].session.publish(&head, Flags::NORMAL, packed(&text(4 * MIB))).unwrap();
    world.publish(sender, Flags::NORMAL, "news", b"next");
    world.settle();
    assert!(world.published(reader) == [text(4 * MIB), b"next".to_vec()]);
    let events = world.events(small);
    let [Event::Dropped(why), Event::Published(next)] = &events[..] else { panic!("{events:?}") };
    assert!(why.contains("payload_bytes") && next.payload() == b"next", "{why}");

    world.nodes[sender].session.publish(&head, Flags::NORMAL.with_compressed(true), broken_late()[..].into()).unwrap();
    world.publish(sender, Flags::NORMAL, "news", b"next");
    let events = world.settled(reader);
    let [Event::Dropped(why), Event::Published(_)] = &events[..] else { panic!("{events:?}") };
    assert!(why.contains("a block is longer"), "{why}");
    nothing_is_left(&world);
}

/// A CALL that states so many bytes of a compressed form, and the first chunk, which states so many
/// bytes of the payload.
fn begun(id: u64, form: usize, stated: usize) -> Vec<u8> {
    let (mut frames, head) = (Vec::new(), CallHead { subject: "svc", ..CallHead::default() });
    let flags = Flags::NORMAL.with_more(true).with_compressed(true);
    wire::write(&mut frames, Kind::Call, flags, id, |out| head.put(out), &(form as u64).to_le_bytes()).unwrap();
    let flags = Flags::NORMAL.with_more(true);
    wire::write(&mut frames, Kind::Chunk, flags, id, |_| Ok(()), &(stated as u64).to_le_bytes()).unwrap();
    frames
}

/// The beginning of a CALL whose payload of so many bytes is not compressed.
fn plain(id: u64, stated: usize) -> Vec<u8> {
    let (mut frame, head) = (Vec::new(), CallHead { subject: "svc", ..CallHead::default() });
    let flags = Flags::NORMAL.with_more(true);
    wire::write(&mut frame, Kind::Call, flags, id, |out| head.put(out), &(stated as u64).to_le_bytes()).unwrap();
    frame
}

fn hear(session: &mut Session<u32>, bytes: &[u8]) -> Vec<Event<u32>> {
    let mut events = Vec::new();
    for frame in frames(bytes) {
        session.received(&frame, 0, &mut events).unwrap();
        session.inflate(0, &mut events);
    }
    events
}

#[test]
fn little_of_a_compressed_form_is_kept_however_long_its_chunk_is() {
    let mut parts = Assemblies::new(64 * MIB);
    for frame in frames(&begun(1 << 32, 10 * MIB, 20 * MIB)) {
        assert_eq!(parts.take(&frame), Ok(Progress::More));
        if let Some(mut inflating) = parts.to_inflate() {
            inflating.inflate();
            assert_eq!(parts.inflated(inflating), Inflated::More);
        }
    }
    let room = |room: &mut [u8]| if room.len() <= 64 * KIB { Ok(0) } else { Err(room.len()) };
    assert_eq!(parts.fill((1 << 32, false), MIB, room), Some(Ok(0)));
}

#[test]
fn payloads_under_way_count_with_their_final_length() {
    let small = Greeting { payload_bytes: MIB, ..Greeting::new("b") };
    let (mut world, _, callee) = pair_of(16, &Greeting::new("a"), &small);
    let session = &mut world.nodes[callee].session;
    for slot in 0..4 {
        hear(session, &begun(1 << 32 | slot, 1_000, MIB / 4));
        assert_eq!(session.coming_bytes(), (slot as usize + 1) * MIB / 4);
    }
    assert_eq!(session.out.bytes(), 0);
    // Together they have the capacity of one payload of the greatest length. One more is refused
    // before anything is allocated for it.
    hear(session, &begun(1 << 32 | 4, 1_000, 1));
    assert_eq!(refused(session), 1 << 32 | 4);
    assert_eq!(session.coming_bytes(), MIB);
    // Payloads sent at full length share the rest of four; an ended payload frees its capacity.
    hear(session, &plain(1 << 32 | 5, MIB));
    assert_eq!(session.coming_bytes(), 2 * MIB);
    cancel(session, 1 << 32 | 2);
    hear(session, &begun(1 << 32 | 6, 1_000, MIB / 4 + 1));
    assert_eq!(refused(session), 1 << 32 | 6);
    hear(session, &begun(1 << 32 | 7, 1_000, MIB / 4));
    assert_eq!((session.out.bytes(), session.coming_bytes()), (0, 2 * MIB));
    session.lost(&mut Vec::new());
    assert_eq!(session.coming_bytes(), 0);
}

/// The call that a session has refused for lack of capacity.
fn refused(session: &mut Session<u32>) -> u64 {
    let mut said = Vec::new();
    session.out.take(&mut said, MIB);
    let said = frames(&said);
    let [fail] = &said[..] else { panic!("{said:?}") };
    assert_eq!((fail.kind, fail.head), (Kind::Fail, &ErrorCode::LimitExceeded.number().to_le_bytes()[..]));
    fail.id
}

fn cancel(session: &mut Session<u32>, id: u64) {
    let mut frame = Vec::new();
    wire::write(&mut frame, Kind::Cancel, Flags::NORMAL, id, |_| Ok(()), b"").unwrap();
    hear(session, &frame);
}

/// A call that has arrived up to its last byte, or whole, at the session of the callee.
fn coming(session: &mut Session<u32>, whole: bool) {
    let form = Packed::of(&text(9_000)).unwrap().into_bytes();
    let mut bytes = begun(1 << 32, form.len(), 9_000);
    let end = form.len() - usize::from(!whole);
    wire::write(&mut bytes, Kind::Chunk, Flags::NORMAL.with_more(!whole), 1 << 32, |_| Ok(()), &form[8..end]).unwrap();
    for frame in frames(&bytes) {
        session.received(&frame, 0, &mut Vec::new()).unwrap();
    }
}

#[test]
fn nothing_is_inflated_before_a_block_is_there() {
    let (mut world, _, callee) = pair_of(17, &Greeting::new("a"), &Greeting::new("b"));
    let session = &mut world.nodes[callee].session;
    coming(session, false);
    assert!(session.to_inflate().is_none());
    assert_eq!(session.coming_bytes(), 9_000);
}

#[test]
fn a_payload_that_ends_while_it_is_inflated_is_released() {
    let mut cancel = Vec::new();
    wire::write(&mut cancel, Kind::Cancel, Flags::NORMAL, 1 << 32, |_| Ok(()), b"").unwrap();
    for is_cancelled in [true, false] {
        let (mut world, _, callee) = pair_of(18, &Greeting::new("a"), &Greeting::new("b"));
        let (session, mut events) = (&mut world.nodes[callee].session, Vec::new());
        coming(session, true);
        let mut inflating = session.to_inflate().expect("all of it has come");
        assert_eq!((inflating.inflate(), session.coming_bytes()), (9_000, 9_000));
        if is_cancelled {
            session.received(&frames(&cancel)[0], 0, &mut events).unwrap();
        } else {
            session.lost(&mut events);
        }
        assert_eq!(session.coming_bytes(), 0);
        session.inflated(inflating, 0, &mut events);
        assert!(events.is_empty(), "{events:?}");
        assert_eq!((session.coming_bytes(), session.open_exchanges().1), (0, 0));
    }
}

#[test]
fn a_payload_left_compressed_is_inflated_when_the_next_frame_comes() {
    let (mut world, _, callee) = pair_of(19, &Greeting::new("a"), &Greeting::new("b"));
    let session = &mut world.nodes[callee].session;
    coming(session, true);
    let mut ping = Vec::new();
    wire::write(&mut ping, Kind::Ping, Flags::URGENT, 1, |_| Ok(()), b"").unwrap();
    let events = hear(session, &ping);
    assert!(matches!(&events[..], [Event::Called(call)] if call.payload() == text(9_000)), "{events:?}");
}
