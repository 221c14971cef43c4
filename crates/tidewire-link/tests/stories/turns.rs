//! Readers of the socket of a link: the thread of the links, or an event loop that has taken over.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, ThreadId};

use tidewire_link::{Address, Failure, Greeting, Link, Message, OutgoingPayload, Reader, ReplyWaiter, Runtime};
use tidewire_proto::subject::Pattern;
use tidewire_proto::wire::{self, CallHead, Flags, Kind, PublishHead};

use crate::support::{Answer, Answers, Echo, HEARTBEAT_MS, Listen, Node, Place, SOON, next};

/// A hub with a node that answers, and a node whose loop is this thread.
struct Scene {
    place: Place,
    server: Node,
    _kept: tidewire_link::Subscription,
    node: Node,
    readers: Receiver<Reader>,
}

/// With this heartbeat, in milliseconds.
fn scene(url: &str, heartbeat_ms: u64) -> Scene {
    let place = Place::open(&url.parse().expect("it is an address"));
    let server = Node::join(&place.address, "server");
    let kept = server.subscribe("svc.echo", Echo);
    let node = Node::join_with(&place.address, Greeting { heartbeat_ms, ..Greeting::new("node") });
    let readers = offers(&node.link);
    Scene { place, server, _kept: kept, node, readers }
}

/// Readers that a loop on this thread is offered.
fn offers(link: &Link) -> Receiver<Reader> {
    let (send, readers) = sync_channel(100);
    link.on_way(move |reader| drop(send.try_send(reader)));
    readers
}

/// Reads until there is an answer, as a loop would.
fn read_until<T>(reader: &Reader, answered: &Receiver<T>) -> T {
    loop {
        assert!(reader.read(), "it is still the turn of this loop");
        if let Ok(answer) = answered.try_recv() {
            return answer;
        }
        thread::yield_now();
    }
}

/// Tells on which thread an answer came.
struct Where(SyncSender<ThreadId>);

impl ReplyWaiter for Where {
    fn replied(&self, _: Message) {
        self.0.try_send(thread::current().id()).expect("there is room");
    }
    fn failed(&self, _: Failure) {}
    fn item(&self, _: Message) {}
    fn over(&self) {}
    fn credited(&self, _: u32) {}
}

fn answers_come_on_the_thread_of_the_loop(url: &str) {
    let scene = scene(url, 5_000);
    let reader = next(&scene.readers);
    assert!(reader.begin());
    let (send, answered) = sync_channel(1);
    let head = CallHead { deadline_ms: 30_000, subject: "svc.echo", ..CallHead::default() };
    scene
        .node
        .link
        .call(&head, Flags::NORMAL, OutgoingPayload::Short(b"hi"), Arc::new(Where(send)))
        .expect("there is room");
    scene.node.link.flush();
    assert_eq!(read_until(&reader, &answered), thread::current().id());
}

#[test]
fn answers_come_on_the_thread_of_the_loop_over_tcp() {
    answers_come_on_the_thread_of_the_loop("tide://127.0.0.1:0");
}

#[test]
fn answers_come_on_the_thread_of_the_loop_over_a_unix_socket() {
    let path = std::env::temp_dir().join(format!("tidewire-turns-{}.sock", std::process::id()));
    answers_come_on_the_thread_of_the_loop(&format!("tide+unix://{}", path.display()));
}

#[test]
fn frames_left_by_a_busy_loop_are_read_with_the_heartbeat_and_the_link_lives_on() {
    let scene = scene("tide://127.0.0.1:0", HEARTBEAT_MS);
    let (send, heard) = sync_channel(100);
    let _kept = scene.node.subscribe("news", Listen(send));
    let reader = next(&scene.readers);
    assert!(reader.begin());
    // Longer than a hub waits for a silent node, as it takes a heartbeat at least until each is
    // read.
    for number in 0..6_u8 {
        let head = PublishHead { subject: "news", ..PublishHead::default() };
        scene.server.link.publish(&head, Flags::NORMAL, OutgoingPayload::Short(&[number])).expect("there is room");
        scene.server.link.flush();
        assert_eq!(next(&heard), [number]);
    }
    assert!(scene.node.link.joined().is_some());
    assert!(reader.read(), "it is still the turn of the loop");
}

