//! Announcements of nodes, permission to answer, and ownership of names.

use tidewire_core::link::access::{Access, Grant};
use tidewire_core::link::hub::HubOptions;
use tidewire_core::link::session::{Event, Greeting};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::subject::Pattern;
use tidewire_proto::wire::{FieldsWriter, Flags, SubscribeHead};

use crate::link::support::{KIB, World, announced, failure};

fn guarded(options: HubOptions) -> World {
    let nothing = Grant { answer: Vec::new(), serve: Vec::new(), ..Grant::all("nothing", "ann") };
    let bank = Grant { serve: vec!["bank".to_owned()], subscribe: Vec::new(), ..nothing.clone() };
    let bank = Grant { token: "bank".to_owned(), answer: vec![Pattern::new("till.*").unwrap()], ..bank };
    let access = Access::new(vec![Grant::all("root", "root"), nothing, bank]);
    World::with(41, HubOptions { access, ..options })
}

fn joined(world: &mut World, name: &str, token: &str) -> usize {
    world.join_with(&with_token(name, token))
}

fn with_token(name: &str, token: &str) -> Greeting {
    Greeting { token: Some(token.to_owned()), ..Greeting::new(name) }
}

fn said(field: &str, bytes: usize) -> Vec<u8> {
    let mut said = Vec::new();
    FieldsWriter::new(&mut said).add(field, &vec![b'm'; bytes]).unwrap();
    said
}

/// Subscribes, and gives the error of it.
fn refused(world: &mut World, node: usize, (pattern, queue): (&str, &str), says: &[u8]) -> Option<u16> {
    world.nodes[node].session.subscribe(&SubscribeHead { queue, pattern }, says, 1).unwrap();
    match &world.settled(node)[..] {
        [Event::Subscribed(1)] => None,
        [Event::Failed(1, number, _)] => Some(*number),
        other => panic!("{pattern}: {other:?}"),
    }
}

#[test]
fn a_node_that_may_only_subscribe_hears_and_is_asked_nothing() {
    let mut world = guarded(HubOptions::new("hub"));
    let (root, ann) = (joined(&mut world, "root", "root"), joined(&mut world, "ann", "nothing"));
    for pattern in [">", "svc.bank.>", "svc.*.deposit", "orders.get", "*.get"] {
        assert_eq!(refused(&mut world, ann, (pattern, ""), &[]), None, "{pattern} may be listened to");
    }
    for subject in ["svc.bank.deposit", "svc.bank.one.deposit", "orders.get"] {
        world.call(root, subject, b"a secret", 2);
        assert_eq!(failure(&mut world, root).1, ErrorCode::NoResponders, "{subject}");
    }
    assert_eq!(refused(&mut world, ann, ("svc.bank.*", "bank"), &[]), Some(ErrorCode::Unauthorized.number()));
    let instance = refused(&mut world, ann, ("svc.bank.one.*", ""), &announced("svc.bank.one.*", 9));
    assert_eq!(instance, Some(ErrorCode::Unauthorized.number()));
    world.publish(root, Flags::NORMAL, "svc.bank.news", b"news");
    world.settle();
    assert_eq!(world.published(ann), [b"news".to_vec()]);
}

#[test]
fn a_token_need_not_allow_subscriptions_to_its_services_and_replies() {
    let mut world = guarded(HubOptions::new("hub"));
    let (root, bank) = (joined(&mut world, "root", "root"), joined(&mut world, "bank", "bank"));
    assert_eq!(refused(&mut world, bank, ("svc.bank.*", "bank"), &[]), None);
    assert_eq!(refused(&mut world, bank, ("svc.bank.one.*", ""), &announced("svc.bank.one.*", 9)), None);
    assert_eq!(refused(&mut world, bank, ("till.open", ""), &[]), None);
    for (pattern, queue) in [("svc.shop.*", "shop"), ("svc.bank.>", ""), ("till.>", ""), ("news", "")] {
        assert_eq!(
            refused(&mut world, bank, (pattern, queue), &[]),
            Some(ErrorCode::Unauthorized.number()),
            "{pattern}"
        );
    }
    for subject in ["svc.bank.deposit", "svc.bank.one.deposit", "till.open"] {
        world.call(root, subject, b"", 2);
        world.settled_call(bank);
    }
}

