//! A node that does not read for a while: what waits for it is written when it reads again, and
//! nothing else has to happen first. Alone in its process, because it keeps the machine busy, and
//! other stories have heartbeats of 50 ms.

#[path = "stories/support/certificates.rs"]
mod certificates;

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto::ring};
use tidewire_link::{Address, HubHandle, HubOptions, Listening, Runtime};
use tidewire_proto::wire::{FieldsWriter, Flags, Hello, Kind, read, write};
use tungstenite::{ClientRequestBuilder, Message, client};

use certificates::Authority;

/// Far longer than anything here takes.
const SOON: Duration = Duration::from_secs(30);

/// The answers to these are more than what the sockets hold.
const PINGS: u64 = 1_000_000;
const BATCH: u64 = 2_000;

/// A hub that listens at one place.
struct Place {
    address: Address,
    _listens: (HubHandle, Runtime, Listening),
}

impl Place {
    fn open(address: &Address) -> Self {
        let runtime = Runtime::start("hub").expect("a thread can be started");
        let hub = HubHandle::new(&runtime, HubOptions::new("hub"), |_| {});
        let listening = hub.listen(address).unwrap_or_else(|error| panic!("{error}"));
        Self { address: listening.address.clone(), _listens: (hub, runtime, listening) }
    }

    fn port(&self) -> u16 {
        match &self.address {
            Address::Tcp { port, .. } | Address::Tls { port, .. } | Address::Ws { port, .. } => *port,
            Address::Unix(_) => panic!("a Unix socket has no port"),
        }
    }
}

fn hello() -> Vec<u8> {
    let (mut fields, mut frame) = (Vec::new(), Vec::new());
    let mut writer = FieldsWriter::new(&mut fields);
    writer.add("name", b"slow").expect("there is room");
    // The hub's own pings would make it write again.
    writer.add("heartbeat-ms", b"3600000").expect("there is room");
    write(&mut frame, Kind::Hello, Flags::URGENT, 0, |out| Hello::put(1, 1, out), &fields).expect("there is room");
    frame
}

fn pings(from: u64) -> Vec<u8> {
    let mut frames = Vec::new();
    for id in from..from + BATCH {
        write(&mut frames, Kind::Ping, Flags::URGENT, id, |_| Ok(()), &[]).expect("there is room");
    }
    frames
}

/// Sends everything, and only then reads, until all pings are answered.
fn send_all_and_then_read(mut send: impl FnMut(Vec<u8>), mut receive: impl FnMut(&mut Vec<u8>)) {
    send(hello());
    for batch in 0..PINGS / BATCH {
        send(pings(batch * BATCH + 1));
    }
    let (mut bytes, mut answered) = (Vec::new(), 0);
    while answered < PINGS {
        receive(&mut bytes);
        let mut at = 0;
        while let Some(frame) = read(&bytes[at..], 1 << 20).expect("the hub sends frames") {
            at += frame.bytes.len();
            if frame.kind == Kind::Pong {
                answered += 1;
                assert_eq!(frame.id, answered, "answers come in order");
            }
        }
        bytes.drain(..at);
    }
}

fn over_stream(mut stream: impl Read + Write) {
    let stream = std::cell::RefCell::new(&mut stream);
    let send = |frames: Vec<u8>| stream.borrow_mut().write_all(&frames).expect("the hub reads");
    let receive = |into: &mut Vec<u8>| {
        let mut bytes = vec![0; 65_536];
        let count = stream.borrow_mut().read(&mut bytes).expect("the hub writes what waits");
        assert!(count > 0, "the hub does not close");
        into.extend_from_slice(&bytes[..count]);
    };
    send_all_and_then_read(send, receive);
}

fn connect(place: &Place) -> TcpStream {
    let socket = TcpStream::connect(("localhost", place.port())).expect("the hub listens");
    socket.set_read_timeout(Some(SOON)).expect("the time is not 0");
    socket
}

fn open(url: &str) -> Place {
    Place::open(&url.parse().expect("it is an address"))
}

#[test]
fn over_tcp_what_waits_is_written() {
    over_stream(connect(&open("tide://localhost:0")));
}

#[test]
fn over_tls_what_waits_is_written() {
    let authority = Authority::new();
    let address: Address = "tide+tls://localhost:0".parse().expect("it is an address");
    let place = Place::open(&address.with_tls(authority.signed_for("localhost")).expect("it has TLS"));
    let mut roots = RootCertStore::empty();
    let file = File::open(authority.trusted().ca.expect("it has a file")).expect("it is there");
    roots.add(CertificateDer::from_pem_reader(file).expect("it is PEM")).expect("it is a CA");
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("there are some");
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    let name = "localhost".try_into().expect("it is a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("it can begin");
    over_stream(StreamOwned::new(connection, connect(&place)));
}

#[test]
fn over_a_websocket_what_waits_is_written() {
    let place = open("ws://localhost:0");
    let uri = format!("ws://localhost:{}", place.port()).parse().expect("it is a URL");
    let request = ClientRequestBuilder::new(uri).with_sub_protocol("tidewire.v1");
    let (socket, _) = client(request, connect(&place)).expect("the hub takes it");
    let socket = std::cell::RefCell::new(socket);
    let send = |frames| socket.borrow_mut().send(Message::binary(frames)).expect("the hub reads");
    let receive = |into: &mut Vec<u8>| match socket.borrow_mut().read().expect("the hub writes what waits") {
        Message::Binary(message) => into.extend_from_slice(&message),
        other => panic!("{other:?} is no binary message"),
    };
    send_all_and_then_read(send, receive);
}
