//! Deliveries of a consumer: selection, time and order.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use proptest::prelude::*;
use tidewire_core::stream::consumer::{Change, Consumer, Delivered, Fault, Options, Settlement, Stale};

const SECOND: u64 = 1_000_000;

fn options() -> Options {
    Options {
        ack_wait_us: 30 * SECOND,
        max_deliver: 3,
        backoff_us: vec![SECOND, 5 * SECOND],
        max_in_flight: 10,
        by_key: false,
        parked_max: 100,
        dead_max: 100,
    }
}

fn nak(delay_us: Option<u64>) -> Settlement {
    Settlement::Nak {
        delay_us,
        fault: Some(Fault { error: "ValueError: no".to_owned(), traceback: "line 7".to_owned() }),
    }
}

/// Takes what is ready: sequences and deliveries.
fn take_all(consumer: &mut Consumer, now_us: u64) -> Vec<(u64, Delivered)> {
    consumer.tick(now_us);
    std::iter::from_fn(|| consumer.first_ready().map(|sequence| (sequence, consumer.take(sequence, now_us)))).collect()
}

/// A consumer with the tickets of its deliveries, by sequence and number.
struct Told {
    consumer: Consumer,
    tickets: BTreeMap<(u64, u32), u64>,
}

impl Told {
    fn new(options: Options) -> Self {
        Self { consumer: Consumer::new(options, 1), tickets: BTreeMap::new() }
    }

    /// Takes what is ready: sequences and delivery numbers.
    fn take(&mut self, now_us: u64) -> Vec<(u64, u32)> {
        let taken = take_all(&mut self.consumer, now_us);
        self.tickets.extend(taken.iter().map(|(sequence, taken)| ((*sequence, taken.delivery), taken.ticket)));
        taken.into_iter().map(|(sequence, taken)| (sequence, taken.delivery)).collect()
    }

    fn settle(&mut self, sequence: u64, delivery: u32, how: Settlement, now_us: u64) -> Result<(), Stale> {
        let ticket = self.tickets.get(&(sequence, delivery)).copied().unwrap_or(77);
        self.consumer.settle(sequence, ticket, how, now_us)
    }
}

impl Deref for Told {
    type Target = Consumer;

    fn deref(&self) -> &Consumer {
        &self.consumer
    }
}

impl DerefMut for Told {
    fn deref_mut(&mut self) -> &mut Consumer {
        &mut self.consumer
    }
}

#[test]
fn events_that_no_handler_began_come_again_uncounted() {
    let mut consumer = Told::new(Options { by_key: true, max_deliver: 1, ..options() });
    for sequence in 1..=2 {
        consumer.offer(sequence, true, Some("a"), 0);
    }
    assert_eq!(consumer.take(0), [(1, 1)]);
    assert_eq!(consumer.settle(1, 1, Settlement::Release, 0), Ok(()));
    assert_eq!(consumer.settle(1, 1, Settlement::Ack, 0), Err(Stale), "it was given back");
    assert_eq!(consumer.take(0), [(1, 1)], "before the next of its key, and it is not dead");
    assert_eq!(consumer.redelivered(), 0);
}

#[test]
fn an_event_in_progress_is_not_given_to_another_consumer() {
    let mut consumer = Told::new(options());
    consumer.offer(1, true, None, 0);
    consumer.take(0);
    for second in (20..200).step_by(20) {
        consumer.settle(1, 1, Settlement::Working, second * SECOND).expect("it is out");
        assert_eq!(consumer.take((second + 19) * SECOND), []);
    }
}

#[test]
fn a_pause_ends_at_its_time() {
    let mut consumer = Told::new(options());
    consumer.offer(1, true, None, 0);
    consumer.pause(50);
    assert_eq!((consumer.take(49), consumer.take(50)), (vec![], vec![(1, 1)]));
}

// Promises: P17.25.
#[test]
fn a_crash_in_the_last_delivery_ends_in_the_dead_letters() {
    let mut consumer = Told::new(Options { max_deliver: 1, ..options() });
    consumer.offer(1, true, None, 0);
    consumer.take(0);
    let changes = consumer.take_changes();
    let mut again = Told::new(Options { max_deliver: 1, ..options() });
    changes.into_iter().for_each(|change| again.restore(change, 0));
    assert!(!again.offer(1, true, None, 0), "it would kill its process again and again");
    assert_eq!(again.dead()[&1].reason, "max_deliver");
    assert_eq!(again.acked_to(), 1);
}

