//! Peak memory of a node while the value of a long payload is made. The node is a separate process,
//! so that its peak is its own.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidewire_node::values::{Array, Bytes, Value};
use tidewire_node::{Client, Failure, Node, NodeOptions, Service};

const MIB: usize = 1 << 20;
const LENGTH: usize = 64 * MIB;
/// Where the process that receives finds its hub.
const HUB: &str = "TIDEWIRE_STORY_HUB";

fn bytes() -> Bytes {
    Bytes(vec![7; LENGTH])
}

/// The bytes as a `Vec<u8>`.
fn octets() -> Vec<u8> {
    bytes().0
}

fn two_of_bytes() -> Vec<Bytes> {
    vec![Bytes(vec![7; LENGTH / 2]), Bytes(vec![8; LENGTH / 2])]
}

fn text() -> String {
    "\u{e9}".repeat(LENGTH / 2)
}

fn numbers() -> Vec<f64> {
    (0..LENGTH / 9).map(|number| number as f64 + 0.5).collect()
}

fn texts() -> Vec<String> {
    vec!["y".repeat(1_020); LENGTH / 1_024]
}

fn long_texts() -> Vec<String> {
    vec!["z".repeat(LENGTH / 8); 8]
}

fn array() -> Value {
    let (dtype, shape) = ("<f8".to_owned(), vec![(LENGTH / 8) as u64]);
    Value::Array(Array { dtype, shape, is_fortran: false, data: vec![1; LENGTH] })
}

/// Current memory of the process, or its peak since the last reset.
fn held(what: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = status.lines().find(|line| line.starts_with(what)).expect("it is told");
    let kibibytes = line.split_whitespace().nth(1).and_then(|number| number.parse::<usize>().ok());
    kibibytes.expect("it is a number") * 1_024
}

/// Resets the peak to the current memory of the process, and returns it.
fn forget_peak() -> usize {
    fs::write("/proc/self/clear_refs", "5").expect("this is Linux");
    held("VmRSS")
}

/// A method that takes a value, and one that fetches it; they answer with the peak, and whether the
/// value is the one that was sent.
fn receives<T>(service: Service, source: &Client, name: &'static str, made: fn() -> T) -> Service
where
    T: DeserializeOwned + PartialEq + Send + 'static,
{
    let source = source.clone();
    service
        // The expected value is made only after the peak was read.
        .method(&format!("take_{name}"), &["value"], move |_, value: T| {
            let peak = held("VmHWM");
            async move { Ok((peak, value == made())) }
        })
        .method(&format!("fetch_{name}"), &[], move |_, ()| {
            let fetched = source.call::<T>(name, &());
            async move {
                let value = fetched.await.map_err(|error| Failure::new("story:Failed", error.to_string()))?;
                Ok((held("VmHWM"), value == made()))
            }
        })
}

/// The process that receives: nothing happens here unless it was started for that.
#[test]
fn receiver() {
    let Ok(url) = env::var(HUB) else { return };
    let node = Node::join(&url, NodeOptions::named("receiver")).wait().expect("it joins");
    let source = node.client("source");
    let service = Service::new("receiver").method("forget", &[], |_, ()| async move { Ok(forget_peak()) });
    let service = receives(service, &source, "bytes", bytes);
    let service = receives(service, &source, "two_of_bytes", two_of_bytes);
    let service = receives(service, &source, "text", text);
    let service = receives(service, &source, "numbers", numbers);
    let service = receives(service, &source, "texts", texts);
    let service = receives(service, &source, "long_texts", long_texts);
    let service = receives(service, &source, "array", array);
    let service = receives(service, &source, "octets", octets);
    node.serve(service).wait().expect("it serves");
    source.call::<()>("is_ready", &()).wait().expect("it is told");
    // The process ends when its parent closes the pipe.
    let _ = std::io::stdin().read(&mut [0]);
}

struct Receiver(Child);

impl Receiver {
    fn started(hub: &Node) -> Self {
        let program = env::current_exe().expect("it is known");
        let mut command = Command::new(program);
        command.args(["receiver", "--exact", "--nocapture"]).env(HUB, &hub.urls()[0]);
        Self(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts"))
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Growth of the receiver of a payload, in lengths of the payload.
fn grown<T: Serialize + 'static>(name: &'static str, made: fn() -> T, is_caller: bool) -> f64 {
    let hub = Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub")).wait().expect("a hub listens");
    let (ready, is_ready) = sync_channel(1);
    let source = Service::new("source").method(name, &[], move |_, ()| async move { Ok(made()) });
    let source = source.method("is_ready", &[], move |_, ()| {
        let _ = ready.send(());
        async move { Ok(()) }
    });
    hub.serve(source).wait().expect("it serves");
    let _receiver = Receiver::started(&hub);
    is_ready.recv_timeout(Duration::from_secs(30)).expect("it starts in time");
    let client = hub.client("receiver");
    let before: usize = client.call("forget", &()).wait().expect("it forgets");
    let received = if is_caller {
        client.call(&format!("fetch_{name}"), &())
    } else {
        client.call(&format!("take_{name}"), &BTreeMap::from([("value", made())]))
    };
    let (peak, is_same): (usize, bool) = received.wait().expect("it is received");
    assert!(is_same, "{name}: another value came");
    (peak - before) as f64 / LENGTH as f64
}

fn is_held_once<T: Serialize + 'static>(name: &'static str, made: fn() -> T) {
    let (service, caller) = (grown(name, made, false), grown(name, made, true));
    println!("64 MiB, {name}: service {service:.2}, caller {caller:.2}");
    assert!(service <= 1.25, "{name}: the service held {service:.2} of it");
    assert!(caller <= 1.25, "{name}: the caller held {caller:.2} of it");
}

#[test]
fn bytes_are_held_once() {
    is_held_once("bytes", bytes);
    is_held_once("two_of_bytes", two_of_bytes);
    is_held_once("octets", bytes);
}

#[test]
fn text_is_held_once() {
    is_held_once("text", text);
    is_held_once("texts", texts);
    is_held_once("long_texts", long_texts);
}

#[test]
fn numbers_are_held_once() {
    is_held_once("numbers", numbers);
    is_held_once("array", array);
}