#[test]
fn a_service_is_answered_by_nobody_who_subscribes_to_everything() {
    let mut world = World::new(42);
    let (caller, wide) = (world.join("caller"), world.join("wide"));
    world.subscribe(wide, ">", "");
    world.subscribe(wide, "*.bank.>", "bank");
    for subject in ["svc.bank.deposit", "agent.ann"] {
        world.call(caller, subject, b"a secret", 2);
        assert_eq!(failure(&mut world, caller).1, ErrorCode::NoResponders, "{subject}");
    }
    world.call(caller, "plain", b"", 2);
    world.settled_call(wide);
}

#[test]
fn a_node_says_of_itself_what_its_subscription_is_and_no_more() {
    let mut world = World::with(43, HubOptions { said_bytes: 20 * KIB, ..HubOptions::new("hub") });
    let (honest, liar) = (world.join("honest"), world.join("liar"));
    let service = announced("svc.bank.one.*", 9 * KIB);
    assert_eq!(refused(&mut world, honest, ("svc.bank.one.*", ""), &service), None);
    let own = format!("$node.{}.>", 2);
    for (pattern, queue, field) in [
        (&own[..], "", "service"),
        ("$hub.services.added", "", "service"),
        ("svc.bank.two.*", "", "agent"),
        ("svc.bank.two.>", "", "service"),
        ("svc.bank.two.*", "bank", "service"),
        ("svc.*.two.*", "", "service"),
        ("svc.bank.*.*", "", "service"),
        ("svc.bank.*", "bank", "service"),
        ("agent.a.b", "", "agent"),
        ("agent.*", "", "agent"),
        ("agent.a", "", "service"),
        ("news", "", "service"),
        ("svc.bank.two.*", "", "other"),
    ] {
        // The announcement is well formed, but does not belong here.
        let says = match field {
            "other" => said(field, 9),
            "agent" => announced("agent.a", 9),
            _ => announced("svc.bank.one.*", 9),
        };
        let number = refused(&mut world, liar, (pattern, queue), &says);
        assert_eq!(number, Some(ErrorCode::InvalidArgument.number()), "{pattern} {queue} {field}");
    }
    for wrong in [said("service", 9), announced("svc.bank.three.*", 9), announced("agent.ann", 9)] {
        let number = refused(&mut world, liar, ("svc.bank.two.*", ""), &wrong);
        assert_eq!(number, Some(ErrorCode::InvalidArgument.number()), "the hub reads what it lists");
    }
    assert_eq!(
        refused(&mut world, liar, ("svc.bank.one.*", ""), &service),
        Some(ErrorCode::NameTaken.number()),
        "another node has announced it"
    );
    assert_eq!(refused(&mut world, liar, ("svc.bank.two.*", ""), &announced("svc.bank.two.*", 9 * KIB)), None);
    assert_eq!(refused(&mut world, liar, ("agent.ann", ""), &announced("agent.ann", 9 * KIB)), None);
    let number = refused(&mut world, liar, ("svc.bank.three.*", ""), &announced("svc.bank.three.*", 9 * KIB));
    assert_eq!(number, Some(ErrorCode::LimitExceeded.number()), "it has said 18 KiB of 20");
    world.cut(honest);
    let other = world.join("other");
    assert_eq!(refused(&mut world, other, ("svc.bank.one.*", ""), &service), None, "it is free again");
}

#[test]
fn the_list_of_services_is_there_once_however_many_ask() {
    let mut world = World::new(44);
    let (asker, server) = (world.join("asker"), world.join("server"));
    for number in 0..20 {
        let pattern = format!("svc.s.{number}.*");
        assert_eq!(refused(&mut world, server, (&pattern, ""), &announced(&pattern, 15 * KIB)), None);
    }
    let service = announced("svc.t.1.*", 15 * KIB);
    let list = |world: &mut World| {
        world.call(asker, "$hub.services", b"", 7);
        match &world.settled(asker)[..] {
            [Event::Replied(7, list)] => list.payload().to_vec(),
            other => panic!("the hub answers: {other:?}"),
        }
    };
    let before = list(&mut world);
    assert!(before == list(&mut world) && before.len() > 20 * 15 * KIB);
    assert_eq!(u32::from_be_bytes(before[1..5].try_into().unwrap()) as usize, before.len() - 5);
    let id = world.nodes[server].session.subscribe(&SubscribeHead { queue: "", pattern: "svc.t.1.*" }, &service, 1);
    world.settled(server);
    assert!(list(&mut world).len() > before.len() + 15 * KIB, "what has come is in it");
    world.nodes[server].session.unsubscribe(id.unwrap());
    world.settle();
    assert_eq!(list(&mut world).len(), before.len(), "what has gone is not");
    world.cut(server);
    assert_eq!(list(&mut world).len(), 5);
}

