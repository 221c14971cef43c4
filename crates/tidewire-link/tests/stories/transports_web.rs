//! WebSockets that are not ours: a client as browsers have it, and such as break the rules.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use tidewire_proto::generated::limits;
use tidewire_proto::wire::{FieldsWriter, Flags, Frame, Hello, Kind, read, write};
use tungstenite::protocol::CloseFrame;
use tungstenite::protocol::frame::Frame as WebFrame;
use tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tungstenite::{ClientRequestBuilder, Error, Message, WebSocket, client};

use crate::support::{Answer, Echo, Node, Place, SOON};

fn open() -> Place {
    Place::open(&"ws://127.0.0.1:0".parse().expect("it is an address"))
}

fn connect(place: &Place) -> TcpStream {
    let socket = TcpStream::connect(("127.0.0.1", place.port())).expect("the hub listens");
    socket.set_read_timeout(Some(SOON)).expect("the time is not 0");
    socket
}

fn web(place: &Place, protocols: &[&str]) -> Result<WebSocket<TcpStream>, String> {
    let uri = format!("ws://127.0.0.1:{}/any/path", place.port()).parse().expect("it is a URL");
    let request =
        protocols.iter().fold(ClientRequestBuilder::new(uri), |request, name| request.with_sub_protocol(*name));
    match client(request, connect(place)) {
        Ok((socket, response)) => {
            assert_eq!(response.headers()["Sec-WebSocket-Protocol"], "tidewire.v1");
            Ok(socket)
        }
        Err(error) => Err(error.to_string()),
    }
}

fn hello(name: &str) -> Vec<u8> {
    let (mut fields, mut frame) = (Vec::new(), Vec::new());
    FieldsWriter::new(&mut fields).add("name", name.as_bytes()).expect("there is room");
    let written = write(&mut frame, Kind::Hello, Flags::URGENT, 0, |out| Hello::put(1, 1, out), &fields);
    written.expect("there is room");
    frame
}

fn ping(id: u64) -> Vec<u8> {
    let mut frame = Vec::new();
    write(&mut frame, Kind::Ping, Flags::URGENT, id, |_| Ok(()), &[]).expect("there is room");
    frame
}

/// The frames of the next binary message.
fn message(socket: &mut WebSocket<TcpStream>) -> Vec<(Kind, u64)> {
    loop {
        match socket.read().expect("the hub says something") {
            Message::Binary(bytes) => return kinds(&bytes),
            Message::Ping(_) | Message::Pong(_) => {}
            other => panic!("{other:?} is no binary message"),
        }
    }
}

fn kinds(mut bytes: &[u8]) -> Vec<(Kind, u64)> {
    let mut kinds = Vec::new();
    while !bytes.is_empty() {
        let Ok(Some(Frame { kind, id, bytes: whole, .. })) = read(bytes, 1 << 20) else { panic!("frames are whole") };
        kinds.push((kind, id));
        bytes = &bytes[whole.len()..];
    }
    kinds
}

/// Pongs until so many came, however they are put into messages.
fn pongs(socket: &mut WebSocket<TcpStream>, count: usize) -> Vec<u64> {
    let mut ids = Vec::new();
    while ids.len() < count {
        ids.extend(message(socket).into_iter().filter(|(kind, _)| *kind == Kind::Pong).map(|(_, id)| id));
    }
    ids
}

fn joined(place: &Place, name: &str) -> WebSocket<TcpStream> {
    let mut socket = web(place, &["other.v2", "tidewire.v1"]).expect("the hub takes it");
    socket.send(Message::binary(hello(name))).expect("the hub reads");
    assert_eq!(message(&mut socket)[0].0, Kind::Welcome);
    socket
}

/// How the hub closes, and what it logs.
fn closed(socket: &mut WebSocket<TcpStream>) -> Option<CloseFrame> {
    loop {
        match socket.read() {
            Ok(Message::Close(frame)) => return frame,
            Ok(_) => {}
            Err(Error::ConnectionClosed) => return None,
            Err(error) => panic!("{error}"),
        }
    }
}

fn fragment(bytes: &[u8], kind: Data, last: bool) -> Message {
    Message::Frame(WebFrame::message(bytes.to_vec(), OpCode::Data(kind), last))
}

#[test]
fn a_client_with_one_frame_in_each_message_is_served() {
    let place = open();
    let mut socket = joined(&place, "browser");
    for id in 1..=100 {
        socket.send(Message::binary(ping(id))).expect("the hub reads");
    }
    assert_eq!(pongs(&mut socket, 100), (1..=100).collect::<Vec<u64>>());
}

#[test]
fn a_message_may_hold_many_frames_and_come_in_fragments() {
    let place = open();
    let mut socket = joined(&place, "browser");
    let many: Vec<u8> = (1..=1_000).flat_map(ping).collect();
    socket.send(Message::binary(many)).expect("the hub reads");
    assert_eq!(pongs(&mut socket, 1_000).len(), 1_000);
    let frame = ping(7);
    socket.send(fragment(&frame[..5], Data::Binary, false)).expect("the hub reads");
    socket.send(Message::Ping(b"between".to_vec().into())).expect("the hub reads");
    socket.send(fragment(&frame[5..], Data::Continue, true)).expect("the hub reads");
    assert_eq!(pongs(&mut socket, 1), [7]);
}

