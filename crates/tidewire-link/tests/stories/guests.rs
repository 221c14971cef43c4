//! The only node that has joined another one from elsewhere: the event loop of that other node may
//! read its socket.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, ThreadId};

use tidewire_link::{
    Call, Exchange, Greeting, Handler, HubHandle, Link, OutgoingPayload, Published, Reader, ReplyWaiter, Subscription,
};
use tidewire_proto::subject::Pattern;
use tidewire_proto::wire::{self, CallHead, Flags, Kind, PublishHead};

use crate::support::{Answer, Answers, Echo, HEARTBEAT_MS, Keep, Listen, Node, Place, next};

/// A node that listens, whose loop is this thread, and what that loop is offered.
struct Host {
    place: Place,
    link: Link,
    readers: Receiver<Reader>,
}

impl Host {
    fn new(url: &str) -> Self {
        Self::with_heartbeat(url, 60_000)
    }

    /// With this heartbeat, in milliseconds.
    fn with_heartbeat(url: &str, heartbeat_ms: u64) -> Self {
        let address = url.parse().expect("it is an address");
        let place = Place::open_with(&address, |options| options.heartbeat_ms = heartbeat_ms);
        let link = joined(&place.hub, "host");
        let (send, readers) = sync_channel(100);
        link.on_way(move |reader| drop(send.try_send(reader)));
        Self { place, link, readers }
    }

    fn subscribe(&self, pattern: &str, handler: impl Handler + 'static) -> Subscription {
        let (answers, answered) = Answers::new();
        let pattern = Pattern::new(pattern).expect("it is a pattern");
        let subscription = self.link.subscribe(&pattern, "", &[], Arc::new(handler), answers).expect("there is room");
        assert_eq!(next(&answered), Answer::Over);
        subscription
    }

    fn guest(&self) -> Node {
        Node::join(&self.place.address, "guest")
    }
}

fn joined(hub: &HubHandle, name: &str) -> Link {
    Link::join_local(hub, Greeting::new(name)).unwrap_or_else(|error| panic!("{error}"))
}

/// Reads until something has come, as a loop would.
fn read_until<T>(reader: &Reader, came: &Receiver<T>) -> T {
    loop {
        assert!(reader.read(), "it is still the turn of this loop");
        if let Ok(one) = came.try_recv() {
            return one;
        }
        thread::yield_now();
    }
}

fn publish(node: &Node, payload: &[u8]) {
    let head = PublishHead { subject: "news", ..PublishHead::default() };
    node.link.publish(&head, Flags::NORMAL, OutgoingPayload::from(payload)).expect("there is room");
    node.link.flush();
}

fn call(node: &Node, payload: &[u8]) -> Receiver<Answer> {
    let (answers, answered) = Answers::new();
    node.call("svc.echo", payload, 0, &answers);
    answered
}

/// Tells on which thread a call came, and answers it.
struct Where(SyncSender<ThreadId>);

impl Handler for Where {
    fn called(&self, call: Call) -> Option<Arc<dyn Exchange>> {
        self.0.try_send(thread::current().id()).expect("there is room");
        Echo.called(call)
    }

    fn published(&self, _: Published) {}
}

fn calls_of_a_guest_come_on_the_thread_of_the_loop(url: &str) {
    let host = Host::new(url);
    let (send, called) = sync_channel(1);
    let _kept = host.subscribe("svc.echo", Where(send));
    let guest = host.guest();
    let reader = next(&host.readers);
    assert!(reader.begin());
    let answered = call(&guest, b"hi");
    assert_eq!(read_until(&reader, &called), thread::current().id());
    assert_eq!(next(&answered), Answer::Reply(b"hi".to_vec()));
}

#[test]
fn calls_of_a_guest_come_on_the_thread_of_the_loop_over_tcp() {
    calls_of_a_guest_come_on_the_thread_of_the_loop("tide://127.0.0.1:0");
}

