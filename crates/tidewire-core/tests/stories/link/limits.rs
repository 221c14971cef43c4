//! Tokens with limits of their own: the limits of their nodes, and the errors of those nodes.

use tidewire_core::link::access::{Access, Grant, TokenLimits};
use tidewire_core::link::hub::HubOptions;
use tidewire_core::link::session::{Event, Fault, Greeting};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::{self, CallHead, Flags, Kind, SubscribeHead};

use crate::link::greeting::refusal;
use crate::link::support::{KIB, MIB, World, failure, filled};

/// A hub with a token of ann that has limits, and one of root that has none.
fn world(limits: TokenLimits, options: HubOptions) -> World {
    let ann = Grant { limits, ..Grant::all("few", "ann") };
    World::with(1, HubOptions { access: Access::new(vec![Grant::all("all", "root"), ann]), ..options })
}

fn greeting(name: &str, token: &str) -> Greeting {
    Greeting { token: Some(token.to_owned()), ..Greeting::new(name) }
}

#[test]
fn as_many_nodes_join_with_a_token_as_it_says() {
    let limits = TokenLimits { links: Some(2), ..TokenLimits::default() };
    let mut world = world(limits, HubOptions::new("hub"));
    let first = world.join_with(&greeting("a", "few"));
    world.join_with(&greeting("b", "few"));
    let third = world.connect(&greeting("c", "few"));
    world.settle();
    let (code, text) = refusal(&mut world, third);
    assert_eq!(code, ErrorCode::LimitExceeded);
    assert!(text.starts_with("hub_links=2 of the token of \"ann\": as many nodes"), "{text}");
    world.join_with(&greeting("d", "all"));

    // A node that resumes replaces its own link; another node can join once one has left.
    let again = world.join_with(&Greeting { resume: Some("secret-1".to_owned()), ..greeting("a", "few") });
    assert_eq!(refusal(&mut world, first).0, ErrorCode::LinkLost);
    world.cut(again);
    world.join_with(&greeting("c", "few"));
    let more = world.connect(&greeting("e", "few"));
    world.settle();
    assert_eq!(refusal(&mut world, more).0, ErrorCode::LimitExceeded);
}

#[test]
fn the_node_of_the_hub_itself_has_no_limits_and_no_part_in_them() {
    let limits = TokenLimits { links: Some(1), subscriptions: Some(1), ..TokenLimits::default() };
    let mut world = world(limits, HubOptions::new("hub"));
    let own = world.hub.connected_here("own".to_owned(), 0);
    let mut say = |bytes: &[u8]| {
        let frame = wire::read(bytes, MIB).unwrap().unwrap();
        world.hub.received(own, &frame, 0);
    };
    let (mut said, mut hello) = (Vec::new(), Vec::new());
    let mut fields = wire::FieldsWriter::new(&mut said);
    fields.add("name", b"hub").unwrap();
    fields.add("token", b"few").unwrap();
    wire::write(&mut hello, Kind::Hello, Flags::URGENT, 0, |head| wire::Hello::put(1, 1, head), &said).unwrap();
    say(&hello);
    for slot in 0..3 {
        let mut subscribe = Vec::new();
        let head = SubscribeHead { queue: "", pattern: "s" };
        wire::write(&mut subscribe, Kind::Subscribe, Flags::NORMAL, 1 << 32 | slot, |out| head.put(out), &[]).unwrap();
        say(&subscribe);
    }
    assert_eq!(world.hub.subscriptions(), 3);
    world.join_with(&greeting("a", "few"));
}

#[test]
fn a_node_has_as_many_subscriptions_as_its_token_says() {
    let limits = TokenLimits { subscriptions: Some(2), ..TokenLimits::default() };
    let mut world = world(limits, HubOptions { subscriptions: 3, ..HubOptions::new("hub") });
    let (ann, other, root) = (
        world.join_with(&greeting("a", "few")),
        world.join_with(&greeting("b", "few")),
        world.join_with(&greeting("c", "all")),
    );
    for node in [ann, other, root] {
        world.subscribe(node, "one", "");
        world.subscribe(node, "two", "");
    }
    let head = SubscribeHead { queue: "", pattern: "three" };
    world.nodes[ann].session.subscribe(&head, &[], 7).unwrap();
    let (tag, code, text) = failure(&mut world, ann);
    assert_eq!((tag, code), (7, ErrorCode::LimitExceeded));
    assert_eq!(text, "link_subscriptions=2 of the token is exceeded: end another one first");

    // The link has not suffered, and others have what the hub allows.
    world.subscribe(root, "three", "");
    world.publish(root, Flags::NORMAL, "one", b"still here");
    world.settle();
    assert_eq!(world.published(ann), [b"still here"]);
}

#[test]
fn a_node_is_told_how_many_calls_its_token_takes() {
    let limits = TokenLimits { in_flight: Some(2), ..TokenLimits::default() };
    let mut world = world(limits, HubOptions { in_flight: 3, ..HubOptions::new("hub") });
    let (ann, root) = (world.join_with(&greeting("a", "few")), world.join_with(&greeting("c", "all")));
    world.subscribe(root, "svc", "");
    let head = CallHead { subject: "svc", ..CallHead::default() };
    for tag in 0..2 {
        world.call(ann, "svc", b"", tag);
        world.call(root, "svc", b"", tag);
    }
    let refused = [ann, root].map(|node| {
        let third = world.nodes[node].session.call(&head, Flags::NORMAL, b""[..].into(), 9);
        third.map_err(|refused| refused.to_string())
    });
    let tail = "so many calls are open already: wait for some of them";
    assert_eq!(
        refused,
        [Err(format!("link_in_flight=2 of the token: {tail}")), Err(format!("link_in_flight=3: {tail}")),]
    );
}

