//! What happens between two looks of the thread of the links, or of a loop.

mod transports_support;

use std::io::{Read, Write};
use std::net::TcpStream;

use tidewire_link::Address;
use tidewire_proto::wire::{FieldsWriter, Flags, Hello, Kind, read, write};

use transports_support::{Place, SOON};

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
