//! Links of other hubs, in virtual time: paths, doubles, circles and the order of responders. Three
//! hubs in a ring lose and restore links while messages cross.

use tidewire_core::federation::{HUBS, HubPath, MESSAGE_ID};
use tidewire_core::link::access::{Access, Grant, Rights};
use tidewire_core::link::hub::HubOptions;
use tidewire_core::link::session::{Event, Greeting};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::{CHOICE_WITH_CAPACITY, CallHead, Fields, FieldsWriter, Flags, PublishHead, SubscribeHead};

use super::greeting::refusal;
use super::support::{Random, World, failure};

fn fields(said: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = FieldsWriter::new(&mut out);
    said.iter().for_each(|(name, value)| writer.add(name, value.as_bytes()).expect("they are few"));
    out
}

fn publish(world: &mut World, node: usize, subject: &str, said: &[(&str, &str)], payload: &[u8]) {
    let fields = fields(said);
    let fields = Fields::parse("PUBLISH", &fields).expect("they are fields");
    let head = PublishHead { subject, fields, ..PublishHead::default() };
    world.nodes[node].session.publish(&head, Flags::NORMAL, payload.into()).expect("it is sent");
}

fn crossing(world: &mut World, name: &str) -> usize {
    world.join_with(&Greeting { hub: Some(name.to_owned()), ..Greeting::new(&format!("link-{name}")) })
}

/// The numbers, paths, ids and payloads of the messages that a node got.
fn messages(world: &mut World, node: usize) -> Vec<(u64, String, String, Vec<u8>)> {
    world.settle();
    let published = world.events(node).into_iter().filter_map(|event| match event {
        Event::Published(message) => Some(message),
        _ => None,
    });
    let read = published.map(|message| {
        let head = PublishHead::parse(message.head()).expect("it is a message");
        let text = |name: &str| head.fields.text(name).unwrap_or_default().to_owned();
        (head.to, text(HUBS), text(MESSAGE_ID), message.payload().to_vec())
    });
    read.collect()
}

#[test]
fn a_hub_delivers_a_message_that_came_two_ways_once_and_its_own_never_again() {
    for seed in 0..20 {
        let mut world = World::with(seed, HubOptions::new("paris"));
        let (reader, berlin, rome) =
            (world.join("reader"), crossing(&mut world, "berlin"), crossing(&mut world, "rome"));
        world.subscribe(reader, "news.*", "");
        world.subscribe(rome, "news.*", "");
        world.settle();
        world.events(rome);
        let first = [(HUBS, "berlin"), (MESSAGE_ID, "run-1")];
        publish(&mut world, berlin, "news.a", &first, b"one");
        world.settle();
        for (path, id) in [("berlin rome", "run-1"), ("oslo paris rome", "run-2"), ("berlin rome", "run-3")] {
            publish(&mut world, rome, "news.a", &[(HUBS, path), (MESSAGE_ID, id)], id.as_bytes());
        }
        // A message without an id has no double, and a long one neither if its begin is one.
        publish(&mut world, rome, "news.a", &[(HUBS, "rome")], b"plain");
        let again = [(HUBS, "berlin rome"), (MESSAGE_ID, "run-1")];
        publish(&mut world, rome, "news.a", &again, &[7; 300_000]);
        let payloads: Vec<_> = messages(&mut world, reader).into_iter().map(|(.., payload)| payload).collect();
        assert_eq!(payloads, [&b"one"[..], b"run-3", b"plain"], "seed {seed}");
        assert_eq!(messages(&mut world, rome).len(), 1, "it does not hear itself");
        // After its time an id counts as new.
        world.wait_us(130_000_000);
        publish(&mut world, rome, "news.a", &again, b"late");
        assert_eq!(messages(&mut world, reader).len(), 1);
    }
}

#[test]
fn each_message_has_a_number_at_the_links_of_other_hubs_alone() {
    let mut world = World::new(3);
    let (reader, writer) = (world.join("reader"), world.join("writer"));
    let links = [crossing(&mut world, "berlin"), crossing(&mut world, "rome")];
    for node in [reader, links[0], links[1]] {
        world.subscribe(node, ">", "");
    }
    world.settle();
    [reader, links[0], links[1]].into_iter().for_each(|node| drop(world.events(node)));
    // Two messages with one head take a shorter way in the hub.
    for bytes in [1, 1, 200_000, 1] {
        publish(&mut world, writer, "a", &[], &vec![0; bytes]);
    }
    let numbers =
        |world: &mut World, node| messages(world, node).into_iter().map(|(number, ..)| number).collect::<Vec<_>>();
    let [first, second] = links.map(|link| numbers(&mut world, link));
    assert_eq!((first.len(), first.windows(2).all(|pair| pair[0] < pair[1])), (4, true));
    assert_eq!(first, second, "both ways know a message by one number");
    assert_eq!(numbers(&mut world, reader), [0; 4]);
}