#[test]
fn a_node_that_does_not_count_its_calls_is_closed_and_hears_of_its_token() {
    let limits = TokenLimits { in_flight: Some(2), ..TokenLimits::default() };
    let mut world = world(limits, HubOptions::new("hub"));
    let ann = world.join_with(&greeting("a", "few"));
    let mut publish = Vec::new();
    let head = wire::PublishHead { subject: "s", ..wire::PublishHead::default() };
    wire::write(
        &mut publish,
        Kind::Publish,
        Flags::NORMAL.with_more(true),
        1 << 32 | 2,
        |out| head.put(out),
        &8_u64.to_le_bytes(),
    )
    .unwrap();
    world.inject(ann, &publish);
    world.settle();
    let (code, text) = refusal(&mut world, ann);
    assert_eq!(code, ErrorCode::LimitExceeded);
    assert_eq!(text, "link_in_flight=2 of the token is exceeded: open fewer exchanges at once");
}

#[test]
fn as_much_waits_for_a_node_as_its_token_says() {
    let limits = TokenLimits { queue_bytes: Some(MIB), ..TokenLimits::default() };
    let mut world = world(limits, HubOptions { queue_bytes: 4 * MIB, ..HubOptions::new("hub") });
    let (ann, root, sender) = (
        world.join_with(&greeting("a", "few")),
        world.join_with(&greeting("b", "all")),
        world.join_with(&greeting("c", "all")),
    );
    world.subscribe(ann, "svc", "");
    for node in [ann, root] {
        world.subscribe(node, "s", "");
        world.nodes[node].down.paused = true;
    }
    for _ in 0..40 {
        world.publish(sender, Flags::NORMAL, "s", &filled(50_000, 0));
        world.settle();
    }
    let dropped = world.hub.counts().dropped;
    assert!((15..25).contains(&dropped), "{dropped} dropped: a mebibyte waits for ann, and all of it for root");
    world.call(sender, "svc", &filled(50_000, 0), 1);
    let (_, code, text) = failure(&mut world, sender);
    assert_eq!(code, ErrorCode::Overloaded);
    assert!(
        text.starts_with("link_queue_bytes=1048576 of the token of the node that answers: too much waits"),
        "{text}"
    );
}

#[test]
fn a_token_never_allows_more_than_its_hub() {
    let many = Some(1_000);
    let limits = TokenLimits { links: many, subscriptions: many, in_flight: many, queue_bytes: many };
    let mut world = world(limits, HubOptions { subscriptions: 1, ..HubOptions::new("hub") });
    let ann = world.join_with(&greeting("a", "few"));
    world.subscribe(ann, "one", "");
    world.nodes[ann].session.subscribe(&SubscribeHead { queue: "", pattern: "two" }, &[], 7).unwrap();
    let (_, _, text) = failure(&mut world, ann);
    assert!(text.starts_with("link_subscriptions=1 is exceeded"), "{text}");
    assert!(world.nodes[ann].link.is_some(), "the link stays");
}

#[test]
fn bytes_queued_for_all_links_are_bounded_and_leave_room_for_links_that_read() {
    let options = HubOptions { hub_queue_bytes: 4 * MIB, ..HubOptions::new("hub") };
    let mut world = World::with(51, options);
    let (talker, reader) = (world.join("talker"), world.join("reader"));
    let deaf: Vec<usize> = (0..12).map(|number| world.join(&format!("deaf-{number}"))).collect();
    for &node in &deaf {
        world.subscribe(node, "noise", "");
        world.nodes[node].down.paused = true;
    }
    world.subscribe(reader, "news", "");
    let noise = filled(30 * KIB, 2);
    for _ in 0..400 {
        world.publish(talker, Flags::NORMAL, "noise", &noise);
        world.settle();
        assert!(world.hub.queued_bytes() <= 4 * MIB);
    }
    assert!(world.hub.queued_bytes() > 3 * MIB, "the room is used");
    world.publish(talker, Flags::NORMAL, "news", &noise);
    world.settle();
    assert_eq!(world.published(reader).len(), 1);
    for &node in &deaf {
        world.cut(node);
    }
    assert_eq!(world.hub.queued_bytes(), 0, "nothing is left of those that have gone");
}

#[test]
fn a_node_that_tries_many_tokens_waits_for_the_answers_and_no_other_does() {
    let access = Access::new(vec![Grant::all("right", "root")]);
    let mut world = World::with(52, HubOptions { access, ..HubOptions::new("hub") });
    let guess = |world: &mut World, place: u128, token: &str| {
        let at = world.connect(&Greeting { token: Some(token.to_owned()), ..Greeting::new("guest") });
        let link = world.nodes[at].link.unwrap();
        world.hub.comes_from(link, place);
        world.settle();
        at
    };
    for _ in 0..10 {
        let at = guess(&mut world, 7, "wrong");
        assert!(world.nodes[at].fault.is_some(), "a mistake is told at once");
    }
    let slow = guess(&mut world, 7, "wrong");
    assert!(world.nodes[slow].fault.is_none(), "many are not");
    let other = guess(&mut world, 8, "wrong");
    assert!(world.nodes[other].fault.is_some(), "elsewhere it is the first");
    let right = guess(&mut world, 7, "right");
    assert!(matches!(world.events(right)[..], [Event::Joined(_)]), "a right token does not wait");
    world.wait_us(1_100_000);
    let Some(Fault::Told { number, .. }) = &world.nodes[slow].fault else { panic!("it is told at last") };
    assert_eq!(*number, ErrorCode::Unauthorized.number());
}