#[test]
fn a_wait_on_another_thread_is_answered_though_the_loop_does_not_read() {
    let scene = scene("tide://127.0.0.1:0", 60_000);
    let reader = next(&scene.readers);
    assert!(reader.begin());
    thread::scope(|scope| {
        scope.spawn(|| {
            let _off_loop = scene.node.link.wait_off_loop(false).expect("the loop of another thread reads");
            assert_eq!(scene.node.ask("svc.echo", b"hi"), Answer::Reply(b"hi".to_vec()));
        });
    });
    assert!(!reader.read(), "the thread of the links reads now");
}

#[test]
fn a_loop_gets_no_turn_while_somebody_waits_elsewhere() {
    let scene = scene("tide://127.0.0.1:0", 60_000);
    let reader = next(&scene.readers);
    let off_loop = scene.node.link.wait_off_loop(true).expect("this thread blocks");
    assert!(!reader.begin());
    drop(off_loop);
    assert!(reader.begin());
    assert!(scene.node.link.wait_off_loop(false).is_none(), "the loop of this thread reads");
}

#[test]
fn the_loop_is_offered_the_reading_again_once_nobody_waits_elsewhere() {
    let scene = scene("tide://127.0.0.1:0", HEARTBEAT_MS);
    let reader = next(&scene.readers);
    assert!(reader.begin());
    drop(scene.node.link.wait_off_loop(true));
    assert!(!reader.read());
    drop(reader);
    let again = next(&scene.readers);
    assert!(again.begin() && again.read());
    let (answers, answered) = Answers::new();
    scene.node.call("svc.echo", b"again", 0, &answers);
    assert_eq!(read_until(&again, &answered), Answer::Reply(b"again".to_vec()));
}

#[test]
fn a_loop_that_goes_away_leaves_the_reading_to_the_links() {
    let scene = scene("tide://127.0.0.1:0", 60_000);
    let reader = next(&scene.readers);
    assert!(reader.begin());
    drop(reader);
    assert_eq!(scene.node.ask("svc.echo", b"hi"), Answer::Reply(b"hi".to_vec()));
}

#[test]
fn the_loop_finds_out_that_the_hub_has_gone_and_reads_the_next_connection() {
    let scene = scene("tide://127.0.0.1:0", 60_000);
    let reader = next(&scene.readers);
    assert!(reader.begin());
    let (answers, answered) = Answers::new();
    scene.node.call("svc.nobody", b"", 0, &answers);
    assert!(matches!(read_until(&reader, &answered), Answer::Failed(_)));
    scene.place.hub.close();
    let gone = std::time::Instant::now() + SOON;
    while reader.read() {
        assert!(std::time::Instant::now() < gone, "nobody says that the hub has gone");
        thread::yield_now();
    }
    drop(reader);
    let again = next(&scene.readers);
    assert!(again.begin() && again.read());
    assert!(scene.node.link.wait_off_loop(false).is_none(), "the loop of this thread reads");
}

#[test]
fn why_a_hub_closed_the_link_is_heard_although_a_write_finds_it_closed_first() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address: Address = format!("tide://{}", listener.local_addr().expect("it has one")).parse().expect("it is one");
    let hub = thread::spawn(move || welcome(&listener));
    let runtime = Runtime::start("node").expect("a thread can be started");
    let (logs, logged) = sync_channel(100);
    let log = move |line: &str| drop(logs.try_send(line.to_owned()));
    let link = Link::join(&runtime, &address, Greeting::new("node"), log).expect("the hub takes it in");
    let reader = next(&offers(&link));
    // The loop of this thread is busy: nobody reads.
    assert!(reader.begin());
    let mut hub = hub.join().expect("it says WELCOME");
    hub.write_all(&told(Kind::Error, &14_u16.to_le_bytes(), b"link_queue_bytes=5: too much")).expect("it is open");
    drop(hub);
    let line = loop {
        let head = PublishHead { subject: "news", ..PublishHead::default() };
        let _ = link.publish(&head, Flags::NORMAL, OutgoingPayload::Short(b"hi"));
        link.flush();
        if let Ok(line) = logged.try_recv() {
            break line;
        }
        thread::yield_now();
    };
    assert!(line.ends_with("link_queue_bytes=5: too much"), "{line}");
}

