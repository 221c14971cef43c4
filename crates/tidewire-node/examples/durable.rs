//! Durable streams of a hub from Rust: one run of a workload, with its rate as JSON on standard
//! output: `cargo run --release -p tidewire-node --example durable -- tide://127.0.0.1:7420
//! pipelined 300000`.
//!
//! `tidewire bench streams` runs it beside Python and the peers. Messages have 256 bytes; an acked
//! message is on the disk.

use std::collections::VecDeque;
use std::time::Instant;

use tidewire_node::streams::{ConsumerOptions, Message, Stream, StreamOptions};
use tidewire_node::{Node, NodeOptions};

type Fault = Box<dyn std::error::Error + Send + Sync>;

const BYTES: usize = 256;
const WINDOW: usize = 4_096;
const GATHERED: usize = 100;

fn main() -> Result<(), Fault> {
    let usage = "give the URL of a hub, a workload (one, gathers, pipelined or consume), and a number of messages";
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, workload, count] = &arguments[..] else { return Err(usage.into()) };
    let count: usize = count.parse().map_err(|_| format!("count: {count:?} is not allowed: {usage}"))?;
    let node = Node::join(url, NodeOptions::named("bench")).wait()?;
    let stream = node.stream_with("orders", StreamOptions::new(["orders.>"])).wait()?;
    let mut begun = Instant::now();
    match workload.as_str() {
        "one" => publish_pipelined(&stream, count, 1)?,
        "gathers" => publish_pipelined(&stream, count, GATHERED)?,
        "pipelined" => pipelined(&stream, count)?,
        "consume" => {
            pipelined(&stream, count)?;
            begun = Instant::now();
            consume(&stream, count)?;
        }
        other => return Err(format!("workload: {other:?} is not allowed: {usage}").into()),
    }
    let spent = begun.elapsed();
    stream.delete().wait()?;
    println!("{{\"rate\": {}}}", count as f64 / spent.as_secs_f64());
    Ok(())
}

fn message() -> Message {
    Message::bytes("orders.a", [0; BYTES])
}

/// Groups of so many, each acked before the next.
fn publish_pipelined(stream: &Stream, count: usize, group: usize) -> Result<(), Fault> {
    for _ in 0..count / group {
        let mut acks: VecDeque<_> = (0..group).map(|_| stream.publish(message())).collect();
        while let Some(ack) = acks.pop_front() {
            ack.wait()?;
        }
    }
    Ok(())
}

fn pipelined(stream: &Stream, count: usize) -> Result<(), Fault> {
    let out = stream.publisher(WINDOW)?;
    for _ in 0..count {
        out.publish(message()).wait()?;
    }
    Ok(out.flush().wait()?)
}

/// Each with an ack of its own.
fn consume(stream: &Stream, count: usize) -> Result<(), Fault> {
    let mut consumer = stream.consumer("c", ConsumerOptions::all()).wait()?;
    for _ in 0..count {
        consumer.next_blocking()?.ack().wait()?;
    }
    Ok(consumer.close().wait()?)
}
