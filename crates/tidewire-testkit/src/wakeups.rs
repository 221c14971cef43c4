//! Wakeups: a change by one connection wakes the connections that wait for it, and is stored as an
//! event.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use tidewire_backend::State;

use crate::{EmptyStore, join, lease, plan, start, store_all};

/// Longer than any test may take.
const LONG_US: u64 = 3_600_000_000;

pub fn changes_of_others_end_a_wait(place: &EmptyStore) {
    let (mut store, mut other) = (place.connect(), place.connect());
    assert!(store.wait(LONG_US).unwrap(), "the first returns at once");
    while store.wait(0).unwrap() {}
    let id = start(&mut store, &plan("pi", 20));
    assert!(!store.wait(0).unwrap(), "what a connection did itself is no news");
    other.note(id, "hello").unwrap();
    assert!(store.wait(LONG_US).unwrap(), "what came before the call is seen");
    while store.wait(0).unwrap() {}
    let began = Instant::now();
    assert!(!store.wait(30_000).unwrap());
    assert!(began.elapsed() >= Duration::from_millis(30), "{:?}", began.elapsed());
}

pub fn a_wait_is_woken_by_each_change(place: &EmptyStore) {
    let mut store = place.connect();
    let id = start(&mut store, &plan("pi", 1_000_000));
    let barrier = Barrier::new(2);
    let expected = [(1, State::Running), (1, State::Paused), (1, State::Running), (1, State::Cancelled)];
    thread::scope(|scope| {
        let barrier = &barrier;
        scope.spawn(move || {
            let mut store = place.connect();
            for expected in expected {
                barrier.wait();
                loop {
                    let summary = store.status(id).unwrap().summary;
                    if (summary.done, summary.state) == expected {
                        break;
                    }
                    assert!(store.wait(LONG_US).unwrap());
                }
                barrier.wait();
            }
        });
        let worker = join(&mut store, id);
        for (_, state) in expected {
            barrier.wait();
            if store.status(id).unwrap().summary.done == 0 {
                let lease = lease(store.claim(id, worker, &[]).unwrap());
                store_all(&mut store, id, lease);
            }
            store.transition(id, state, "").unwrap();
            barrier.wait();
        }
    });
}

pub fn notes_are_events(place: &EmptyStore) {
    let mut store = place.connect();
    let id = start(&mut store, &plan("pi", 1));
    store.note(id, "worker 3 runs other code\0, é").unwrap();
    let events = place.connect().events(id).unwrap();
    let last = events.last().unwrap();
    assert_eq!((last.from, last.to), (State::Running, State::Running));
    assert_eq!(last.reason, "worker 3 runs other code\u{fffd}, é");
    let now = store.status(id).unwrap().now_us;
    assert!(now >= last.at_us && now - last.at_us < 60_000_000, "{now}, {}", last.at_us);
}
