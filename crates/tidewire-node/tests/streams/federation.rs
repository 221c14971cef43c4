//! Streams of a hub at another hub: mirrors without a gap or a double.

use std::env;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use tidewire_link::{Address, Failure, Greeting, Link, OutgoingPayload, ReplyWaiter, Runtime};
use tidewire_node::streams::{ConsumerOptions, Message, ReadOptions, Stream, StreamOptions};
use tidewire_node::{ErrorCode, Federation, FederationOptions, Node, NodeOptions, Token};
use tidewire_proto::wire::{CallHead, Fields, FieldsWriter, Flags};

use crate::hubs::Folder;
use crate::support::{PATIENCE, in_time, unix_url};

/// A hub with a folder, and the lines of its log.
fn hub(name: &str, url: &str, folder: &Folder) -> (Node, Receiver<String>) {
    let (say, lines) = sync_channel(10_000);
    let options = NodeOptions::named(name).data(&folder.0).log(move |line| drop(say.try_send(line.to_owned())));
    (Node::listen(url, options).wait().expect("a hub with a folder"), lines)
}

const ANY: &str = "tide://127.0.0.1:0";

/// Waits for lines of a log, in any order.
fn until_said(lines: &Receiver<String>, parts: &[&str]) {
    let mut said = Vec::new();
    while !parts.iter().all(|part| said.iter().any(|line: &String| line.contains(part))) {
        said.push(lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no {parts:?} in {said:?}")));
    }
}

fn federate(hub: &Node, other: &Node, options: FederationOptions) -> Federation {
    let federation = hub.federate(&other.urls()[0], options).expect("it may");
    in_time(federation.ready());
    federation
}

fn publish(stream: &Stream, numbers: std::ops::Range<u32>) {
    let out = stream.publisher(1_000).expect("a window");
    for number in numbers {
        let message = Message::new("orders.new", &number).id(format!("order-{number}")).key("tea");
        out.publish(message.header("tenant", "north")).wait().expect("it is published");
    }
    out.flush().wait().expect("all are stored");
}

/// The values of so many events, in order.
fn taken(stream: &Stream, count: usize) -> Vec<u32> {
    let mut all = in_time(stream.consumer("story", ConsumerOptions::all().broadcast()));
    let mut next = || {
        let event = all.next_blocking_within(PATIENCE).expect("it is there").expect("an event comes in time");
        event.ack().wait().expect("it is stored");
        event.read().expect("a number")
    };
    (0..count).map(|_| next()).collect()
}

/// The values of all events that are there.
fn stored(stream: &Stream) -> Vec<u32> {
    let mut events = stream.read(ReadOptions::default());
    std::iter::from_fn(|| events.next_blocking())
        .map(|event| event.expect("it is read").read().expect("a number"))
        .collect()
}

fn orders(node: &Node) -> Stream {
    in_time(node.stream_with("orders", StreamOptions::new(["orders.>"])))
}

// Promises: P13.120.
#[test]
fn a_mirror_has_what_is_there_and_what_comes_in_both_directions() {
    let folders = [Folder::new(), Folder::new()];
    let (paris, _) = hub("paris", ANY, &folders[0]);
    let (berlin, _) = hub("berlin", ANY, &folders[1]);
    let (own, other) = (orders(&berlin), orders(&paris));
    publish(&own, 0..1_200);
    publish(&other, 0..3);
    let options = FederationOptions::named("berlin").export("stream:orders");
    let _joined = federate(&berlin, &paris, options.import("paris:stream:orders=french"));
    let (mirror, french) = (in_time(paris.stream("berlin-orders")), in_time(berlin.stream("french")));
    assert_eq!(taken(&mirror, 1_200), (0..1_200).collect::<Vec<_>>());
    publish(&own, 1_200..1_210);
    publish(&other, 3..6);
    assert_eq!(taken(&mirror, 1_210)[1_200..], (1_200..1_210).collect::<Vec<_>>());
    assert_eq!(taken(&french, 6), (0..6).collect::<Vec<_>>());

    let event = mirror.read(ReadOptions::default()).next_blocking().expect("one is there").expect("it is read");
    assert_eq!((event.subject(), event.id(), event.key()), ("berlin-orders.orders.new", Some("order-0"), Some("tea")));
    let header = |name: &str| event.headers().iter().find(|(known, _)| known == name).map(|(_, value)| &**value);
    let found = ["tenant", "tw-hubs", "tw-source"].map(header);
    assert_eq!(found, [Some("north"), Some("berlin"), Some("berlin:orders:1")]);
}

// Promises: P13.121.
#[test]
fn a_mirror_goes_on_after_a_cut_and_after_its_retention() {
    let folders = [Folder::new(), Folder::new()];
    let (mut paris, _) = hub("paris", ANY, &folders[0]);
    let (berlin, log) = hub("berlin", ANY, &folders[1]);
    let (url, own) = (paris.urls()[0].clone(), orders(&berlin));
    let export = || FederationOptions::named("berlin").export("stream:orders");
    publish(&own, 0..300);
    let joined = federate(&berlin, &paris, export());
    let mirror = |paris: &Node| in_time(paris.stream("berlin-orders"));
    assert_eq!(taken(&mirror(&paris), 300), (0..300).collect::<Vec<_>>());
    // The other hub ends, and begins anew with its folder.
    let again = |paris: Node| {
        in_time(paris.stop(PATIENCE));
        hub("paris", &url, &folders[0]).0
    };
    paris = again(paris);
    publish(&own, 300..600);
    assert_eq!(taken(&mirror(&paris), 600), (0..600).collect::<Vec<_>>());
    // Retention takes all that the mirror has, and the federation begins anew.
    drop(joined);
    in_time(mirror(&paris).purge());
    publish(&own, 600..900);
    let joined = federate(&berlin, &paris, export());
    assert_eq!(taken(&mirror(&paris), 300), (600..900).collect::<Vec<_>>());
    in_time(mirror(&paris).purge_before(800));
    paris = again(paris);
    publish(&own, 900..1_200);
    let expected: Vec<_> =
        stored(&mirror(&paris)).into_iter().filter(|number| *number < 900).chain(900..1_200).collect();
    assert_eq!(taken(&mirror(&paris), expected.len()), expected);
    // The source has dropped what the mirror had not read.
    drop(joined);
    publish(&own, 1_200..1_210);
    in_time(own.purge());
    publish(&own, 1_210..1_220);
    let _joined = federate(&berlin, &paris, export());
    let all = expected.len();
    assert_eq!(taken(&mirror(&paris), all + 10)[all..], (1_210..1_220).collect::<Vec<_>>());
    until_said(&log, &["the source has dropped its events 1201 to 1210 before they were mirrored"]);
}

// Promises: P13.120, P13.123.
#[test]
fn a_full_mirror_waits_and_a_mirror_of_it_has_the_ids_of_the_first_hub() {
    let folders = [(); 3].map(|()| Folder::new());
    let [(paris, _), (berlin, log), (rome, _)] =
        [0, 1, 2].map(|at| hub(["paris", "berlin", "rome"][at], ANY, &folders[at]));
    let own = orders(&berlin);
    publish(&own, 0..25);
    let small = StreamOptions::new(["berlin-orders.>"]).max_messages(10);
    let mirror = in_time(paris.stream_with("berlin-orders", small));
    let _joined = federate(&berlin, &paris, FederationOptions::named("berlin").export("stream:orders"));
    let _further = federate(&paris, &rome, FederationOptions::named("paris").export("stream:berlin-orders=orders"));
    let last = in_time(rome.stream("orders"));
    let mut seen = in_time(last.consumer("seen", ConsumerOptions::all()));
    for (first, end) in [(0, 10), (10, 20), (20, 25)] {
        let mut next = || seen.next_blocking_within(PATIENCE).expect("it is there").expect("an event comes in time");
        let came: Vec<u32> = (first..end).map(|_| next().read().expect("a number")).collect();
        assert_eq!(came, (first..end).collect::<Vec<_>>());
        assert_eq!(stored(&mirror), came);
        if end == 10 {
            until_said(&log, &["it is not mirrored for now: paris: stream \"berlin-orders\": max_messages is 10"]);
        }
        in_time(mirror.purge());
    }
    let event = last.read(ReadOptions::default()).next_blocking().expect("one is there").expect("it is read");
    let header = |name: &str| event.headers().iter().find(|(known, _)| known == name).map(|(_, value)| &**value);
    let found = ["tw-hubs", "tw-source", "tw-message", "tw-id"].map(header);
    assert_eq!(found, [Some("berlin paris"), Some("paris:berlin-orders:16"), Some("berlin:orders:16"), None]);
    assert_eq!((event.subject(), event.id()), ("orders.berlin-orders.orders.new", Some("order-15")));
}

// Promises: P13.121.
#[test]
fn a_random_program_of_cuts_and_retention_leaves_no_gap_and_no_double() {
    for seed in 1..=3 {
        let folders = [Folder::new(), Folder::new()];
        let (mut paris, _) = hub("paris", ANY, &folders[0]);
        let (berlin, _) = hub("berlin", ANY, &folders[1]);
        let (url, own) = (paris.urls()[0].clone(), orders(&berlin));
        let join = |paris: &Node| federate(&berlin, paris, FederationOptions::named("berlin").export("stream:orders"));
        let (mut joined, mut published) = (Some(join(&paris)), 0);
        let (mut seen, mut random) = (Vec::new(), 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
        for _ in 0..30 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (choice, amount) = ((random >> 33) % 6, (random >> 40) as u32 % 700 + 1);
            match choice {
                0..=2 => {
                    publish(&own, published..published + amount);
                    published += amount;
                }
                3 => joined = if joined.is_some() { None } else { Some(join(&paris)) },
                4 => {
                    in_time(paris.stop(PATIENCE));
                    paris = hub("paris", &url, &folders[0]).0;
                }
                _ => {
                    joined.get_or_insert_with(|| join(&paris));
                    see(&paris, &mut seen, published as usize);
                    in_time(in_time(paris.stream("berlin-orders")).purge());
                }
            }
        }
        joined.get_or_insert_with(|| join(&paris));
        publish(&own, published..published + 1);
        see(&paris, &mut seen, published as usize + 1);
        assert_eq!(seen, (0..=published).collect::<Vec<_>>(), "seed {seed}");
    }
}

/// Takes events of the mirror until so many are seen.
fn see(paris: &Node, seen: &mut Vec<u32>, count: usize) {
    let mirror = in_time(paris.stream("berlin-orders"));
    let mut events = in_time(mirror.consumer("seen", ConsumerOptions::all()));
    while seen.len() < count {
        let event = events.next_blocking_within(PATIENCE).expect("it is there").expect("an event comes in time");
        seen.push(event.read().expect("a number"));
        drop(event.ack());
    }
    in_time(events.close());
}

/// Where the process of the hub in Berlin has its folder and listens, and the hub that it joins.
const BERLIN: &str = "TIDEWIRE_STORY_HUB_THAT_JOINS";

/// The hub of another process: this test is run by that alone.
#[test]
fn hub_that_joins() {
    let Ok(places) = env::var(BERLIN) else { return };
    let [folder, url, other] = places.split(' ').collect::<Vec<_>>().try_into().expect("three places");
    let hub = Node::listen(url, NodeOptions::named("berlin").data(folder)).wait().expect("a hub with a folder");
    orders(&hub);
    let lists = FederationOptions::named("berlin").export("stream:orders").import("paris:stream:orders=french");
    let joined = hub.federate(other, lists).expect("it may");
    in_time(joined.ready());
    println!("listens at {}", hub.urls()[0]);
    // The process ends when its parent closes the pipe.
    let _ = std::io::stdin().read(&mut [0]);
}

/// The process of this hub. It listens when this returns.
fn berlin(folder: &Path, url: &str, paris: &Node) -> Child {
    let mut command = Command::new(env::current_exe().expect("it is known"));
    command.args(["federation::hub_that_joins", "--exact", "--nocapture"]);
    command.env(BERLIN, format!("{} {url} {}", folder.display(), paris.urls()[0]));
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    lines.find(|line| line.contains("listens at")).expect("it listens");
    process
}

// Promises: P13.121.
#[test]
fn a_hub_that_is_killed_in_the_middle_of_its_mirrors_leaves_no_gap_and_no_double() {
    const MESSAGES: u32 = 2_000;
    let folders = [Folder::new(), Folder::new()];
    let (paris, _) = hub("paris", ANY, &folders[0]);
    let other = orders(&paris);
    publish(&other, 0..MESSAGES);
    let place = unix_url();
    let mut process = berlin(&folders[1].0, &place, &paris);
    let (say, joined) = sync_channel(100);
    let again = move |line: &str| {
        if line.ends_with("again") {
            let _ = say.try_send(());
        }
    };
    let node = in_time(Node::join(&place, NodeOptions::named("shop").changes(again)));
    let (own, french) = (orders(&node).on_outage(|_| ()), in_time(node.stream("french")).on_outage(|_| ()));
    let mirror = in_time(paris.stream("berlin-orders"));
    let mut seen = in_time(mirror.consumer("seen", ConsumerOptions::all()));
    let mut seen = || seen.next_blocking_within(PATIENCE).expect("it is there").expect("it comes").ack().wait();
    let mut next = 0;
    for _ in 0..2 {
        publish(&own, next..next + 700);
        next += 700;
        // In the middle: some are there, and others are on their way.
        (0..150).for_each(|_| seen().expect("it is stored"));
        process.kill().expect("it runs");
        process.wait().expect("it has ended");
        process = berlin(&folders[1].0, &place, &paris);
        joined.recv_timeout(PATIENCE).expect("it joins again");
    }
    publish(&own, next..MESSAGES);
    let expected: Vec<_> = (0..MESSAGES).collect();
    for stream in [&mirror, &french] {
        assert_eq!(taken(stream, MESSAGES as usize), expected);
        assert_eq!(stored(stream), expected);
    }
    process.kill().expect("it runs");
    process.wait().expect("it has ended");
}

/// A link with the token of a hub, which sends what no federation would.
struct HostileHub {
    link: Link,
    name: String,
    _runtime: Runtime,
}

/// The error of a call, or none.
struct CodeWaiter(SyncSender<Option<ErrorCode>>);

impl ReplyWaiter for CodeWaiter {
    fn replied(&self, _: tidewire_link::Message) {
        let _ = self.0.send(None);
    }

    fn failed(&self, failure: Failure) {
        let _ = self.0.send(ErrorCode::from_number(failure.number));
    }

    fn item(&self, _: tidewire_link::Message) {}

    fn over(&self) {}
}

impl HostileHub {
    fn join(hub: &Node, name: &str, secret: &str) -> Self {
        let runtime = Runtime::start(name).expect("a thread");
        let greeting = Greeting { token: Some(secret.into()), hub: Some(name.into()), ..Greeting::new(name) };
        let address: Address = hub.urls()[0].parse().expect("an address");
        let link = Link::join(&runtime, &address, greeting, |_| ()).expect("it joins");
        Self { link, name: name.to_owned(), _runtime: runtime }
    }

    /// Calls a method of the storage backend.
    fn call(&self, method: &str, arguments: &impl serde::Serialize) -> Option<ErrorCode> {
        let mut fields = Vec::new();
        FieldsWriter::new(&mut fields).add("tw-hubs", self.name.as_bytes()).expect("it is short");
        let subject = format!("svc.tidewire-streams.{method}");
        let fields = Fields::parse("CALL", &fields).expect("they are fields");
        let head = CallHead { deadline_ms: 30_000, subject: &subject, fields, ..CallHead::default() };
        let payload = tidewire_node::values::to_bytes(arguments).expect("it is encoded");
        let (say, said) = sync_channel(1);
        let waiting = Arc::new(CodeWaiter(say));
        match self.link.call(&head, Flags::NORMAL, OutgoingPayload::Short(&payload), waiting) {
            Ok(_) => self.link.flush(),
            Err(refused) => panic!("{method}: {refused}"),
        }
        said.recv_timeout(PATIENCE).expect("it is answered in time")
    }
}

// Promises: P13.122.
#[test]
fn a_partner_reads_and_writes_the_streams_of_its_token_and_no_others() {
    let folders = [Folder::new(), Folder::new()];
    let secret = "a long secret of berlin";
    let right = |method: &str| format!("svc.tidewire-streams.{method}");
    let (source, mirror) = (right("source:news"), right("mirror:berlin-orders"));
    let tokens = [
        Token::new("a long secret of paris", "paris"),
        Token::new(secret, "berlin").partner().call(&[&source, &mirror]),
    ];
    let options = NodeOptions::named("paris").data(&folders[0].0).tokens(tokens);
    let paris = Node::listen(ANY, options).wait().expect("it listens");
    let (berlin, log) = hub("berlin", ANY, &folders[1]);
    for name in ["news", "salaries"] {
        publish(
            &in_time(paris.stream_with(name, StreamOptions::new([format!("{name}.>"), "orders.>".to_owned()]))),
            0..3,
        );
    }
    // It is the token that decides, and not the list of the federation.
    let hostile = HostileHub::join(&paris, "berlin", secret);
    let page = (1_u64, 10_u32, 1_000_u32, 0_u64);
    let read = |method: &str| hostile.call(method, &page);
    assert_eq!(read("source:news"), None);
    for method in ["source:salaries", "source:berlin-orders", "source:", "source", "read", "call", "look"] {
        assert_eq!(read(method), Some(ErrorCode::Unauthorized), "{method}");
    }
    let write =
        |method: &str, hub: &str| hostile.call(method, &((hub, "paris"), "orders", 0_u64, None::<()>, None::<()>));
    assert_eq!(write("mirror:berlin-orders", "berlin"), Some(ErrorCode::RemoteError), "there is none");
    for method in ["mirror:news", "mirror:salaries", "mirror:berlin-orders2", "mirror:", "mirror", "act"] {
        assert_eq!(write(method, "berlin"), Some(ErrorCode::Unauthorized), "{method}");
    }
    // It moves no position of another hub.
    assert_eq!(write("mirror:berlin-orders", "rome"), Some(ErrorCode::Unauthorized));
    drop(hostile);

    let own = orders(&berlin);
    publish(&own, 0..3);
    let options = FederationOptions::named("berlin").token(secret).import("paris:stream:news");
    let options = options.import("paris:stream:salaries").export("stream:orders").export("stream:orders=news");
    let joined = federate(&berlin, &paris, options);
    assert_eq!(taken(&in_time(berlin.stream("paris-news")), 3), [0, 1, 2]);
    assert_eq!(taken(&in_time(paris.stream("berlin-orders")), 3), [0, 1, 2]);
    let refused = ["\"salaries\" as \"paris-salaries\"", "\"orders\" as \"news\""];
    until_said(
        &log,
        &refused
            .map(|names| format!("stream {names}: it is not mirrored for now: paris: "))
            .each_ref()
            .map(|text| &**text),
    );
    let imports = joined.statistics().imports.names;
    assert_eq!(imports.visible, ["stream:paris-news"]);
    assert!(imports.refused["stream:paris-salaries"].contains("not allowed with this token"));
    let names: Vec<_> = in_time(berlin.streams()).into_iter().map(|info| info.settings.name).collect();
    assert_eq!(names, ["orders", "paris-news"], "what may not be read has no mirror");

    for name in ["news", "salaries"] {
        assert_eq!(stored(&in_time(paris.stream(name))), [0, 1, 2], "nothing was written");
    }
}

// Promises: P13.123.
#[test]
fn hubs_of_a_ring_that_collect_one_stream_have_each_event_once() {
    let folders = [(); 3].map(|()| Folder::new());
    let names = ["ada", "bea", "cleo"];
    let hubs = [0, 1, 2].map(|at| hub(names[at], ANY, &folders[at]).0);
    let streams = hubs.each_ref().map(orders);
    for (at, stream) in streams.iter().enumerate() {
        let first = at as u32 * 1_000;
        publish(stream, first..first + 100);
    }
    let _joined = [0, 1, 2].map(|at| {
        let next = &hubs[(at + 1) % 3];
        let options = FederationOptions::named(names[at]).export("stream:orders=orders");
        federate(&hubs[at], next, options.import(format!("{}:stream:orders=orders", next.name())))
    });
    for (at, stream) in streams.iter().enumerate() {
        let first = at as u32 * 1_000 + 100;
        publish(stream, first..first + 100);
    }
    for (name, stream) in names.iter().zip(&streams) {
        let mut all = taken(stream, 600);
        all.sort_unstable();
        let expected: Vec<_> = [0, 1_000, 2_000].into_iter().flat_map(|first| first..first + 200).collect();
        assert_eq!(all, expected, "{name}");
    }
    // The last event of each way comes behind all others of that way.
    for (at, stream) in streams.iter().enumerate() {
        publish(stream, 10_000 + at as u32..10_001 + at as u32);
    }
    for stream in &streams {
        assert_eq!(taken(stream, 603).into_iter().filter(|number| *number >= 10_000).count(), 3);
        assert_eq!(stored(stream).len(), 603);
    }
}