#[test]
fn calls_of_a_guest_come_on_the_thread_of_the_loop_over_a_unix_socket() {
    let path = std::env::temp_dir().join(format!("tidewire-guests-{}.sock", std::process::id()));
    calls_of_a_guest_come_on_the_thread_of_the_loop(&format!("tide+unix://{}", path.display()));
}

#[test]
fn frames_of_a_guest_keep_their_order_for_each_length_and_reader() {
    let host = Host::new("tide://127.0.0.1:0");
    let (send, heard) = sync_channel(1_000);
    let _kept = host.subscribe("news", Listen(send));
    let guest = host.guest();
    let reader = next(&host.readers);
    let sent: Vec<Vec<u8>> =
        (0..60_u8).map(|number| vec![number; [10, 300_000, 20_480, 65_536, 1][usize::from(number) % 5]]).collect();
    sent[..20].iter().for_each(|payload| publish(&guest, payload));
    for payload in &sent[..20] {
        assert!(next(&heard) == *payload, "the thread of the links reads until the loop begins");
    }
    assert!(reader.begin());
    sent[20..40].iter().for_each(|payload| publish(&guest, payload));
    for payload in &sent[20..40] {
        assert!(read_until(&reader, &heard) == *payload);
    }
    sent[40..].iter().for_each(|payload| publish(&guest, payload));
    for payload in &sent[40..50] {
        assert!(read_until(&reader, &heard) == *payload);
    }
    drop(reader);
    for payload in &sent[50..] {
        assert!(next(&heard) == *payload, "the thread of the links goes on where the loop has stopped");
    }
}

#[test]
fn a_guest_that_is_lost_ends_its_calls_and_the_next_one_has_its_place() {
    let host = Host::new("tide://127.0.0.1:0");
    let (called, came) = sync_channel(10);
    let (cancelled, gone) = sync_channel(10);
    let _keep = host.subscribe("svc.keep", Keep { called, cancelled, calls: Arc::default() });
    let _echo = host.subscribe("svc.echo", Echo);
    let guest = host.guest();
    let reader = next(&host.readers);
    assert!(reader.begin());
    let (answers, _answered) = Answers::new();
    guest.call("svc.keep", &[1; 20_480], 0, &answers);
    read_until(&reader, &came);
    drop(guest);
    while reader.read() {
        thread::yield_now();
    }
    next(&gone);
    drop(reader);
    let guest = host.guest();
    let reader = next(&host.readers);
    assert!(reader.begin());
    let answered = call(&guest, b"again");
    assert_eq!(read_until(&reader, &answered), Answer::Reply(b"again".to_vec()));
}

#[test]
fn a_busy_loop_holds_up_nobody_when_others_join() {
    let host = Host::new("tide://127.0.0.1:0");
    let _kept = host.subscribe("svc.echo", Echo);
    let guest = host.guest();
    let reader = next(&host.readers);
    assert!(reader.begin());
    let other = Node::join(&host.place.address, "other");
    assert!(!reader.read(), "the thread of the links reads for both");
    assert_eq!(other.ask("svc.echo", b"other"), Answer::Reply(b"other".to_vec()));
    assert_eq!(guest.ask("svc.echo", b"guest"), Answer::Reply(b"guest".to_vec()));
    assert!(!reader.begin());
}

#[test]
fn a_busy_loop_holds_up_no_other_node_of_its_process() {
    let host = Host::new("tide://127.0.0.1:0");
    let guest = host.guest();
    let reader = next(&host.readers);
    assert!(reader.begin());
    let other = joined(&host.place.hub, "other");
    let (answers, answered) = Answers::new();
    let pattern = Pattern::new("svc.echo").expect("it is a pattern");
    let _kept = other.subscribe(&pattern, "", &[], Arc::new(Echo), answers).expect("there is room");
    assert_eq!(next(&answered), Answer::Over);
    assert_eq!(guest.ask("svc.echo", b"hi"), Answer::Reply(b"hi".to_vec()));
    assert!(!reader.begin());
    drop(other);
    assert!(reader.begin(), "it is alone again");
}