#[derive(Clone, Debug)]
enum Step {
    Offer(bool, u8),
    Take,
    Settle(u8, u8),
    Wait(u32),
    Requeue(u8),
    Crash(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (any::<bool>(), 0..4_u8).prop_map(|(selected, key)| Step::Offer(selected, key)),
        4 => Just(Step::Take),
        4 => (any::<u8>(), 0..5_u8).prop_map(|(which, how)| Step::Settle(which, how)),
        2 => (0..20_000_000_u32).prop_map(Step::Wait),
        1 => any::<u8>().prop_map(Step::Requeue),
        1 => any::<bool>().prop_map(Step::Crash),
    ];
    proptest::collection::vec(step, 1..120)
}

proptest! {
    // Promises: P17.23, P17.24.
    /// With any steps, crashes included: each selected event is acked once or becomes a dead
    /// letter, and events of a key go one at a time.
    #[test]
    fn every_event_gets_done_and_none_twice(steps in steps(), by_key in any::<bool>()) {
        let options = Options { by_key, ..options() };
        let mut consumer = Consumer::new(options.clone(), 1);
        let mut journal: Vec<Change> = Vec::new();
        let (mut now_us, mut stream, mut out) = (0, Vec::new(), Vec::<(u64, u64)>::new());
        let (mut acked, mut selected) = (Vec::new(), Vec::new());
        for step in steps.into_iter().chain([Step::Crash(true)]).chain((0..400).flat_map(|_| {
            [Step::Wait(31_000_000), Step::Take, Step::Settle(0, 0), Step::Settle(0, 0)]
        })) {
            match step {
                Step::Offer(is, key) => stream.push((is, format!("k{key}"))),
                Step::Take => {
                    consumer.tick(now_us);
                    while consumer.wants_more() && (consumer.next() as usize) <= stream.len() {
                        let next = consumer.next();
                        let (is, key) = &stream[next as usize - 1];
                        consumer.offer(next, *is, Some(key), now_us);
                        if *is && !selected.contains(&next) {
                            selected.push(next);
                        }
                    }
                    let taken = take_all(&mut consumer, now_us);
                    for (sequence, _) in &taken {
                        prop_assert!(!acked.contains(sequence), "{sequence} came after its ack");
                    }
                    out.extend(taken.into_iter().map(|(sequence, taken)| (sequence, taken.ticket)));
                }
                Step::Settle(which, how) if !out.is_empty() => {
                    let (sequence, ticket) = out.remove(which as usize % out.len());
                    let how = match how {
                        0 | 1 => Settlement::Ack,
                        2 => nak(None),
                        3 => Settlement::Release,
                        _ => Settlement::Term { reason: "x".to_owned(), fault: None },
                    };
                    let ack = how == Settlement::Ack;
                    if consumer.settle(sequence, ticket, how, now_us).is_ok() && ack {
                        acked.push(sequence);
                    }
                }
                Step::Settle(..) => {}
                Step::Wait(us) => {
                    now_us += u64::from(us);
                    consumer.tick(now_us);
                }
                Step::Requeue(which) => {
                    let dead: Vec<u64> = consumer.dead().keys().copied().collect();
                    if let Some(sequence) = dead.get(which as usize % dead.len().max(1)) {
                        consumer.requeue(*sequence, now_us);
                    }
                }
                Step::Crash(whole) => {
                    journal.extend(consumer.take_changes());
                    if whole {
                        journal = consumer.snapshot();
                    }
                    let mut again = Consumer::new(options.clone(), 1);
                    journal.iter().cloned().for_each(|change| again.restore(change, now_us));
                    prop_assert_eq!(again.dead(), consumer.dead());
                    consumer = again;
                    out.clear();
                }
            }
            journal.extend(consumer.take_changes());
        }
        for sequence in selected {
            let dead = consumer.dead().contains_key(&sequence);
            prop_assert!(acked.contains(&sequence) != dead, "{sequence}: acked {}, dead {dead}", !dead);
        }
        prop_assert_eq!(consumer.acked_to(), consumer.next() - 1);
        prop_assert_eq!((consumer.in_flight(), consumer.waiting(), consumer.parked()), (0, 0, 0));
    }
}
