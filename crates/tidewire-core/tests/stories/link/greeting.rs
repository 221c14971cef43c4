//! Joining a hub: admission, refusal and replaced links.

use tidewire_core::link::access::{Access, Grant, TokenLimits};
use tidewire_core::link::hub::HubOptions;
use tidewire_core::link::session::{Event, Fault, Greeting};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::subject::Pattern;
use tidewire_proto::wire::{self, CallHead, FieldsWriter, Flags, Hello, Kind, PublishHead, SubscribeHead};

use crate::link::support::{World, lane, pair};

fn hello(oldest: u16, newest: u16, name: &str) -> Vec<u8> {
    let (mut said, mut out) = (Vec::new(), Vec::new());
    FieldsWriter::new(&mut said).add("name", name.as_bytes()).unwrap();
    wire::write(&mut out, Kind::Hello, Flags::URGENT, 0, |head| Hello::put(oldest, newest, head), &said).unwrap();
    out
}

/// The error for a node whose first bytes are these.
fn told(world: &mut World, first: &[u8]) -> (ErrorCode, String) {
    let at = world.connect(&Greeting::new("unheard"));
    world.nodes[at].session.out.clear();
    world.inject(at, first);
    world.settle();
    refusal(world, at)
}

pub fn refusal(world: &mut World, at: usize) -> (ErrorCode, String) {
    assert_eq!(world.nodes[at].link, None, "the link is closed");
    match world.nodes[at].fault.take() {
        Some(Fault::Told { number, text }) => (ErrorCode::from_number(number).unwrap(), text),
        other => panic!("the hub says why: {other:?}"),
    }
}

