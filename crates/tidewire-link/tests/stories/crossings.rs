//! Events that happen between two looks of the thread of the links, or of a loop.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use tidewire_link::{Access, Address, Grant, Greeting, Link, OutgoingPayload, Runtime, Subscription};
use tidewire_proto::subject::Pattern;
use tidewire_proto::wire::{CallHead, FieldsWriter, Flags, Hello, Kind, read, write};

use crate::support::{Answer, Answers, Deaf, Echo, HEARTBEAT_MS, Keep, Node, Place, SOON, next};

fn address() -> Address {
    "tide://127.0.0.1:0".parse().expect("it is an address")
}

/// A HELLO of a node that wants to hear something so often.
fn hello(heartbeat_ms: &str) -> Vec<u8> {
    let (mut fields, mut frame) = (Vec::new(), Vec::new());
    let mut writer = FieldsWriter::new(&mut fields);
    writer.add("name", b"anxious").expect("there is room");
    writer.add("heartbeat-ms", heartbeat_ms.as_bytes()).expect("there is room");
    write(&mut frame, Kind::Hello, Flags::URGENT, 0, |out| Hello::put(1, 1, out), &fields).expect("there is room");
    frame
}

/// The kind of the next frame.
fn kind(stream: &mut TcpStream) -> Kind {
    let mut length = [0; 4];
    stream.read_exact(&mut length).expect("the hub says something soon");
    let mut frame = length.to_vec();
    frame.resize(4 + u32::from_le_bytes(length) as usize, 0);
    stream.read_exact(&mut frame[4..]).expect("the hub sends whole frames");
    read(&frame, 1 << 20).expect("the hub sends frames").expect("it is whole").kind
}

#[test]
fn a_hub_with_nothing_else_to_do_minds_the_heartbeat_that_a_node_states() {
    let place = Place::open_with(&address(), |options| {
        (options.heartbeat_ms, options.greeting_ms) = (3_600_000, 600_000);
    });
    let mut stream = TcpStream::connect(("127.0.0.1", place.port())).expect("the hub listens");
    stream.set_read_timeout(Some(SOON)).expect("it is a socket");
    stream.write_all(&hello("50")).expect("the hub reads");
    assert_eq!(kind(&mut stream), Kind::Welcome);
    assert_eq!(kind(&mut stream), Kind::Ping);
}

fn call_and_cancel(link: &Link, subject: &str) {
    let head = CallHead { deadline_ms: 30_000, subject, ..CallHead::default() };
    let key = link.call(&head, Flags::NORMAL, OutgoingPayload::Short(b""), Arc::new(Deaf)).expect("there is room");
    link.flush();
    link.cancel(key);
}

#[test]
fn a_call_and_its_end_that_are_read_at_once_leave_no_handler_at_work() {
    let place = Place::open(&address());
    let (server, caller) = (Node::join(&place.address, "server"), Node::join(&place.address, "caller"));
    let ((called, calls), (cancelled, cancels)) = (sync_channel(100), sync_channel(100));
    let _kept: [Subscription; 2] = [
        server.subscribe("svc.hold", Keep { called, cancelled, calls: Arc::default() }),
        server.subscribe("svc.echo", Echo),
    ];
    server.link.flusher().pause();
    call_and_cancel(&caller.link, "svc.hold");
    // The hub has passed both on when it answers this.
    assert!(matches!(caller.ask("svc.nobody", b""), Answer::Failed(_)));
    server.link.flusher().listen_again();
    assert_eq!(caller.ask("svc.echo", b"hi"), Answer::Reply(b"hi".to_vec()));
    assert_eq!(calls.try_iter().count(), cancels.try_iter().count(), "a handler works for nobody");
    assert_eq!(server.link.open_calls(), 0);
}

#[test]
fn a_loop_stops_to_read_a_connection_whose_end_others_have_found() {
    let place = Place::open(&address());
    let node = Node::join_with(&place.address, Greeting { heartbeat_ms: HEARTBEAT_MS, ..Greeting::new("node") });
    let (send, readers) = sync_channel(100);
    node.link.on_way(move |reader| drop(send.try_send(reader)));
    let reader = next(&readers);
    assert!(reader.begin());
    place.hub.close();
    // The loop is busy: the thread of the links finds out with the next heartbeat, and joins again.
    let again = next(&readers);
    assert!(!reader.read(), "it would look at the closed socket for ever");
    assert!(again.begin() && again.read());
}

#[test]
fn a_subscription_that_the_next_hub_refuses_is_logged() {
    let path = std::env::temp_dir().join(format!("tidewire-again-{}.sock", std::process::id()));
    let address: Address = format!("tide+unix://{}", path.display()).parse().expect("it is an address");
    let place = Place::open(&address);
    let runtime = Runtime::start("node").expect("a thread can be started");
    let (send, lines) = sync_channel(1_000);
    let greeting = Greeting { token: Some("a secret".to_owned()), ..Greeting::new("node") };
    let link = Link::join(&runtime, &address, greeting, move |line| drop(send.try_send(line.to_owned())));
    let link = link.unwrap_or_else(|error| panic!("{error}"));
    let (answers, answered) = Answers::new();
    let pattern = Pattern::new("news").expect("it is a pattern");
    let _kept = link.subscribe(&pattern, "", &[], Arc::new(Echo), answers).expect("there is room");
    assert_eq!(next(&answered), Answer::Over);
    drop(place);
    let _next = Place::open_with(&address, |options| {
        let grant = Grant { subscribe: Vec::new(), answer: Vec::new(), ..Grant::all("a secret", "reader") };
        options.access = Access::new(vec![grant]);
    });
    let line = std::iter::repeat_with(|| next(&lines)).find(|line| line.contains("not subscribed to again"));
    let line = line.expect("it comes soon");
    assert!(line.contains("news") && line.contains("not allowed with this token"), "{line}");
}
