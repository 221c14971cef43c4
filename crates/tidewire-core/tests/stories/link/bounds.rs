//! Bounded memory: nothing grows without a bound, and a full queue does not keep other nodes from
//! being served.

use tidewire_core::link::hub::HubOptions;
use tidewire_core::link::session::{Event, Fault, Greeting};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::{CallHead, Flags, SubscribeHead};

use crate::link::support::{KIB, MIB, World, announced, failure, filled, pair};

#[test]
fn a_full_member_of_a_group_does_not_fail_a_call_that_another_can_take() {
    for choice in 0..3 {
        let mut world = World::new(7);
        let caller = world.join("caller");
        let full = world.join_with(&Greeting { in_flight: 16, ..Greeting::new("full") });
        let roomy = world.join("roomy");
        world.subscribe(full, "busy", "");
        world.subscribe(full, "svc", "workers");
        world.subscribe(roomy, "svc", "workers");
        for tag in 0..16 {
            world.call(caller, "busy", b"", tag);
        }
        assert_eq!(world.settled(full).len(), 16);
        let head = CallHead { subject: "svc", choice, ..CallHead::default() };
        for tag in 100..120 {
            world.nodes[caller].session.call(&head, Flags::NORMAL, b""[..].into(), tag).unwrap();
        }
        assert_eq!(world.settled(roomy).len(), 20, "choice {choice}");
        assert!(world.events(caller).is_empty(), "no call has failed");
    }
}

#[test]
fn a_call_that_no_member_can_take_says_why() {
    let mut world = World::new(8);
    let caller = world.join("caller");
    for name in ["one", "two"] {
        let node = world.join_with(&Greeting { in_flight: 16, ..Greeting::new(name) });
        world.subscribe(node, "svc", "workers");
    }
    for tag in 0..32 {
        world.call(caller, "svc", b"", tag);
    }
    assert!(world.settled(caller).is_empty());
    world.call(caller, "svc", b"", 99);
    let (tag, code, text) = failure(&mut world, caller);
    assert_eq!((tag, code), (99, ErrorCode::Overloaded));
    assert_eq!(text, "link_in_flight=16: too many calls are open at the node that answers: try again later");
}

#[test]
fn a_call_that_a_node_can_not_take_is_not_offered_to_each_of_its_subscriptions() {
    let mut world = World::new(11);
    let caller = world.join("caller");
    let narrow = world.join_with(&Greeting { payload_bytes: 1_024, ..Greeting::new("narrow") });
    for _ in 0..10_000 {
        world.nodes[narrow]
            .session
            .subscribe(&SubscribeHead { queue: "workers", pattern: "svc" }, &[], 9_999)
            .expect("a subscription is sent");
    }
    world.settle();
    let begun = std::time::Instant::now();
    world.call(caller, "svc", &filled(2 * KIB, 4), 1);
    let (tag, code, _) = failure(&mut world, caller);
    assert_eq!((tag, code), (1, ErrorCode::PayloadTooLarge));
    // Each offer looks at all of them: ten thousand would keep the hub from all others for minutes.
    assert!(begun.elapsed().as_secs() < 5, "the hub was at it for {:?}", begun.elapsed());
}

#[test]
fn a_node_that_does_not_read_costs_the_hub_no_more_than_its_queue_and_a_half() {
    let queue = 2 * MIB;
    let mut world = World::with(9, HubOptions { queue_bytes: queue, ..HubOptions::new("hub") });
    let (talker, deaf) = (world.join("talker"), world.join("deaf"));
    world.subscribe(deaf, "news.>", "");
    world.nodes[deaf].down.paused = true;
    let link = world.nodes[deaf].link.expect("it has joined");
    let payload = filled(10 * KIB, 1);
    for round in 0..2_000 {
        world.publish(talker, Flags::NORMAL, "news.today", &payload);
        if round % 4 == 0 {
            // It asks without reading the answers.
            let _ = world.nodes[deaf].session.call(
                &CallHead { subject: "$hub.services", ..CallHead::default() },
                Flags::NORMAL,
                b""[..].into(),
                round,
            );
        }
        world.settle();
        let Some(out) = world.hub.outbox(link) else { break };
        assert!(out.bytes() <= queue + queue / 2 + 64 * KIB, "{} bytes wait", out.bytes());
        assert!(out.buffer_bytes() <= queue + queue / 2 + MIB, "{} bytes of memory", out.buffer_bytes());
    }
    assert!(world.hub.counts().dropped > 500);
}