#[test]
fn a_call_goes_to_the_own_side_first_and_never_back() {
    let mut world = World::new(5);
    let (server, caller) = (world.join("server"), world.join("caller"));
    let (berlin, rome) = (crossing(&mut world, "berlin"), crossing(&mut world, "rome"));
    let [_, own] = [berlin, server].map(|node| world.subscribe(node, "svc.bank.*", "bank"));
    world.subscribe(rome, "svc.bank.*", "bank");
    world.settle();
    let call = |world: &mut World, path: Option<&str>, to: usize| {
        let said = path.map_or_else(Vec::new, |path| fields(&[(HUBS, path)]));
        let fields = Fields::parse("CALL", &said).expect("they are fields");
        let head = CallHead { subject: "svc.bank.pay", fields, ..CallHead::default() };
        let session = &mut world.nodes[caller].session;
        session.call(&head, Flags::NORMAL, b"\xc0"[..].into(), 1).expect("it is sent");
        world.settle();
        let nodes = [server, berlin, rome, caller];
        let events = nodes.map(|node| world.events(node));
        let got = nodes.into_iter().zip(events).find(|(_, events)| !events.is_empty()).expect("it goes somewhere");
        assert_eq!(got.0, to, "{:?}", got.1);
        got.1
    };
    world.events(server);
    for node in [berlin, rome] {
        world.events(node);
    }
    // The one of the own hub takes all of them, however many it has.
    (0..5).for_each(|_| drop(call(&mut world, None, server)));
    world.nodes[server].session.unsubscribe(own);
    world.settle();
    (0..5).for_each(|_| drop(call(&mut world, Some("oslo berlin"), rome)));
    (0..5).for_each(|_| drop(call(&mut world, Some("rome"), berlin)));
    let events = call(&mut world, Some("rome berlin"), caller);
    assert!(matches!(&events[..], [Event::Failed(1, number, _)] if *number == ErrorCode::NoResponders.number()));
}

/// A hub with a node of its own and the token of a partner, which is for the hub "rome".
fn with_partner(seed: u64) -> (World, usize) {
    let texts = |texts: &[&str]| Some(texts.iter().map(ToString::to_string).collect());
    let rights = Rights {
        publish: texts(&["orders.>", "agent.buyer"]),
        call: texts(&["svc.billing.>", "agent.buyer"]),
        answer: texts(&["agent.rome:chief"]),
        serve: texts(&["rome:pricing"]),
        partner: true,
        ..Rights::default()
    };
    let partner = Grant::of("of rome", "rome", &rights).expect("they are patterns");
    let access = Access::new(vec![Grant::all("of paris", "paris"), partner]);
    let mut world = World::with(seed, HubOptions { access, ..HubOptions::new("paris") });
    let node = world.join_with(&Greeting { token: Some("of paris".to_owned()), ..Greeting::new("node") });
    (world, node)
}

fn partner(name: &str, hub: Option<&str>) -> Greeting {
    Greeting { token: Some("of rome".to_owned()), hub: hub.map(str::to_owned), ..Greeting::new(name) }
}

// Promises: P13.107.
#[test]
fn the_token_of_a_partner_is_for_one_hub_alone() {
    let (mut world, _) = with_partner(7);
    for (name, hub, fix) in [
        ("oslo", Some("rome"), "join as \"rome\""),
        ("rome", None, "join from a hub"),
        ("rome", Some("a b"), "join from a hub"),
        ("rome", Some(""), "join from a hub"),
    ] {
        let at = world.connect(&partner(name, hub));
        world.settle();
        let (code, text) = refusal(&mut world, at);
        assert_eq!((code, text.ends_with(fix)), (ErrorCode::Unauthorized, true), "{name} {hub:?}: {text}");
    }
    world.join_with(&partner("rome", Some("rome")));
}

