//! Spawning and stopping leaves nothing behind. Alone in its process, because it counts what the
//! process holds.

// A test may let a channel grow: what goes through it is counted.
#![allow(clippy::disallowed_methods, missing_docs)]

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use tidewire_engine::{ActorRef, Engine, Stop};

const THREADS: usize = 2;
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn ten_thousand_cycles_of_spawning_and_stopping_leave_nothing_behind() {
    let engine = Engine::builder().threads(THREADS).build().expect("an engine");
    let handled = Arc::new(AtomicU64::new(0));
    let cycle = || {
        let refs: Vec<ActorRef<u8>> = (0..5)
            .map(|_| {
                let handled = Arc::clone(&handled);
                let count = move |_: u8, _: &mut tidewire_engine::Context<'_, u8>| {
                    handled.fetch_add(1, SeqCst);
                    Ok(())
                };
                engine.spawn_fn(count).unwrap()
            })
            .collect();
        for actor in &refs {
            (0..3).for_each(|n| {
                actor.tell(n).unwrap();
            });
        }
        for actor in refs {
            let ledger = actor.stop(Stop::drain(PATIENCE)).wait().unwrap().ledger;
            assert_eq!((ledger.accepted, ledger.handled), (3, 3));
        }
    };
    all_threads_begin(&engine, THREADS);
    (0..100).for_each(|_| cycle());
    let (memory, threads, files) = usage();
    (0..10_000).for_each(|_| cycle());
    assert_eq!(handled.load(SeqCst), 10_100 * 15);
    assert_eq!(engine.actors(), 0);
    let (memory_after, threads_after, files_after) = usage();
    assert!(threads_after <= threads, "threads grew from {threads} to {threads_after}");
    assert!(files_after <= files, "open files grew from {files} to {files_after}");
    let grown = memory_after.saturating_sub(memory);
    assert!(grown < 8 << 20, "memory grew by {grown} bytes in 10,000 cycles");
}

/// Threads are started when they are needed: all that there may be meet in their handlers.
fn all_threads_begin(engine: &Engine, threads: usize) {
    let meeting = Arc::new(Barrier::new(threads));
    let meet = || {
        let meeting = Arc::clone(&meeting);
        let wait = move |_: u8, _: &mut tidewire_engine::Context<'_, u8>| {
            meeting.wait();
            Ok(())
        };
        engine.spawn_fn(wait).unwrap()
    };
    let refs: Vec<ActorRef<u8>> = (0..threads).map(|_| meet()).collect();
    for actor in &refs {
        actor.tell(0).unwrap();
    }
    for actor in refs {
        assert_eq!(actor.stop(Stop::drain(PATIENCE)).wait().unwrap().ledger.handled, 1);
    }
}

/// Resident bytes, threads and open files of this process.
fn usage() -> (u64, usize, usize) {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let resident = pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096;
    let count = |path: &str| std::fs::read_dir(path).unwrap().count();
    (resident, count("/proc/self/task"), count("/proc/self/fd"))
}