#[test]
fn news_of_services_that_find_no_room_are_made_up_for() {
    let queue = MIB;
    let mut world = World::with(10, HubOptions { queue_bytes: queue, ..HubOptions::new("hub") });
    let (talker, watcher, server) = (world.join("talker"), world.join("watcher"), world.join("server"));
    world.subscribe(watcher, "$hub.services.*", "");
    world.subscribe(watcher, "noise", "");
    world.nodes[watcher].down.paused = true;
    let noise = filled(30 * KIB, 2);
    for _ in 0..60 {
        world.publish(talker, Flags::NORMAL, "noise", &noise);
        world.settle();
    }
    for number in 0..20 {
        let pattern = format!("svc.bank.{number}.*");
        let (head, says) = (SubscribeHead { queue: "", pattern: &pattern }, announced(&pattern, 8 * KIB));
        world.nodes[server].session.subscribe(&head, &says, number).unwrap();
        world.settle();
    }
    assert!(world.nodes[watcher].link.is_some(), "news alone do not close a link");
    world.nodes[watcher].down.paused = false;
    let subjects: Vec<String> = world.settled(watcher).into_iter().filter_map(told).collect();
    assert!(subjects.iter().filter(|subject| *subject == "$hub.services.added").count() < 20);
    assert_eq!(subjects.iter().filter(|subject| *subject == "$hub.services.missed").count(), 1);
}

fn told(event: Event<u32>) -> Option<String> {
    match event {
        Event::Published(message) => {
            let head = tidewire_proto::wire::PublishHead::parse(message.head()).ok()?;
            Some(head.subject.to_owned())
        }
        _ => None,
    }
}

#[test]
fn a_node_that_sends_items_beyond_its_credit_is_told_and_closed() {
    for further in [0, 3] {
        let (mut world, caller, callee) = pair(10);
        let (other, head) = (world.join("other"), CallHead { subject: "svc", credit: 2, ..CallHead::default() });
        let id = world.nodes[caller].session.call(&head, Flags::NORMAL, b""[..].into(), 1).unwrap();
        let call = world.settled_call(callee).id;
        if further > 0 {
            world.nodes[caller].session.want(id, further);
            world.settled(callee);
        }
        for _ in 0..2 + further {
            world.nodes[callee].session.answer_item(call, Flags::NORMAL, filled(100_000, 0)[..].into()).unwrap();
            world.settle();
        }
        assert_eq!(world.events(caller).len(), 2 + further as usize, "what there is credit for comes");
        world.nodes[callee].session.answer_item(call, Flags::NORMAL, b"more"[..].into()).unwrap();
        world.settle();
        let Some(Fault::Told { number, text }) = &world.nodes[callee].fault else { panic!("it is told") };
        assert_eq!(*number, ErrorCode::LimitExceeded.number());
        assert_eq!(
            *text,
            format!("stream_credit={} is exceeded: send an item only when there is credit for it", 2 + further)
        );
        assert_eq!(failure(&mut world, caller).1, ErrorCode::LinkLost);
        assert!(world.nodes[caller].link.is_some() && world.nodes[other].link.is_some());
    }
}

#[test]
fn a_node_that_sends_input_beyond_its_credit_is_told_and_closed() {
    let (mut world, caller, callee) = pair(11);
    let id = world.call(caller, "svc", b"", 1);
    let call = world.settled_call(callee).id;
    world.invite((callee, call), (caller, 1), 1);
    for item in [b"one", b"two"] {
        world.nodes[caller].session.item(id, Flags::NORMAL, item[..].into()).unwrap();
    }
    world.settle();
    let Some(Fault::Told { text, .. }) = &world.nodes[caller].fault else { panic!("it is told") };
    assert!(text.starts_with("stream_credit=1 is exceeded"), "{text}");
    assert!(matches!(world.events(callee)[..], [Event::Input(_), Event::Cancelled(_)]));
    assert!(world.nodes[callee].link.is_some());
}