/// Takes one node in, and does nothing else.
fn welcome(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().expect("a node comes");
    let mut hello = [0; 1_024];
    assert!(stream.read(&mut hello).expect("it is open") > 0);
    stream.write_all(&told(Kind::Welcome, &1_u16.to_le_bytes(), &[0])).expect("it is open");
    stream
}

fn told(kind: Kind, head: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let head = |out: &mut Vec<u8>| {
        out.extend_from_slice(head);
        Ok(())
    };
    wire::write(&mut frame, kind, Flags::URGENT, 0, head, payload).expect("it is short");
    frame
}

/// More than a heartbeat goes by, and what was published meanwhile comes in order once the node
/// listens again.
fn a_node_that_is_behind_takes_nothing_in(link: &Link, from: &Node, heard: &Receiver<Vec<u8>>) {
    let head = PublishHead { subject: "news", ..PublishHead::default() };
    let publish = |number: u32| {
        from.link.publish(&head, Flags::NORMAL, OutgoingPayload::Short(&number.to_le_bytes())).expect("there is room");
        from.link.flush();
    };
    publish(0);
    assert_eq!(next(heard), 0_u32.to_le_bytes());
    link.flusher().pause();
    (1..1_000).for_each(publish);
    // The node took in no message that the hub has passed on by now. The hub answers, so it has
    // passed all of them on.
    assert!(matches!(from.ask("svc.nobody", b""), Answer::Failed(_)));
    assert!(heard.try_recv().is_err(), "it takes messages in although it is behind");
    link.flusher().listen_again();
    for number in 1..1_000_u32 {
        assert_eq!(next(heard), number.to_le_bytes());
    }
}

#[test]
fn a_node_that_is_behind_takes_nothing_in_over_tcp() {
    let scene = scene("tide://127.0.0.1:0", 5_000);
    let (send, heard) = sync_channel(1_000);
    let _kept = scene.node.subscribe("news", Listen(send));
    a_node_that_is_behind_takes_nothing_in(&scene.node.link, &scene.server, &heard);
}

#[test]
fn a_node_that_is_behind_takes_nothing_in_over_a_websocket() {
    let scene = scene("ws://127.0.0.1:0", 5_000);
    let (send, heard) = sync_channel(1_000);
    let _kept = scene.node.subscribe("news", Listen(send));
    a_node_that_is_behind_takes_nothing_in(&scene.node.link, &scene.server, &heard);
}

#[test]
fn a_node_that_is_behind_takes_nothing_in_from_a_hub_of_its_process() {
    let place = Place::open(&"tide://127.0.0.1:0".parse::<Address>().expect("it is an address"));
    let link = Link::join_local(&place.hub, Greeting::new("here")).expect("there is a place");
    let (send, heard) = sync_channel(1_000);
    let (answers, answered) = Answers::new();
    let pattern = Pattern::new("news").expect("it is a pattern");
    let _kept = link.subscribe(&pattern, "", &[], Arc::new(Listen(send)), answers).expect("there is room");
    assert_eq!(next(&answered), Answer::Over);
    a_node_that_is_behind_takes_nothing_in(&link, &Node::join(&place.address, "from"), &heard);
}

#[test]
fn a_node_that_is_behind_does_not_take_its_hub_for_silent() {
    let scene = scene("tide://127.0.0.1:0", HEARTBEAT_MS);
    scene.node.link.flusher().pause();
    // Six times its own heartbeat, which would end the link after two: another node counts them.
    let other =
        Node::join_with(&scene.place.address, Greeting { heartbeat_ms: HEARTBEAT_MS, ..Greeting::new("other") });
    let readers = offers(&other.link);
    for _ in 0..6 {
        drop(next(&readers));
    }
    scene.node.link.flusher().listen_again();
    assert_eq!(scene.node.ask("svc.echo", b"hi"), Answer::Reply(b"hi".to_vec()));
}

#[test]
fn links_to_a_hub_of_the_same_process_have_no_socket_to_read() {
    let place = Place::open(&"tide://127.0.0.1:0".parse::<Address>().expect("it is an address"));
    let link = Link::join_local(&place.hub, Greeting::new("here")).expect("there is a place");
    let readers = offers(&link);
    assert!(readers.try_recv().is_err());
    assert!(link.wait_off_loop(true).is_none());
}
