//! Subjects that belong to one node, and the notices about nodes that have left.

use tidewire_core::link::access::{Access, Grant};
use tidewire_core::link::hub::HubOptions;
use tidewire_core::link::session::{Event, Greeting};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::{CallHead, Flags, SubscribeHead};

use crate::link::support::{World, failure, lane, pair};

/// A hub of one node that may do everything, and two that may do nothing. The first joined has
/// number 1.
fn narrow() -> (World, usize, usize, usize) {
    let nothing = |token: &str, user: &str| Grant {
        publish: Vec::new(),
        subscribe: Vec::new(),
        call: Vec::new(),
        ..Grant::all(token, user)
    };
    let access = Access::new(vec![Grant::all("r", "root"), nothing("a", "ann"), nothing("b", "bob")]);
    let mut world = World::with(31, HubOptions { access, ..HubOptions::new("hub") });
    let mut join =
        |name: &str, token: &str| world.join_with(&Greeting { token: Some(token.to_owned()), ..Greeting::new(name) });
    let (root, ann, bob) = (join("root", "r"), join("ann", "a"), join("bob", "b"));
    (world, root, ann, bob)
}

#[test]
fn subjects_of_a_node_reach_it_alone_under_every_token() {
    let (mut world, root, ann, bob) = narrow();
    world.subscribe(root, ">", "");
    world.subscribe(root, "*.2.>", "group");
    // Nobody is there yet, and nobody else is asked.
    world.call(bob, "$node.2.key.call", b"early", 1);
    assert_eq!(failure(&mut world, bob).1, ErrorCode::NoResponders);

    world.subscribe(ann, "$node.2.>", "");
    world.call(bob, "$node.2.key.call", b"value", 2);
    let call = world.settled_call(ann);
    assert_eq!(CallHead::parse(call.head()).unwrap().origin, 3, "the owner knows who calls");
    world.nodes[ann].session.reply(call.id, Flags::NORMAL, b"done"[..].into()).unwrap();
    assert!(matches!(world.settled(bob)[..], [Event::Replied(2, _)]));

    world.publish(root, lane(2), "$node.2.key.call", b"nobody may");
    world.settle();
    assert!(world.events(root).is_empty() && world.events(ann).is_empty());
    assert_eq!(world.hub.counts().refused, 2);
}

#[test]
fn nobody_subscribes_to_what_belongs_to_another() {
    let (mut world, root, ann, _) = narrow();
    for (node, pattern, queue) in [
        (root, "$node.2.>", ""),
        (root, "$node.*.>", ""),
        (root, "$node.>", ""),
        (ann, "$node.2.>", "group"),
        (ann, "$node.2.key.*", ""),
        (ann, "$node.22.>", ""),
    ] {
        world.nodes[node].session.subscribe(&SubscribeHead { queue, pattern }, &[], 1).unwrap();
        let (_, code, text) = failure(&mut world, node);
        assert_eq!(code, ErrorCode::Unauthorized, "{pattern}");
        assert!(text.contains("$node."), "{text}");
    }
    assert_eq!(world.hub.subscriptions(), 0);
}

#[test]
fn a_node_hears_when_one_leaves_that_it_was_told_of() {
    let (mut world, caller, callee) = pair(32);
    let stranger = world.join("stranger");
    world.call(caller, "svc", b"", 1);
    let call = world.settled_call(callee);
    let origin = CallHead::parse(call.head()).unwrap().origin;

    // The stranger has never said anything to the callee.
    world.cut(stranger);
    world.settle();
    assert!(world.events(callee).is_empty() && world.nodes[callee].left.is_empty());
    world.cut(caller);
    let events = world.settled(callee);
    let [Event::Cancelled(open)] = events[..] else { panic!("{events:?}") };
    assert_eq!(open, call.id);
    assert_eq!(world.nodes[callee].left, [origin]);
    assert!(world.nodes[callee].session.name_of(origin).is_none());
}