#[test]
fn a_node_that_announces_again_and_again_rests_and_is_not_taken_for_silent() {
    let heartbeat_ms = 500;
    let mut world = World::with(46, HubOptions { said_bytes: 20 * KIB, heartbeat_ms, ..HubOptions::new("hub") });
    let (honest, fickle) = (world.join("honest"), world.join("fickle"));
    let (pattern, says) = ("svc.bank.one.*", announced("svc.bank.one.*", 9 * KIB));
    let link = world.nodes[fickle].link.expect("it has joined");
    // Once, and once more: a service that is started anew.
    for round in 0..4 {
        assert_eq!(world.hub.rests_until_us(link).is_some(), round > 2, "after {round} times");
        let id = world.nodes[fickle].session.subscribe(&SubscribeHead { queue: "", pattern }, &says, 1).unwrap();
        assert!(matches!(world.settled(fickle)[..], [Event::Subscribed(1)]), "it is not refused");
        world.nodes[fickle].session.unsubscribe(id);
        world.settle();
    }
    let until_us = world.hub.rests_until_us(link).expect("it has announced 36 KiB, and may say 20");
    assert!(until_us > world.now_us + 2 * 1_000 * heartbeat_ms, "it rests for longer than a node may be silent");
    assert_eq!(world.hub.rests_until_us(world.nodes[honest].link.expect("it has joined")), None);
    world.hub.tick(until_us);
    assert_eq!(world.hub.rests_until_us(link), None, "it may go on");
    let closed = world.hub.closing();
    assert!(closed.iter().all(|(at, _)| *at != link), "nothing could be heard of it: {closed:?}");
}

/// The number of the error with which a node is refused, if it is.
fn turned_away(world: &mut World, greeting: &Greeting) -> Option<u16> {
    let at = world.connect(greeting);
    match &world.settled(at)[..] {
        [Event::Joined(_)] => None,
        _ => match &world.nodes[at].fault {
            Some(tidewire_core::link::session::Fault::Told { number, .. }) => Some(*number),
            other => panic!("it is told why: {other:?}"),
        },
    }
}

#[test]
fn a_name_that_was_lost_is_kept_for_its_token_for_a_while() {
    let mut world = guarded(HubOptions { name_ms: 3_000, ..HubOptions::new("hub") });
    let bank = joined(&mut world, "till", "bank");
    world.cut(bank);
    let stranger = with_token("till", "nothing");
    assert_eq!(turned_away(&mut world, &stranger), Some(ErrorCode::NameTaken.number()));
    world.wait_us(2_000_000);
    assert_eq!(turned_away(&mut world, &stranger), Some(ErrorCode::NameTaken.number()));
    world.wait_us(1_100_000);
    assert_eq!(turned_away(&mut world, &stranger), None, "its time is up");
}

#[test]
fn a_node_with_the_secret_of_a_lost_link_gets_its_name_back() {
    let mut world = guarded(HubOptions::new("hub"));
    let first = world.connect(&with_token("till", "bank"));
    let secret = match &world.settled(first)[..] {
        [Event::Joined(welcome)] => Some(welcome.resume.clone()),
        other => panic!("it joins: {other:?}"),
    };
    world.cut(first);
    let usurper = joined(&mut world, "till", "bank");
    let back = Greeting { resume: secret, ..with_token("till", "bank") };
    assert_eq!(turned_away(&mut world, &back), None);
    assert!(world.nodes[usurper].link.is_none() || world.nodes[usurper].fault.is_some(), "it has lost the name");
    let again = with_token("till", "bank");
    assert_eq!(turned_away(&mut world, &again), Some(ErrorCode::NameTaken.number()), "the name is in use");
}
