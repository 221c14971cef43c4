//! The log of a folder beside a bare file: events of 256 B, each group synced before it is acked.
//!
//! `cargo bench -p tidewire-embedded` prints events per second, median and spread of several runs. `TMPDIR` says on which disk.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidewire_backend::home::{ConsumerSettings, Fetch, Home as _, NewMessage, Start, StreamSettings, Streams as _};
use tidewire_embedded::disk::Real;
use tidewire_embedded::folder::{Folder, Sizes};
use tidewire_embedded::{Embedded, Options, open};
use tidewire_proto::subject::{Pattern, Subject};

const RUNS: usize = 5;
const BYTES: usize = 256;

fn main() {
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("{BYTES} B events, {RUNS} runs, {cores} cores; events/s: median (min to max)");
    report("bare file, pwrite + fdatasync, one at a time", 1, 2_000, bare);
    report("folder, one at a time", 1, 2_000, folder);
    report("home, one at a time (through its thread)", 1, 2_000, home_one);
    report("home, one at a time, beside 10,000 consumers that wait", 1, 2_000, home_among_consumers);
    report("bare file, groups of 1,000", 1_000, 400_000, bare);
    report("folder, groups of 1,000", 1_000, 400_000, folder);
    report("home, groups of 1,000, two under way", 1_000, 400_000, home);
}

fn report(what: &str, group: usize, count: usize, run: fn(&Path, usize, usize) -> Duration) {
    let mut rates: Vec<f64> = (0..=RUNS)
        .map(|number| {
            let place = Place::new(number);
            count as f64 / run(&place.0, group, count).as_secs_f64()
        })
        .skip(1)
        .collect();
    rates.sort_by(f64::total_cmp);
    println!("{what}: {:.0} ({:.0} to {:.0})", rates[RUNS / 2], rates[0], rates[RUNS - 1]);
}

struct Place(PathBuf);

impl Place {
    fn new(number: usize) -> Self {
        let path = std::env::temp_dir().join(format!("tidewire-bench-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn bare(path: &Path, group: usize, count: usize) -> Duration {
    let file = OpenOptions::new().create_new(true).write(true).open(path.join("bare")).expect("a new file");
    let bytes = vec![7; BYTES * group];
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, (BYTES * count) as u64).expect("space");
    let begun = Instant::now();
    for number in 0..count / group {
        file.write_all_at(&bytes, (number * bytes.len()) as u64).expect("space");
        file.sync_data().expect("a disk");
    }
    begun.elapsed()
}

fn messages(group: usize) -> Vec<NewMessage> {
    let subject = Subject::new("orders.created").expect("a subject");
    let payload = Bytes::from(vec![7; BYTES]);
    (0..group).map(|_| NewMessage::new(subject.clone(), payload.clone())).collect()
}

fn settings() -> StreamSettings {
    StreamSettings::new("orders", vec![Pattern::new("orders.>").expect("a pattern")])
}

fn folder(path: &Path, group: usize, count: usize) -> Duration {
    let disk = Real::new(path).expect("a folder");
    let mut folder = Folder::open(Box::new(disk), Sizes::default(), 1, 1).expect("a new folder");
    folder.create_stream(settings(), 1).expect("a new stream");
    folder.commit(1).expect("a disk");
    let messages = messages(group);
    let begun = Instant::now();
    for now_us in 0..count / group {
        let acks = folder.publish("orders", &messages, false, now_us as u64).expect("the stream is there");
        assert!(acks.iter().all(Result::is_ok));
        folder.commit(now_us as u64).expect("a disk");
    }
    begun.elapsed()
}

fn home_one(path: &Path, group: usize, count: usize) -> Duration {
    through_home(path, group, count, 1)
}

/// Consumers of another stream, each with a fetch that waits and a delivery that is out.
fn home_among_consumers(path: &Path, group: usize, count: usize) -> Duration {
    let home = open(path, Options::default()).expect("a new folder");
    let subjects = vec![Pattern::new("idle.>").expect("a pattern")];
    home.create_stream(StreamSettings::new("idle", subjects)).wait().expect("a new stream");
    let made: Vec<_> = (0..10_000)
        .map(|number| {
            let settings = ConsumerSettings { start: Start::All, ..ConsumerSettings::new(&format!("c{number}")) };
            home.create_consumer("idle", settings)
        })
        .collect();
    made.into_iter().for_each(|made| drop(made.wait().expect("a new consumer")));
    let message = NewMessage::new(Subject::new("idle.x").expect("a subject"), vec![7; BYTES]);
    drop(home.publish("idle", vec![message], false).wait().expect("the stream is there"));
    let fetch = |wait_us| Fetch { max_messages: 1, max_bytes: 1, wait_us };
    let names = || (0..10_000).map(|number| format!("c{number}"));
    names().for_each(|name| assert_eq!(home.fetch("idle", &name, fetch(0)).wait().expect("there is one").len(), 1));
    let waiting: Vec<_> = names().map(|name| home.fetch("idle", &name, fetch(3_600_000_000))).collect();
    home.create_stream(settings()).wait().expect("a new stream");
    let spent = publish_all(&home, group, count, 1);
    drop(waiting);
    home.close().wait().expect("it closes");
    spent
}

fn home(path: &Path, group: usize, count: usize) -> Duration {
    through_home(path, group, count, 2)
}

fn through_home(path: &Path, group: usize, count: usize, under_way: usize) -> Duration {
    let home = open(path, Options::default()).expect("a new folder");
    home.create_stream(settings()).wait().expect("a new stream");
    let spent = publish_all(&home, group, count, under_way);
    home.close().wait().expect("it closes");
    spent
}

fn publish_all(home: &Embedded, group: usize, count: usize, under_way: usize) -> Duration {
    let begun = Instant::now();
    let mut waiting = std::collections::VecDeque::new();
    for _ in 0..count / group {
        waiting.push_back(home.publish("orders", messages(group), false));
        if waiting.len() >= under_way {
            let acks = waiting.pop_front().expect("there is one").wait().expect("the stream is there");
            assert!(acks.iter().all(Result::is_ok));
        }
    }
    waiting.into_iter().for_each(|answer| drop(answer.wait().expect("the stream is there")));
    begun.elapsed()
}