#[test]
fn a_wait_for_a_guest_on_another_thread_is_answered_though_the_loop_does_not_read() {
    let host = Host::new("tide://127.0.0.1:0");
    let guest = host.guest();
    let _kept = guest.subscribe("svc.there", Echo);
    let reader = next(&host.readers);
    assert!(reader.begin());
    let (answers, answered) = Answers::new();
    let head = CallHead { deadline_ms: 30_000, subject: "svc.there", ..CallHead::default() };
    let off_loop = host.link.wait_off_loop(true).expect("this thread blocks");
    host.link
        .call(&head, Flags::NORMAL, OutgoingPayload::Short(b"hi"), answers as Arc<dyn ReplyWaiter>)
        .expect("there is room");
    host.link.flush();
    assert_eq!(next(&answered), Answer::Reply(b"hi".to_vec()));
    assert!(!reader.begin());
    drop(off_loop);
    assert!(reader.begin());
    assert!(host.link.wait_off_loop(false).is_none(), "the loop of this thread reads");
}

#[test]
fn frames_left_by_a_busy_loop_are_read_with_the_heartbeat_and_the_guest_stays() {
    let host = Host::with_heartbeat("tide://127.0.0.1:0", HEARTBEAT_MS);
    let (send, heard) = sync_channel(100);
    let _kept = host.subscribe("news", Listen(send));
    let guest = host.guest();
    let reader = next(&host.readers);
    assert!(reader.begin());
    // Longer than the hub waits for a silent node, as it takes half a heartbeat until each is read.
    for number in 0..10_u8 {
        publish(&guest, &[number]);
        assert_eq!(next(&heard), [number]);
    }
    assert!(guest.link.joined().is_some());
    assert!(reader.read(), "it is still the turn of the loop");
}

#[test]
fn a_loop_that_let_go_is_offered_the_reading_again() {
    let host = Host::with_heartbeat("tide://127.0.0.1:0", HEARTBEAT_MS);
    let _guest = host.guest();
    drop(next(&host.readers));
    assert!(next(&host.readers).begin());
}

#[test]
fn frames_wait_for_a_guest_that_does_not_read_at_once() {
    let host = Host::new("tide://127.0.0.1:0");
    let guest = host.guest();
    let (send, heard) = sync_channel(1_000);
    let _kept = guest.subscribe("news", Listen(send));
    let reader = next(&host.readers);
    assert!(reader.begin());
    guest.link.flusher().pause();
    let head = PublishHead { subject: "news", ..PublishHead::default() };
    // More than the sockets hold.
    for number in 0..400_u16 {
        let payload = vec![number as u8; 60_000];
        host.link.publish(&head, Flags::NORMAL, OutgoingPayload::Short(&payload)).expect("there is room");
        host.link.flush();
    }
    guest.link.flusher().listen_again();
    for number in 0..400_u16 {
        let payload = next(&heard);
        assert_eq!((payload.len(), payload[0]), (60_000, number as u8));
    }
    assert!(reader.read());
}

#[test]
fn a_guest_that_speaks_something_else_is_told_and_let_go() {
    use std::io::{Read as _, Write as _};

    let host = Host::new("tide://127.0.0.1:0");
    let mut stranger = std::net::TcpStream::connect(("127.0.0.1", host.place.port())).expect("it listens");
    let reader = next(&host.readers);
    assert!(reader.begin());
    stranger.write_all(&[0xff; 64]).expect("it is open");
    while reader.read() {
        thread::yield_now();
    }
    let mut said = Vec::new();
    stranger.read_to_end(&mut said).expect("it is closed");
    let frame = wire::read(&said, 65_536).expect("it is a frame").expect("it is whole");
    assert_eq!(frame.kind, Kind::Error);
}