// Promises: P13.107.
#[test]
fn a_hostile_partner_reaches_only_what_its_token_names_and_hides_no_hub() {
    let (subjects, paths) = (
        [
            "svc.billing.pay",
            "svc.bank.pay",
            "agent.buyer",
            "agent.boss",
            "orders.new",
            "salaries",
            "$node.1.x",
            "$hub.nodes",
            "$hub.services",
        ],
        [None, Some("rome"), Some("oslo rome"), Some("rome oslo"), Some("oslo"), Some("paris rome"), Some("")],
    );
    for seed in 0..30 {
        let (mut random, (mut world, node)) = (Random(seed), with_partner(seed));
        for (pattern, queue) in [
            ("svc.billing.*", "billing"),
            ("svc.bank.*", "bank"),
            ("agent.buyer", ""),
            ("agent.boss", ""),
            ("salaries", ""),
            ("orders.>", ""),
        ] {
            world.subscribe(node, pattern, queue);
        }
        let rome = world.join_with(&partner("rome", Some("rome")));
        world.settle();
        drop((world.events(node), world.events(rome)));
        for _ in 0..60 {
            let (subject, path) = (random.pick(&subjects), random.pick(&paths));
            let said: Vec<_> = path.map(|path| (HUBS, path)).into_iter().collect();
            let is_call = random.chance(2);
            if is_call {
                let said = fields(&said);
                let head = CallHead {
                    subject,
                    fields: Fields::parse("CALL", &said).expect("they are fields"),
                    ..CallHead::default()
                };
                world.nodes[rome].session.call(&head, Flags::NORMAL, b"\xc0"[..].into(), 1).expect("it is sent");
            } else {
                let said = fields(&said);
                let head = PublishHead {
                    subject,
                    fields: Fields::parse("PUBLISH", &said).expect("they are fields"),
                    ..PublishHead::default()
                };
                // Its own link refuses what its token does not allow, before the hub does.
                let _ = world.nodes[rome].session.publish(&head, Flags::NORMAL, b"\xc0"[..].into());
            }
            world.settle();
            let is_named = match is_call {
                true => ["svc.billing.pay", "agent.buyer"].contains(&subject),
                false => ["orders.new", "agent.buyer"].contains(&subject),
            };
            // A message that has passed this hub goes no further; a call may.
            let is_honest =
                path.is_some_and(|path| path == "rome" || path == "oslo rome" || (is_call && path == "paris rome"));
            let arrived = !world.events(node).is_empty();
            assert_eq!(arrived, is_named && is_honest, "seed {seed}: {subject} {path:?} {is_call}");
            drop(world.events(rome));
        }
        // Neither may it answer in the place of another.
        for (pattern, queue, may) in [
            ("svc.billing.*", "billing", false),
            ("agent.buyer", "", false),
            ("agent.>", "", false),
            ("agent.rome:chief", "", true),
            ("svc.rome:pricing.*", "rome:pricing", true),
            ("orders.>", "", false),
            ("$node.1.>", "", false),
        ] {
            let head = SubscribeHead { queue, pattern };
            world.nodes[rome].session.subscribe(&head, &[], 1).expect("it is sent");
            let events = world.settled(rome);
            assert_eq!(matches!(&events[..], [Event::Subscribed(1)]), may, "{pattern}: {events:?}");
        }
    }
}

// Promises: P13.112.
#[test]
fn a_call_that_was_refused_goes_to_those_with_capacity_and_last_to_another_hub() {
    for seed in 0..20 {
        let mut world = World::new(seed);
        let (first, second, caller) = (world.join("first"), world.join("second"), world.join("caller"));
        let nodes = [first, second, crossing(&mut world, "paris")];
        for node in nodes {
            world.subscribe(node, "svc.desk.*", "desk");
        }
        world.settle();
        nodes.into_iter().for_each(|node| drop(world.events(node)));
        // The node that a call with this choice goes to, and its id there; None: it finds nobody.
        let call = |world: &mut World, choice: u8| {
            let head = CallHead { subject: "svc.desk.hold", choice, ..CallHead::default() };
            let session = &mut world.nodes[caller].session;
            session.call(&head, Flags::NORMAL, b"\xc0"[..].into(), 1).expect("it is sent");
            world.settle();
            let events = nodes.map(|node| (node, world.events(node)));
            let found = events.into_iter().find(|(_, events)| !events.is_empty());
            if found.is_none() {
                assert_eq!(failure(world, caller).1, ErrorCode::NoResponders);
            }
            found.map(|(node, events)| match &events[..] {
                [Event::Called(message)] => (node, message.id),
                other => panic!("{other:?}"),
            })
        };
        let (mut tried, mut choice) = (Vec::new(), 0);
        while let Some((node, id)) = call(&mut world, choice) {
            world.nodes[node].session.fail(id, ErrorCode::Overloaded, b"full"[..].into()).expect("it is sent");
            assert_eq!(failure(&mut world, caller).1, ErrorCode::Overloaded);
            tried.push(node);
            assert!(tried.len() <= nodes.len(), "each is tried once: {tried:?}");
            choice = CHOICE_WITH_CAPACITY;
        }
        assert_eq!(tried.pop(), Some(nodes[2]), "another hub comes last");
        tried.sort_unstable();
        assert_eq!(tried, nodes[..2], "each of the own hub is tried once");
        // The next call begins at the own hub, and its end makes capacity.
        let (node, id) = call(&mut world, 0).expect("it is tried");
        assert_ne!(node, nodes[2]);
        world.nodes[node].session.reply(id, Flags::NORMAL, b"\xc0"[..].into()).expect("it is sent");
        world.settle();
        world.events(caller);
        assert_eq!(call(&mut world, CHOICE_WITH_CAPACITY).map(|(node, _)| node), Some(node));
    }
}

