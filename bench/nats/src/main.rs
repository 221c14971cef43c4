//! Streams of Tidewire on NATS beside async-nats alone: publishing with acks, and consuming with
//! acks that are confirmed.
//!
//! ```sh
//! python tools/servers.py nats -- cargo run --release --manifest-path bench/nats/Cargo.toml -- 100000 5
//! ```
//!
//! One server, file storage, messages of 256 bytes, one connection for each contender. Contenders
//! take turns in each round; the table has the slowest round, the median and the fastest.

mod bare;
mod ours;

use std::env;
use std::process::Command;

/// Bytes of each message.
const SIZE: usize = 256;
/// Messages under way without an ack.
const WINDOW: usize = 4_096;
/// Messages of one call, and deliveries of one fetch.
const BATCH: usize = 1_000;

/// A workload of a contender: a name, and the rates of its rounds, in messages a second.
struct Row {
    name: &'static str,
    rates: Vec<f64>,
}

fn main() {
    let mut arguments =
        env::args().skip(1).map(|text| text.parse::<usize>().expect("a number of messages, and of rounds"));
    let (count, rounds) = (arguments.next().unwrap_or(100_000), arguments.next().unwrap_or(5));
    let url = env::var("TIDEWIRE_TEST_NATS").expect("python tools/servers.py nats -- sets TIDEWIRE_TEST_NATS");
    let names = [
        "tidewire: publish, calls of 1,000",
        "tidewire: publish, one a call",
        "async-nats: publish",
        "tidewire: fetch 1,000 and settle",
        "async-nats: fetch 1,000 and double_ack",
        "async-nats: fetch 1,000 and ack, unconfirmed",
    ];
    let mut rows = names.map(|name| Row { name, rates: Vec::new() });
    for round in 0..=rounds {
        let rates = measured(&url, round, count);
        // The first round warms up.
        if round > 0 {
            rows.iter_mut().zip(rates).for_each(|(row, rate)| row.rates.push(rate));
        }
    }
    report(&mut rows, count, rounds);
}

/// One round: the rates in the order of the rows.
fn measured(url: &str, round: usize, count: usize) -> [f64; 6] {
    let [calls, single, peer] = ["calls", "single", "peer"].map(|name| format!("{name}{round}"));
    let home = ours::Ours::new(url, &[&calls, &single]);
    let bare = bare::Bare::new(url, &peer);
    [
        home.publish_in_calls(&calls, count),
        home.publish_one_by_one(&single, count),
        bare.publish(&peer, count),
        home.consume(&calls, count),
        bare.consume(&peer, count, true),
        bare.consume(&peer, count, false),
    ]
}

fn report(rows: &mut [Row], count: usize, rounds: usize) {
    let machine = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = machine.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let rust =
        Command::new("rustc").arg("--version").output().map(|said| String::from_utf8_lossy(&said.stdout).into_owned());
    println!(
        "{} ({cores} cores), {}",
        model.map_or("unknown processor", |(_, name)| name),
        rust.unwrap_or_default().trim()
    );
    println!("nats-server {}, async-nats 0.51, one server with file storage, without sync", bare::server_version());
    println!(
        "{count} messages of {SIZE} bytes, {rounds} rounds after one that warms up, {WINDOW} under way, messages/s\n"
    );
    println!("| | slowest | median | fastest |\n|---|---:|---:|---:|");
    for row in rows {
        row.rates.sort_by(f64::total_cmp);
        let (first, middle, last) = (row.rates[0], row.rates[row.rates.len() / 2], row.rates[row.rates.len() - 1]);
        println!("| {} | {first:.0} | {middle:.0} | {last:.0} |", row.name);
    }
}