#[test]
fn pings_of_the_websocket_are_answered() {
    let place = open();
    let mut socket = web(&place, &["tidewire.v1"]).expect("the hub takes it");
    socket.send(Message::Ping(b"there?".to_vec().into())).expect("the hub reads");
    assert_eq!(socket.read().expect("the hub answers"), Message::Pong(b"there?".to_vec().into()));
}

#[test]
fn messages_that_break_a_rule_are_refused_and_nobody_else_notices() {
    let place = open();
    let server = Node::join(&place.address, "server");
    let _kept = server.subscribe("svc.echo", Echo);
    let half = ping(1)[..9].to_vec();
    let limit = limits::LINK_FRAME_BYTES.default as usize;
    for (breach, code, says) in [
        (Message::text("hello"), CloseCode::Unsupported, "text"),
        (Message::binary(half), CloseCode::Policy, "whole frames"),
        (Message::binary([ping(1), vec![9, 0]].concat()), CloseCode::Policy, "whole frames"),
        (Message::binary(vec![0; limit * 2]), CloseCode::Size, "too long"),
        (fragment(&ping(1), Data::Continue, true), CloseCode::Protocol, ""),
    ] {
        let mut socket = joined(&place, "browser");
        let _ = socket.send(breach);
        if let Some(frame) = closed_or_reset(&mut socket) {
            assert_eq!(frame.code, code);
            assert!(frame.reason.contains(says), "{frame:?}");
        }
        assert!(place.logs("the link of \"browser\" is closed").contains(says));
        assert_eq!(server.ask("svc.echo", b"still here"), Answer::Reply(b"still here".to_vec()));
    }
}

/// Where the hub closes before it has read all, the system may drop what it said.
fn closed_or_reset(socket: &mut WebSocket<TcpStream>) -> Option<CloseFrame> {
    loop {
        match socket.read() {
            Ok(Message::Close(frame)) => return frame,
            Ok(_) => {}
            Err(Error::Io(_) | Error::Protocol(_)) => return None,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Clients mask, hubs do not.
#[test]
fn a_frame_without_a_mask_is_refused() {
    let place = open();
    let mut socket = joined(&place, "browser");
    let frame = ping(1);
    let raw = [&[0x82, frame.len() as u8][..], &frame].concat();
    socket.get_mut().write_all(&raw).expect("the hub reads");
    assert_eq!(closed(&mut socket).expect("it says why").code, CloseCode::Protocol);
    place.logs("the link of \"browser\" is closed");
}

/// Errors within whole messages are reported by the protocol, as over TCP.
#[test]
fn a_wrong_frame_is_answered_with_an_error_and_the_end() {
    let place = open();
    let mut socket = joined(&place, "browser");
    let mut frame = ping(1);
    frame[4] = 99;
    socket.send(Message::binary(frame)).expect("the hub reads");
    assert_eq!(message(&mut socket).last().expect("it says why").0, Kind::Error);
    place.logs("99");
}

#[test]
fn a_client_that_says_goodbye_to_the_websocket_is_answered() {
    let place = open();
    let mut socket = joined(&place, "browser");
    socket.close(None).expect("the hub reads");
    closed(&mut socket);
}

#[test]
fn a_client_of_another_websocket_protocol_is_told_in_http() {
    let place = open();
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let version = "Sec-WebSocket-Version: 13\r\n";
    let long = format!("GET / HTTP/1.1\r\nHost: hub\r\nX: {}", "a".repeat(16 * 1024));
    for (request, status, says) in [
        ("GET / HTTP/1.1\r\nHost: hub\r\n\r\n".to_owned(), "426 Upgrade Required", "this is a Tidewire hub"),
        ("POST / HTTP/1.1\r\nHost: hub\r\n\r\n".to_owned(), "400 Bad Request", "this is a Tidewire hub"),
        (format!("GET / HTTP/1.1\r\nHost: hub\r\n{upgrade}\r\n"), "426 Upgrade Required", "Sec-WebSocket-Version: 13"),
        (format!("GET / HTTP/1.1\r\nHost: hub\r\n{upgrade}{version}\r\n"), "400 Bad Request", "must offer tidewire.v1"),
        (
            format!("GET / HTTP/1.1\r\nHost: hub\r\n{upgrade}{version}Sec-WebSocket-Protocol: mqtt\r\n\r\n"),
            "400 Bad Request",
            "must offer tidewire.v1",
        ),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), "400 Bad Request", "HTTP"),
        (long, "431 Request Header Fields Too Large", "16 KiB"),
    ] {
        let mut socket = connect(&place);
        socket.write_all(request.as_bytes()).expect("the hub reads");
        let mut answer = vec![0; 4_096];
        let length = socket.read(&mut answer).expect("the hub answers");
        let answer = String::from_utf8_lossy(&answer[..length]);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer}");
        assert!(answer.contains(says), "{answer}");
        place.logs("a connection was turned away: it is no WebSocket of a node");
    }
    assert!(web(&place, &[]).expect_err("no protocol is offered").contains("400"));
}