/// A hub of a ring, with the ends of its links.
struct Site {
    name: &'static str,
    world: World,
    writer: usize,
    reader: usize,
    /// The links of the neighbours, by the number of the site.
    links: [Option<usize>; 3],
    heard: Vec<Vec<u8>>,
}

#[test]
fn a_ring_with_partitions_doubles_nothing_and_loses_nothing_that_has_a_way() {
    for seed in 0..20 {
        let mut random = Random(seed);
        let names = ["ada", "bea", "cleo"];
        let mut sites = [0, 1, 2].map(|at| {
            let mut world = World::with(seed * 3 + at as u64, HubOptions::new(names[at]));
            let (writer, reader) = (world.join("writer"), world.join("reader"));
            let links = [0, 1, 2].map(|other| (other != at).then(|| crossing(&mut world, names[other])));
            for node in [reader].into_iter().chain(links.into_iter().flatten()) {
                world.subscribe(node, "news.>", "");
            }
            world.settle();
            (0..world.nodes.len()).for_each(|node| drop(world.events(node)));
            Site { name: names[at], world, writer, reader, links, heard: Vec::new() }
        });
        let (mut sent, mut cut) = (Vec::new(), None);
        for number in 0..40u32 {
            // At most one of three links is cut, so each site has a way to each other one.
            cut = if random.chance(4) { Some(random.below(3)) } else { cut.filter(|_| !random.chance(4)) };
            let (from, payload) = (random.below(3), number.to_le_bytes().to_vec());
            let site = &mut sites[from];
            publish(&mut site.world, site.writer, "news.n", &[], &payload);
            sent.push(payload);
            // Links pass on in any order until nothing is left.
            let mut ways: Vec<(usize, usize)> = (0..3).flat_map(|a| [(a, (a + 1) % 3), (a, (a + 2) % 3)]).collect();
            let mut is_quiet = false;
            while !is_quiet {
                (0..ways.len()).for_each(|at| ways.swap(at, random.below(6)));
                is_quiet = true;
                for &(from, to) in &ways {
                    let is_cut = cut.is_some_and(|cut| from != cut && to != cut);
                    is_quiet &= !pass(&mut sites, from, to, is_cut);
                }
            }
        }
        for site in &mut sites {
            let read = messages(&mut site.world, site.reader).into_iter().map(|(.., payload)| payload);
            site.heard.extend(read);
            site.heard.sort_unstable();
            sent.sort_unstable();
            assert_eq!(site.heard, sent, "seed {seed}, {}", site.name);
        }
    }
}

/// Passes what waits at one site for another. A cut link loses it. False: nothing waits.
fn pass(sites: &mut [Site; 3], from: usize, to: usize, is_cut: bool) -> bool {
    let (source, target) = (sites[from].name, sites[to].name);
    let link = sites[from].links[to].expect("they are neighbours");
    let waiting = messages(&mut sites[from].world, link);
    let found = !waiting.is_empty();
    for (number, path, id, payload) in waiting.into_iter().filter(|_| !is_cut) {
        let Ok(path) = HubPath::parse(&path).step(source, target) else { continue };
        let id = if id.is_empty() { format!("{source}-{number}") } else { id };
        let link = sites[to].links[from].expect("they are neighbours");
        let said = [(HUBS, path.to_string()), (MESSAGE_ID, id)];
        let said: Vec<_> = said.iter().map(|(name, value)| (*name, value.as_str())).collect();
        publish(&mut sites[to].world, link, "news.n", &said, &payload);
        sites[to].world.settle();
    }
    found
}