#[test]
fn a_node_is_told_what_it_needs() {
    let mut world = World::with(1, HubOptions { payload_bytes: 5_000, ..HubOptions::new("harbour") });
    let at = world.connect(&Greeting::new("a"));
    let events = world.settled(at);
    let [Event::Joined(joined)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((&*joined.hub, &*joined.resume, joined.node, joined.payload_bytes), ("harbour", "secret-1", 1, 5_000));
    assert_eq!(world.hub.counts().nodes, 1);
}

#[test]
fn a_hub_refuses_what_it_can_not_serve() {
    let mut world = World::new(2);
    world.join("a");

    let (code, text) = told(&mut world, &hello(2, 3, "b"));
    assert_eq!(code, ErrorCode::VersionMismatch);
    assert!(text.contains("version 1, the node 2 to 3: the hub is older"), "{text}");

    let (code, text) = told(&mut world, &hello(1, 1, "a"));
    assert_eq!(code, ErrorCode::NameTaken);
    assert!(text.contains("\"a\" is joined"), "{text}");

    for name in ["", &"n".repeat(1_000)] {
        let (code, text) = told(&mut world, &hello(1, 1, name));
        assert_eq!(code, ErrorCode::WireError);
        assert!(text.contains("name: "), "{text}");
    }

    let mut ping = Vec::new();
    wire::write(&mut ping, Kind::Ping, Flags::URGENT, 1, |_| Ok(()), &[]).unwrap();
    for first in [&ping[..], b"GET / HTTP/1.1\r\nHost: hub\r\n\r\n"] {
        let (code, _) = told(&mut world, first);
        assert!([ErrorCode::WireError, ErrorCode::LimitExceeded].contains(&code), "{code:?}");
    }
    assert_eq!(world.hub.counts().nodes, 1, "only the first one is there");
}

#[test]
fn a_newer_version_that_also_speaks_ours_is_taken_in() {
    let mut world = World::new(3);
    let at = world.connect(&Greeting::new("unheard"));
    world.nodes[at].session.out.clear();
    world.inject(at, &hello(1, 7, "newer"));
    assert!(matches!(world.settled(at)[..], [Event::Joined(_)]), "it joins");
}

#[test]
fn a_hub_with_tokens_takes_in_only_those_who_have_one() {
    let access = Access::new(vec![Grant::all("secret", "ann")]);
    let mut world = World::with(4, HubOptions { access, ..HubOptions::new("hub") });
    for token in [None, Some("secre".to_owned()), Some("secret!".to_owned())] {
        let at = world.connect(&Greeting { token, ..Greeting::new("a") });
        world.settle();
        let (code, text) = refusal(&mut world, at);
        assert_eq!(code, ErrorCode::Unauthorized);
        assert!(text.contains("token") && !text.contains("secre"), "{text}");
    }
    let ann = world.join_with(&Greeting { token: Some("secret".to_owned()), ..Greeting::new("a") });
    world.subscribe(ann, "who", "");
    world.call(ann, "who", b"", 1);
    let call = world.settled_call(ann);
    let origin = CallHead::parse(call.head()).unwrap().origin;
    let caller = world.nodes[ann].session.name_of(origin).unwrap();
    assert_eq!((&*caller.name, &*caller.user), ("a", "ann"));
}

#[test]
fn a_node_that_resumes_takes_the_place_of_its_earlier_link() {
    let mut world = World::new(5);
    let (old, other) = (world.join("a"), world.join("b"));
    world.subscribe(old, "work", "");
    world.call(other, "work", b"", 7);
    world.settle();

    let at = world.connect(&Greeting { resume: Some("secret-2".to_owned()), ..Greeting::new("a") });
    world.settle();
    assert_eq!(refusal(&mut world, at).0, ErrorCode::NameTaken, "the secret is that of another link");

    world.join_with(&Greeting { resume: Some("secret-1".to_owned()), ..Greeting::new("a") });
    assert_eq!(refusal(&mut world, old).0, ErrorCode::LinkLost);
    let events = world.events(other);
    let [Event::Failed(7, number, _)] = events[..] else { panic!("{events:?}") };
    assert_eq!(number, ErrorCode::LinkLost.number());
    assert_eq!((world.hub.counts().nodes, world.hub.subscriptions()), (2, 0));
}

#[test]
fn the_name_of_a_node_that_said_goodbye_is_free_once_it_has_said_all() {
    let (mut world, caller, old) = pair(8);
    world.subscribe(caller, "news", "");
    world.call(caller, "svc", b"", 7);
    let call = world.settled_call(old);
    let name = Greeting::new("callee");
    let refused = |world: &mut World, why: &str| {
        let early = world.connect(&name);
        while world.nodes[early].fault.is_none() {
            world.step_up(early);
            world.step_down(early);
        }
        assert_eq!(refusal(world, early).0, ErrorCode::NameTaken, "{why}");
    };
    for _ in 0..20 {
        world.publish(old, Flags::NORMAL, "news", &[1; 5_000]);
    }
    world.nodes[old].session.goodbye();
    world.step_up(old);
    refused(&mut world, "its goodbye has overtaken what it said before");
    world.settle();
    assert_eq!(world.published(caller).len(), 20);
    let _asked = world.nodes[old].session.has_arrived();
    world.settle();
    refused(&mut world, "it answers a call");

    world.nodes[old].session.reply(call.id, Flags::NORMAL, b"done"[..].into()).unwrap();
    assert!(matches!(world.settled(caller)[..], [Event::Replied(7, ..)]));
    refused(&mut world, "it may have more to say");
    let _asked = world.nodes[old].session.has_arrived();
    world.settle();
    let new = world.join_with(&name);
    world.subscribe(new, "svc", "");
    world.call(caller, "svc", b"", 8);
    world.settle();
    assert_eq!(world.called(new).payload(), b"");
    assert_eq!(world.hub.counts().nodes, 2);
    // The old link ends at last; the name stays with the new one.
    world.cut(old);
    refused(&mut world, "another one has it");
}

#[test]
fn nothing_goes_to_a_link_that_is_being_closed() {
    let mut world = World::new(6);
    let (old, other) = (world.join("a"), world.join("b"));
    world.subscribe(old, "work", "");
    let bytes = hello(1, 1, "x");
    world.inject(old, &bytes);
    let link = world.nodes[old].link.unwrap();
    // The hub has closed it, and its last frame has not arrived yet.
    let frame = wire::read(&bytes, bytes.len()).unwrap().unwrap();
    world.hub.received(link, &frame, 0);
    world.nodes[old].up.paused = true;
    world.call(other, "work", b"", 1);
    let events = world.settled(other);
    let [Event::Failed(1, number, _)] = events[..] else { panic!("{events:?}") };
    assert_eq!(number, ErrorCode::NoResponders.number());
}

#[test]
fn a_node_knows_where_it_may_publish() {
    let grant = |token: &str, patterns: &[&str]| Grant {
        publish: patterns.iter().map(|text| Pattern::new(text).unwrap()).collect(),
        ..Grant::all(token, token)
    };
    let access = vec![grant("all", &["a.b", ">"]), grant("few", &["out.>", "news.*"]), grant("none", &[])];
    let mut world = World::with(9, HubOptions { access: Access::new(access), ..HubOptions::new("hub") });
    let join = |world: &mut World, token: &str, resume: Option<&str>| {
        let (token, resume) = (Some(token.to_owned()), resume.map(str::to_owned));
        world.join_with(&Greeting { token, resume, ..Greeting::new("node") })
    };
    let publish = |world: &mut World, node: usize, subject: &str, bytes: usize| {
        let head = PublishHead { subject, ..PublishHead::default() };
        let sent = world.nodes[node].session.publish(&head, Flags::NORMAL, vec![0; bytes][..].into());
        sent.map_err(|refused| refused.to_string())
    };
    let few = join(&mut world, "few", None);
    assert_eq!(publish(&mut world, few, "out.a.b", 1), Ok(()));
    for bytes in [1, 5_000_000] {
        let told = "the token of this node allows to publish on out.>, news.*: publish there, or allow more at the hub";
        assert_eq!(publish(&mut world, few, "news.a.b", bytes), Err(told.to_owned()));
    }
    // It learns anew whenever it joins.
    let all = join(&mut world, "all", Some("secret-1"));
    assert_eq!(publish(&mut world, all, "news.a.b", 1), Ok(()));
    let none = join(&mut world, "none", Some("secret-2"));
    let told = publish(&mut world, none, "out.a", 1).unwrap_err();
    assert!(told.contains("publish on nothing: "), "{told}");
    world.settle();
    assert_eq!(world.hub.counts().refused, 0);
}

#[test]
fn a_token_allows_what_it_says_and_no_more() {
    let patterns = |texts: &[&str]| texts.iter().map(|text| Pattern::new(text).unwrap()).collect::<Vec<_>>();
    // WELCOME has no capacity for so many patterns: the node does not know where it may publish.
    let mut publish: Vec<Pattern> = (0..100).map(|n| Pattern::new(&format!("{:a>200}.{n}", "")).unwrap()).collect();
    publish.push(Pattern::new("out.>").unwrap());
    let narrow = Grant {
        token: "t".to_owned(),
        user: "bob".to_owned(),
        publish,
        subscribe: patterns(&["in.*"]),
        call: patterns(&["sum.add"]),
        answer: Vec::new(),
        serve: Vec::new(),
        limits: TokenLimits::default(),
        is_partner: false,
    };
    let access = Access::new(vec![Grant::all("root", "root"), narrow]);
    let mut world = World::with(9, HubOptions { access, ..HubOptions::new("hub") });
    let root = world.join_with(&Greeting { token: Some("root".to_owned()), ..Greeting::new("root") });
    let bob = world.join_with(&Greeting { token: Some("t".to_owned()), ..Greeting::new("bob") });
    world.subscribe(root, ">", "");

    for (pattern, allowed) in [("in.a", true), ("in.*", true), ("in.>", false), ("in.a.b", false), (">", false)] {
        let head = SubscribeHead { queue: "", pattern };
        world.nodes[bob].session.subscribe(&head, &[], 1).unwrap();
        let events = world.settled(bob);
        match (&events[..], allowed) {
            ([Event::Subscribed(1)], true) => {}
            ([Event::Failed(1, number, _)], false) => assert_eq!(*number, ErrorCode::Unauthorized.number()),
            other => panic!("{pattern}: {other:?}"),
        }
    }
    world.publish(bob, lane(2), "out.a", b"yes");
    world.publish(bob, lane(2), "other", b"no");
    // A long one that nobody gets must not keep those behind it.
    world.publish(bob, lane(2), "other", &vec![0; 5_000_000]);
    world.publish(bob, lane(2), "out.b", b"yes, too");
    world.settle();
    assert_eq!(world.published(root), [b"yes".to_vec(), b"yes, too".to_vec()]);
    assert_eq!(world.hub.counts().refused, 5);
    assert_eq!(world.nodes[bob].session.out.bytes(), 0);

    for (subject, allowed) in [("sum.add", true), ("sum.sub", false), ("$hub.services", false)] {
        world.call(bob, subject, b"", 2);
        world.settle();
        if allowed {
            world.called(root);
            continue;
        }
        let events = world.events(bob);
        let [Event::Failed(2, number, _)] = events[..] else { panic!("{subject}: {events:?}") };
        assert_eq!(number, ErrorCode::Unauthorized.number());
    }
}

#[test]
fn nothing_can_be_sent_before_the_hub_has_answered() {
    let mut world = World::new(10);
    let at = world.connect(&Greeting::new("a"));
    let head = PublishHead { subject: "s", ..PublishHead::default() };
    let sent = world.nodes[at].session.publish(&head, Flags::NORMAL, b"x"[..].into());
    assert_eq!(sent.unwrap_err().to_string(), "the link to the hub is lost or closing: try again once it is back");
}
