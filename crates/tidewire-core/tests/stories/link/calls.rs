//! Calls between nodes: each ends once, at both sides.

use tidewire_core::link::hub::HubOptions;
use tidewire_core::link::session::{Event, Greeting, Refused};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::{CallHead, FieldsWriter, Flags, SubscribeHead};

use crate::link::support::{World, announced, failure, lane, nothing_is_left, pair};

#[test]
fn a_call_carries_everything_and_is_answered_once() {
    let (mut world, caller, callee) = pair(1);
    let mut said = Vec::new();
    FieldsWriter::new(&mut said).add("trace", b"abc").unwrap();
    let fields = tidewire_proto::wire::Fields::parse("CALL", &said).unwrap();
    let head = CallHead { deadline_ms: 250, credit: 8, subject: "svc", fields, ..CallHead::default() };
    world.nodes[caller].session.call(&head, lane(1).with_again(true), b"question"[..].into(), 1).unwrap();
    let call = world.settled_call(callee);
    let got = CallHead::parse(call.head()).unwrap();
    assert_eq!((got.subject, got.deadline_ms, got.credit), ("svc", 250, 8));
    assert_eq!(got.fields.get("trace"), Some(&b"abc"[..]));
    assert_eq!((call.payload(), call.flags.lane(), call.flags.again()), (&b"question"[..], 1, true));
    assert_eq!(world.nodes[callee].session.name_of(got.origin).unwrap().name, "caller");

    world.nodes[callee].session.reply(call.id, Flags::NORMAL, b"answer"[..].into()).unwrap();
    let again = world.nodes[callee].session.reply(call.id, Flags::NORMAL, b"twice"[..].into());
    assert_eq!(again, Err(Refused::Over));
    let events = world.settled(caller);
    let [Event::Replied(1, reply)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(reply.payload(), b"answer");
    nothing_is_left(&world);
}

#[test]
fn the_name_of_a_caller_comes_before_its_call_while_another_lane_is_full() {
    for full in 0..4 {
        let (mut world, caller, callee) = pair(19);
        let other = world.join("other");
        world.nodes[callee].down.paused = true;
        for _ in 0..100 {
            world.publish(other, lane(full), "svc", &[0; 10_000]);
        }
        world.settle();
        world.call_in(caller, lane(3 - full), "svc", b"", 1);
        world.settle();
        world.nodes[callee].down.paused = false;
        let called = |event| if let Event::Called(call) = event { Some(call) } else { None };
        let call = loop {
            world.step_down(callee);
            if let Some(call) = world.events(callee).into_iter().find_map(called) {
                break call;
            }
        };
        let origin = CallHead::parse(call.head()).unwrap().origin;
        assert!(world.nodes[callee].session.name_of(origin).is_some(), "lane {full} is full");
        assert!(!world.settled(callee).is_empty(), "the call has overtaken messages");
    }
}

#[test]
fn a_call_fails_with_what_the_callee_says() {
    let (mut world, caller, callee) = pair(2);
    for (code, text) in [(ErrorCode::AskTimeout, "too slow".to_owned()), (ErrorCode::RemoteError, "x".repeat(300_000))]
    {
        world.call(caller, "svc", b"", 1);
        let call = world.settled_call(callee);
        world.nodes[callee].session.fail(call.id, code, text.as_bytes().into()).unwrap();
        assert_eq!(failure(&mut world, caller), (1, code, text));
    }
    nothing_is_left(&world);
}

#[test]
fn a_call_without_a_responder_names_the_lost_connection() {
    let mut world = World::new(4);
    let node = world.join("a");
    for (lost, code) in [(Some("nats://there"), ErrorCode::LinkLost), (None, ErrorCode::NoResponders)] {
        world.hub.set_lost(lost);
        world.call(node, "svc", b"", 1);
        let (_, found, text) = failure(&mut world, node);
        assert_eq!((found, text.contains("nats://there")), (code, lost.is_some()), "{text}");
    }
}

#[test]
fn an_error_that_is_too_long_is_told_in_short() {
    let mut world = World::with(3, HubOptions { payload_bytes: 100_000, ..HubOptions::new("hub") });
    let node = world.join("a");
    world.subscribe(node, "svc", "");
    world.call(node, "svc", b"", 1);
    let call = world.settled_call(node);
    world.nodes[node].session.fail(call.id, ErrorCode::RemoteError, vec![0; 100_001][..].into()).unwrap();
    let (_, code, text) = failure(&mut world, node);
    assert_eq!((code, &*text), (ErrorCode::LimitExceeded, "remote_error: its 100001 bytes found no room on the link"));
    nothing_is_left(&world);
}

#[test]
fn the_hub_keeps_its_own_subjects_for_itself() {
    let (mut world, caller, callee) = pair(5);
    world.subscribe(callee, ">", "");
    world.call(caller, "$hub.secrets", b"", 1);
    assert_eq!(failure(&mut world, caller).1, ErrorCode::NoResponders);
}

#[test]
fn a_caller_that_cancels_hears_nothing_more_and_the_callee_hears_it() {
    let (mut world, caller, callee) = pair(6);
    for number in [0, 1, 2, 3] {
        let id = world.call_in(caller, lane(number), "svc", b"", 1);
        let call = world.settled_call(callee);
        world.nodes[caller].session.cancel(id);
        world.nodes[callee].session.reply(call.id, Flags::NORMAL, b"crossed"[..].into()).unwrap();
        assert!(world.settled(caller).is_empty());

        let id = world.call_in(caller, lane(number), "svc", b"", 1);
        let call = world.settled_call(callee);
        world.nodes[caller].session.cancel(id);
        let events = world.settled(callee);
        assert!(matches!(events[..], [Event::Cancelled(ended)] if ended == call.id), "{events:?}");
    }
    nothing_is_left(&world);
}

#[test]
fn an_urgent_call_in_the_slot_of_a_cancelled_one_does_not_overtake_its_end() {
    let (mut world, caller, callee) = pair(7);
    let id = world.call_in(caller, lane(3), "svc", b"given up", 1);
    world.nodes[caller].session.cancel(id);
    let next = world.call_in(caller, lane(0), "svc", b"urgent", 2);
    assert_ne!(id as u32, next as u32, "the slot is in use until the end is on its way");
    world.settle();
    let payloads: Vec<_> = world
        .events(callee)
        .into_iter()
        .filter_map(|event| if let Event::Called(call) = event { Some(call.payload().to_vec()) } else { None })
        .collect();
    assert_eq!(payloads, [b"urgent".to_vec(), b"given up".to_vec()]);
    // The same between the hub and the callee.
    let id = world.call_in(caller, lane(3), "svc", b"given up", 3);
    world.settle();
    world.nodes[callee].down.paused = true;
    world.nodes[caller].session.cancel(id);
    world.settle();
    world.call_in(caller, lane(0), "svc", b"urgent", 4);
    world.settle();
    world.nodes[callee].down.paused = false;
    world.settle();
    assert_eq!(world.nodes[callee].fault, None);
    assert_eq!(world.nodes[caller].fault, None);

    for _ in 0..100 {
        let id = world.call(caller, "svc", b"", 5);
        world.nodes[caller].session.cancel(id);
        world.settle();
        assert!((id as u32) < 4, "slots of what has ended are used again");
    }
}

#[test]
fn an_urgent_call_does_not_overtake_the_end_of_a_subscription() {
    let (mut world, caller, _) = pair(8);
    let id = world.subscribe(caller, "other", "");
    world.nodes[caller].session.unsubscribe(id);
    world.call_in(caller, lane(0), "svc", b"", 1);
    world.settle();
    assert_eq!(world.nodes[caller].fault, None);
    assert_eq!(world.hub.subscriptions(), 1);
}

#[test]
fn queue_groups_go_before_single_subscriptions_and_choice_decides_among_members() {
    let mut world = World::new(9);
    let caller = world.join("caller");
    let single = world.join("single");
    world.subscribe(single, "svc.a", "");
    let members = [world.join("m0"), world.join("m1"), world.join("m2")];
    // The first has the widest pattern: what counts is when it subscribed.
    for (member, pattern) in members.into_iter().zip(["svc.>", "svc.*", "svc.a"]) {
        world.subscribe(member, pattern, "workers");
    }
    let call = |world: &mut World, choice| {
        let head = CallHead { subject: "svc.a", choice, ..CallHead::default() };
        world.nodes[caller].session.call(&head, Flags::NORMAL, b""[..].into(), 1).unwrap();
        world.settle();
    };
    let counts = |world: &mut World| members.map(|member| world.events(member).len());

    for _ in 0..6 {
        call(&mut world, 1);
    }
    assert_eq!(counts(&mut world), [6, 0, 0], "the first");
    for _ in 0..15 {
        call(&mut world, 0);
    }
    assert_eq!(counts(&mut world), [1, 7, 7], "the least busy: six were open at the first");
    for _ in 0..300 {
        call(&mut world, 2);
    }
    let any = counts(&mut world);
    assert!(any.into_iter().all(|count| (60..140).contains(&count)), "any: {any:?}");
    assert!(world.events(single).is_empty());
}

#[test]
fn calls_that_end_make_their_member_less_busy() {
    let mut world = World::new(10);
    let (caller, a, b) = (world.join("caller"), world.join("a"), world.join("b"));
    world.subscribe(a, "svc", "q");
    world.subscribe(b, "svc", "q");
    let mut counts = [0, 0];
    for tag in 0..100 {
        world.call(caller, "svc", b"", tag);
        world.settle();
        for (node, count) in [a, b].into_iter().zip(&mut counts) {
            for event in world.events(node) {
                let Event::Called(call) = event else { panic!("{event:?}") };
                *count += 1;
                // Only the first one answers: the other one gets as many as are open at once, and
                // no more.
                if node == a {
                    world.nodes[node].session.reply(call.id, Flags::NORMAL, b""[..].into()).unwrap();
                }
            }
        }
        world.settle();
    }
    assert_eq!(counts, [99, 1]);
}

#[test]
fn as_many_calls_are_open_as_the_hub_takes() {
    let mut world = World::with(16, HubOptions { in_flight: 3, ..HubOptions::new("hub") });
    let (caller, callee) =
        (world.join("caller"), world.join_with(&Greeting { in_flight: 2, ..Greeting::new("callee") }));
    world.subscribe(callee, "svc", "");
    for tag in 0..3 {
        world.call(caller, "svc", b"", tag);
    }
    let head = CallHead { subject: "svc", ..CallHead::default() };
    let fourth = world.nodes[caller].session.call(&head, Flags::NORMAL, b""[..].into(), 4);
    assert_eq!(fourth, Err(Refused::InFlight { max: 3, of_token: false }));
    assert_eq!(world.settled(callee).len(), 2);
    let (tag, code, text) = failure(&mut world, caller);
    assert_eq!((tag, code), (2, ErrorCode::Overloaded));
    assert!(text.contains("link_in_flight"), "{text}");
}

#[test]
fn a_node_that_stops_finishes_what_it_has() {
    let (mut world, caller, callee) = pair(17);
    let back = world.call(callee, "svc", b"of its own", 9);
    let own = world.settled_call(callee);
    world.invite((callee, own.id), (callee, 9), 1);
    world.call(caller, "svc", b"before", 1);
    let before = world.settled_call(callee);
    // A call that has left when the node says goodbye.
    world.nodes[callee].down.paused = true;
    world.call(caller, "svc", b"crossing", 2);
    world.settle();
    world.nodes[callee].session.goodbye();
    world.nodes[callee].down.paused = false;
    assert_eq!(failure(&mut world, caller).1, ErrorCode::NodeStopped);
    world.call(caller, "svc", b"later", 3);
    assert_eq!(failure(&mut world, caller).1, ErrorCode::NoResponders);

    let session = &mut world.nodes[callee].session;
    session.item(back, Flags::NORMAL, b"goes on"[..].into()).unwrap();
    session.reply(before.id, Flags::NORMAL, b"done"[..].into()).unwrap();
    // The callee may still need other nodes to finish its work.
    world.call(callee, "other", b"needed", 4);
    assert!(matches!(world.settled(caller)[..], [Event::Replied(1, _)]));
    let heard = world.events(callee);
    assert!(
        matches!(heard[..], [Event::Failed(4, ..), Event::Input(_)] | [Event::Input(_), Event::Failed(4, ..)]),
        "{heard:?}"
    );
    world.nodes[callee].session.reply(own.id, Flags::NORMAL, b""[..].into()).unwrap();
    world.settle();
    assert_eq!(world.hub.open_calls(), 0);
}

#[test]
fn a_hub_that_stops_takes_no_new_calls() {
    let (mut world, caller, callee) = pair(18);
    world.call(caller, "svc", b"", 1);
    let call = world.settled_call(callee);
    world.hub.goodbye();
    world.settle();
    for node in [caller, callee] {
        assert!(matches!(world.events(node)[..], [Event::Goodbye]));
    }
    world.call(caller, "svc", b"", 2);
    world.nodes[callee].session.reply(call.id, Flags::NORMAL, b""[..].into()).unwrap();
    let events = world.settled(caller);
    let stopped = ErrorCode::NodeStopped.number();
    assert_eq!(events.len(), 2);
    assert!(
        events.iter().any(|event| matches!(event, Event::Failed(2, number, _) if *number == stopped)),
        "{events:?}"
    );
    assert!(events.iter().any(|event| matches!(event, Event::Replied(1, _))), "{events:?}");
    let late = world.connect(&Greeting::new("late"));
    world.settle();
    assert_eq!(world.nodes[late].link, None);
}

// Promises: P13.13.
#[test]
fn a_listener_hears_messages_and_gets_no_calls() {
    let (mut world, caller, callee) = pair(21);
    let watcher = world.join("watcher");
    let head = SubscribeHead { queue: "", pattern: ">" };
    world.nodes[watcher].session.listen(&head, &[], 1).expect("a subscription is sent");
    assert!(matches!(world.settled(watcher)[..], [Event::Subscribed(1)]));
    for tag in 0..20 {
        world.call(caller, "svc", b"", tag);
    }
    world.call(caller, "svc.nobody", b"", 99);
    world.publish(caller, Flags::NORMAL, "svc", b"news");
    assert_eq!(world.settled(callee).len(), 21, "all calls, and the message");
    assert_eq!(world.published(watcher), [b"news"]);
    assert_eq!(failure(&mut world, caller).1, ErrorCode::NoResponders);
}

#[test]
fn the_hub_lists_its_nodes_and_says_who_comes_and_goes() {
    let mut world = World::new(20);
    world.hub.keep_changes();
    let (caller, callee) = (world.join("caller"), world.join("callee"));
    let said = announced("svc.add.one.*", 0);
    let head = SubscribeHead { queue: "", pattern: "svc.add.one.*" };
    world.nodes[callee].session.subscribe(&head, &said, 0).unwrap();
    world.settle();
    world.call(caller, "$hub.nodes", b"", 1);
    let events = world.settled(caller);
    let [Event::Replied(1, list)] = &events[..] else { panic!("one reply: {} events", events.len()) };
    let wanted = b"\x06\0callee\0\0\x01\0\0\0\0\0\0\0";
    assert!(list.payload().windows(wanted.len()).any(|window| window == wanted), "{:?}", list.payload());
    world.nodes[callee].session.goodbye();
    world.settle();
    world.cut(callee);
    world.settle();
    let told: Vec<String> = world.hub.changes().iter().map(ToString::to_string).collect();
    let wanted = [
        r#"node "caller" has joined"#,
        r#"node "callee" has joined"#,
        r#"node "callee" serves svc.add.one.*"#,
        r#"node "callee" serves svc.add.one.* no longer"#,
        r#"node "callee" has left"#,
    ];
    assert_eq!(told, wanted);
    world.cut(caller);
    assert_eq!(world.hub.changes()[0].to_string(), r#"node "caller" has gone without a goodbye"#);
}

#[test]
fn the_hub_lists_services_however_many_there_are() {
    let mut world = World::new(20);
    let (caller, callee) = (world.join("caller"), world.join("callee"));
    world.subscribe(caller, "silent", "");
    for at in 0..400 {
        let pattern = format!("svc.s.{at}.*");
        let (head, said) = (SubscribeHead { queue: "", pattern: &pattern }, announced(&pattern, 5_000));
        world.nodes[callee].session.subscribe(&head, &said, at).unwrap();
    }
    world.settled(callee);
    world.call(caller, "svc.s.7.m", b"", 1);
    world.call(caller, "$hub.services", b"", 2);
    let events = world.settled(caller);
    let [Event::Replied(2, list)] = &events[..] else { panic!("one reply: {} events", events.len()) };
    let entry = |at: usize| format!("callee\0\0{}\0svc.s.{at}.*", char::from(format!("svc.s.{at}.*").len() as u8));
    assert!(list.payload().len() > 2_000_000, "more than a window");
    for at in [0, 7, 399] {
        let wanted = entry(at).into_bytes();
        let found = list.payload().windows(wanted.len()).position(|window| window == wanted).unwrap();
        let busy = list.payload()[found + wanted.len()];
        assert_eq!(busy, u8::from(at == 7), "calls in progress at {at}");
    }
    world.nodes[callee].session.goodbye();
    world.settle();
    assert_eq!(world.hub.subscriptions(), 1);
}
