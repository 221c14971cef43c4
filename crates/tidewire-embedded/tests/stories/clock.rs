//! Clocks that are set back or forward between two openings of a folder: time spans stay exact.

use tidewire_backend::home::{
    ConsumerSettings, Fetch, HomeErrorKind, NewMessage, Read, Settle, Settlement, Start, StreamSettings,
};
use tidewire_embedded::folder::{Folder, Sizes};
use tidewire_proto::subject::{Pattern, Subject};

use crate::simulated::Simulated;

const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;
const BEGIN: u64 = 1_000 * DAY;

fn open(disk: &Simulated, now_us: u64) -> Folder {
    Folder::open(Box::new(disk.clone()), Sizes::default(), 7, now_us).expect("it can be read")
}

fn fetch(folder: &mut Folder, now_us: u64) -> Vec<u32> {
    let fetch = Fetch { max_messages: 9, max_bytes: 1 << 20, wait_us: 0 };
    folder.tick_consumers(now_us, &|_, _| false);
    let fetched = folder.fetch("s", "c", fetch, now_us).expect("the consumer is there");
    fetched.deliveries.iter().map(|delivery| delivery.delivery).collect()
}

/// A folder in which an event waits for 10 s, a lease runs for 5 s, and a consumer may be idle for
/// an hour.
fn first_life(disk: &Simulated) {
    let mut folder = open(disk, BEGIN);
    let subjects = vec![Pattern::new("a.>").expect("a pattern")];
    folder.create_stream(StreamSettings::new("s", subjects), BEGIN).expect("a new stream");
    let settings = ConsumerSettings { start: Start::All, inactive_us: 3_600 * SECOND, ..ConsumerSettings::new("c") };
    folder.create_consumer("s", settings, BEGIN).expect("a new consumer");
    publish(&mut folder, BEGIN);
    let wait = Fetch { max_messages: 9, max_bytes: 1 << 20, wait_us: 0 };
    let delivery = folder.fetch("s", "c", wait, BEGIN).expect("the consumer is there").deliveries.remove(0);
    let how = Settlement::Nak { delay_us: Some(10 * SECOND), fault: None };
    let settle = Settle { sequence: delivery.event.sequence, ticket: delivery.ticket, how };
    let settled = folder.settle("s", "c", vec![settle], BEGIN).expect("the consumer is there");
    assert!(settled[0].is_ok());
    assert_eq!(acquire(&mut folder, BEGIN), Ok(1));
    folder.commit(BEGIN).expect("a disk with power");
}

fn publish(folder: &mut Folder, now_us: u64) {
    let message = NewMessage::new(Subject::new("a.b").expect("a subject"), vec![1]);
    assert!(folder.publish("s", &[message], false, now_us).expect("the stream is there")[0].is_ok());
    folder.commit(now_us).expect("a disk with power");
}

/// The fence of a lease of 5 s, if it is free.
fn acquire(folder: &mut Folder, now_us: u64) -> Result<u64, HomeErrorKind> {
    folder.tick_leases(now_us);
    match folder.acquire(("l", "me"), (5 * SECOND, 0), 1, now_us) {
        Ok(Some((_, result))) => result.map(|grant| grant.fence).map_err(|error| error.kind()),
        Ok(None) => panic!("it does not wait"),
        Err(error) => Err(error.kind()),
    }
}

// Promises: P17.42.
#[test]
fn a_clock_that_was_set_back_makes_nothing_longer() {
    for back in [1, SECOND, DAY, BEGIN] {
        let disk = Simulated::new(back);
        first_life(&disk);
        let mut folder = open(&disk, BEGIN - back);
        let now_us = folder.opened_us();
        assert_eq!(now_us, BEGIN, "time goes on from what was stored");
        assert_eq!(fetch(&mut folder, now_us + 10 * SECOND - 1), [0_u32; 0]);
        assert_eq!(fetch(&mut folder, now_us + 10 * SECOND), [2]);
        publish(&mut folder, now_us + 11 * SECOND);
        let read = Read { start: Start::All, stop: None, filter: vec![], max_messages: 9, max_bytes: 99, wait_us: 0 };
        let page = folder.read("s", &read, now_us + 12 * SECOND).expect("the stream is there");
        assert_eq!(page.events.len(), 2);
        assert!(page.events.is_sorted_by_key(|event| event.time_us));
    }
}

// Promises: P17.39.
#[test]
fn a_lease_runs_its_whole_time_again_wherever_the_clock_stands() {
    for now_us in [BEGIN - DAY, BEGIN, BEGIN + DAY] {
        let disk = Simulated::new(now_us);
        first_life(&disk);
        let mut folder = open(&disk, now_us);
        let now_us = folder.opened_us();
        assert_eq!(acquire(&mut folder, now_us + 5 * SECOND - 1), Err(HomeErrorKind::LeaseHeld));
        assert_eq!(acquire(&mut folder, now_us + 5 * SECOND), Ok(2));
    }
}

#[test]
fn a_consumer_that_may_be_idle_for_an_hour_is_there_after_a_day_without_power() {
    for now_us in [BEGIN - DAY, BEGIN + DAY] {
        let disk = Simulated::new(now_us);
        first_life(&disk);
        let mut folder = open(&disk, now_us);
        let now_us = folder.opened_us();
        folder.tick_consumers(now_us + 3_599 * SECOND, &|_, _| false);
        assert!(folder.consumer_info("s", "c").is_ok());
        folder.tick_consumers(now_us + 3_600 * SECOND, &|_, _| false);
        assert_eq!(folder.consumer_info("s", "c").map_err(|error| error.kind()), Err(HomeErrorKind::NotFound));
    }
}

#[test]
fn a_consumer_that_somebody_waits_at_is_no_reason_to_wake() {
    let disk = Simulated::new(1);
    first_life(&disk);
    let mut folder = open(&disk, BEGIN);
    let late_us = BEGIN + 3_600 * SECOND;
    folder.tick_consumers(late_us, &|_, _| true);
    assert!(folder.consumer_info("s", "c").is_ok(), "it is in use");
    assert_eq!(folder.next_consumer_us(), Some(late_us + 3_600 * SECOND), "and looked at in an hour again");
}
