//! Streams of a folder beside SQLite, fjall and a bare file: rates of appends that are synced
//! before they are acked, and how long an ack takes under load.
//!
//! ```sh
//! cargo run --release --manifest-path bench/log/Cargo.toml -- 400000 5    # messages of the rows with groups, and rounds
//! ```
//!
//! Messages of 256 bytes, a new folder for each run. Contenders take turns in each round; `TMPDIR`
//! says on which disk.

mod load;
mod logs;
mod ours;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use logs::{Bare, Fjall, Log, Sqlite};
use ours::Ours;

/// Bytes of each message.
pub const SIZE: usize = 256;
/// Messages of a group, which is synced as one.
const GROUP: usize = 1_000;
/// Messages that are offered each second, in groups of what a millisecond brings.
const OFFERED: [usize; 5] = [1_000, 10_000, 100_000, 500_000, 1_000_000];
/// For how long each rate is offered.
const LOAD: Duration = Duration::from_secs(2);

/// A workload of a contender: a name, and the rates of its rounds, in messages a second.
struct Row {
    name: &'static str,
    run: fn(&Path, usize) -> Duration,
    count: usize,
    rates: Vec<f64>,
}

fn main() {
    let mut arguments =
        env::args().skip(1).map(|text| text.parse::<usize>().expect("a number of messages, and of rounds"));
    let (count, rounds) = (arguments.next().unwrap_or(400_000), arguments.next().unwrap_or(5));
    about(count, rounds);
    let single = (count / 200).max(GROUP);
    rates(
        "messages/s",
        rounds,
        &mut [
            Row::new("tidewire, one at a time", single, |place, count| each(&mut Ours::new(place), count, 1)),
            Row::new("SQLite, one at a time", single, |place, count| each(&mut Sqlite::new(place), count, 1)),
            Row::new("fjall, one at a time", single, |place, count| each(&mut Fjall::new(place), count, 1)),
            Row::new("bare file, one at a time", single, |place, count| each(&mut Bare::new(place, count), count, 1)),
            Row::new("tidewire, one at a time, beside 10,000 consumers that wait", single, |place, count| {
                let mut ours = Ours::new(place);
                let waiting = ours.consumers(10_000);
                let spent = each(&mut ours, count, 1);
                drop(waiting);
                spent
            }),
            Row::new("tidewire, groups of 1,000", count, |place, count| each(&mut Ours::new(place), count, GROUP)),
            Row::new("tidewire, groups of 1,000, two under way", count, |place, count| {
                Ours::new(place).under_way(count, GROUP, 2)
            }),
            Row::new("SQLite, groups of 1,000", count, |place, count| each(&mut Sqlite::new(place), count, GROUP)),
            Row::new("fjall, groups of 1,000", count, |place, count| each(&mut Fjall::new(place), count, GROUP)),
            Row::new("bare file, groups of 1,000", count, |place, count| {
                each(&mut Bare::new(place, count), count, GROUP)
            }),
        ],
    );
    println!("\nFrom the time that a message is due to its ack, p50 / p99 in ms; median of {rounds} rounds\n");
    println!("| offered, messages/s |{}", OFFERED.map(|rate| format!(" {rate} |")).concat());
    println!("|---|{}", "---:|".repeat(OFFERED.len()));
    load::report("tidewire", rounds, |place, rate| Ours::new(place).load(rate, LOAD));
    load::report("SQLite, a transaction of what waits", rounds, |place, rate| {
        load::committing(Sqlite::new(place), rate, LOAD)
    });
    load::report("fjall, a batch of what waits", rounds, |place, rate| load::committing(Fjall::new(place), rate, LOAD));
    load::report("bare file, a write of what waits", rounds, |place, rate| {
        let room = rate * LOAD.as_secs() as usize;
        load::committing(Bare::new(place, room), rate, LOAD)
    });
}

/// Groups one after another: each is on disk before the next one.
fn each(log: &mut impl Log, count: usize, group: usize) -> Duration {
    let begun = Instant::now();
    for _ in 0..count / group {
        log.append(group);
    }
    begun.elapsed()
}

fn rates(unit: &str, rounds: usize, rows: &mut [Row]) {
    for round in 0..=rounds {
        for row in &mut *rows {
            let place = Place::new();
            let rate = row.count as f64 / (row.run)(&place.0, row.count).as_secs_f64();
            // The first round warms up.
            if round > 0 {
                row.rates.push(rate);
            }
        }
    }
    println!("| {unit} | slowest | median | fastest |\n|---|---:|---:|---:|");
    for row in rows {
        row.rates.sort_by(f64::total_cmp);
        let (first, middle, last) = (row.rates[0], row.rates[row.rates.len() / 2], row.rates[row.rates.len() - 1]);
        println!("| {} | {first:.0} | {middle:.0} | {last:.0} |", row.name);
    }
}

fn about(count: usize, rounds: usize) {
    let machine = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = machine.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(": "));
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let rust =
        Command::new("rustc").arg("--version").output().map(|said| String::from_utf8_lossy(&said.stdout).into_owned());
    println!(
        "{} ({cores} cores), load {}, {}",
        model.map_or("unknown processor", |(_, name)| name),
        load.split(' ').next().unwrap_or("unknown"),
        rust.unwrap_or_default().trim()
    );
    println!(
        "SQLite {} (WAL, synchronous=FULL), fjall 3.1, bare file in space that was reserved (pwrite + fdatasync)",
        rusqlite::version()
    );
    println!("{count} messages of {SIZE} bytes, {rounds} rounds after one that warms up\n");
}

impl Row {
    fn new(name: &'static str, count: usize, run: fn(&Path, usize) -> Duration) -> Self {
        Self { name, run, count, rates: Vec::new() }
    }
}

/// A new folder, which is gone at the end.
pub struct Place(pub PathBuf);

impl Place {
    pub fn new() -> Self {
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = env::temp_dir().join(format!("tidewire-bench-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}
