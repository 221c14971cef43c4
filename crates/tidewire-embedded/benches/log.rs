//! The log of a folder beside a bare file: events of 256 B, each group synced before it is acked.
//!
//! `cargo bench -p tidewire-embedded` prints events per second, median and spread of several runs. `TMPDIR` says on which disk.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use bytes::Bytes;
use tidewire_backend::home::{Home as _, NewMessage, StreamSettings, Streams as _};
use tidewire_embedded::disk::Real;
use tidewire_embedded::folder::{Folder, Sizes};
use tidewire_embedded::{Options, open};
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
    report("bare file, groups of 1,000", 1_000, 400_000, bare);
    report("folder, groups of 1,000", 1_000, 400_000, folder);
    report("home, groups of 1,000, two under way", 1_000, 400_000, home);
}

fn report(what: &str, group: usize, count: usize, run: fn(&Path, usize, usize)) {
    let mut rates: Vec<f64> = (0..=RUNS)
        .map(|number| {
            let place = Place::new(number);
            let begun = Instant::now();
            run(&place.0, group, count);
            count as f64 / begun.elapsed().as_secs_f64()
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

fn bare(path: &Path, group: usize, count: usize) {
    let file = OpenOptions::new().create_new(true).write(true).open(path.join("bare")).expect("a new file");
    let bytes = vec![7; BYTES * group];
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, (BYTES * count) as u64).expect("space");
    for number in 0..count / group {
        file.write_all_at(&bytes, (number * bytes.len()) as u64).expect("space");
        file.sync_data().expect("a disk");
    }
}

fn messages(group: usize) -> Vec<NewMessage> {
    let subject = Subject::new("orders.created").expect("a subject");
    let payload = Bytes::from(vec![7; BYTES]);
    (0..group).map(|_| NewMessage::new(subject.clone(), payload.clone())).collect()
}

fn settings() -> StreamSettings {
    StreamSettings::new("orders", vec![Pattern::new("orders.>").expect("a pattern")])
}

fn folder(path: &Path, group: usize, count: usize) {
    let disk = Real::new(path).expect("a folder");
    let mut folder = Folder::open(Box::new(disk), Sizes::default(), 1, 1).expect("a new folder");
    folder.create_stream(settings(), 1).expect("a new stream");
    folder.commit(1).expect("a disk");
    let messages = messages(group);
    for now_us in 0..count / group {
        let acks = folder.publish("orders", &messages, false, now_us as u64).expect("the stream is there");
        assert!(acks.iter().all(Result::is_ok));
        folder.commit(now_us as u64).expect("a disk");
    }
}

fn home_one(path: &Path, group: usize, count: usize) {
    through_home(path, group, count, 1);
}

fn home(path: &Path, group: usize, count: usize) {
    through_home(path, group, count, 2);
}

fn through_home(path: &Path, group: usize, count: usize, under_way: usize) {
    let home = open(path, Options::default()).expect("a new folder");
    home.create_stream(settings()).wait().expect("a new stream");
    let mut waiting = std::collections::VecDeque::new();
    for _ in 0..count / group {
        waiting.push_back(home.publish("orders", messages(group), false));
        if waiting.len() >= under_way {
            let acks = waiting.pop_front().expect("there is one").wait().expect("the stream is there");
            assert!(acks.iter().all(Result::is_ok));
        }
    }
    waiting.into_iter().for_each(|answer| drop(answer.wait().expect("the stream is there")));
    home.close().wait().expect("it closes");
}
