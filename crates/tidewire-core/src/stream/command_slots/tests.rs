//! Stories of the slots of a command worker.

use proptest::prelude::{Strategy, any, prop, prop_oneof, proptest};

use super::{CommandSlots, Fetch, PARKED_MAX};

const LEASE_US: u64 = 3_000;

fn look(queue: usize, count: u32) -> Vec<Fetch> {
    vec![Fetch { queue, count, waits: false }]
}

// Promises: P17.69.
#[test]
fn a_free_place_looks_at_the_most_urgent_queue_first_and_waits_at_all_if_none_has_anything() {
    let mut places = CommandSlots::new(2, 3, LEASE_US);
    for queue in 0..3 {
        assert_eq!(places.fetches(), look(queue, 2));
        assert_eq!(places.fetches(), [], "one look at a time");
        assert_eq!(places.fetched(queue, &[], 0), []);
    }
    let waits = |queue| Fetch { queue, count: 2, waits: true };
    assert_eq!(places.fetches(), [waits(0), waits(1), waits(2)]);
    assert_eq!(places.fetches(), []);
    assert_eq!(places.fetched(2, &[(1, 10), (2, 20)], 0), []);
    assert_eq!((places.begin(), places.begin(), places.begin()), (Some((2, 1, 10)), Some((2, 2, 20)), None));
    assert_eq!(places.fetched(0, &[(3, 30)], 0), [(0, 3, 30)], "no place is free, and another worker may have one");
    assert_eq!(places.fetches(), []);
    assert!(places.ended(1));
    assert_eq!(places.fetches(), look(0, 1), "the most urgent one first, and not where it waits");
}

// Promises: P17.72.
#[test]
fn a_key_that_many_wait_for_does_not_fill_the_worker() {
    let mut places = CommandSlots::new(1, 1, LEASE_US);
    for sequence in 0..=PARKED_MAX as u64 {
        assert_eq!(places.fetches(), look(0, 1));
        places.fetched(0, &[(sequence, 1)], 0);
        places.begin();
        assert_eq!(places.park(sequence), sequence < PARKED_MAX as u64);
    }
    assert!(places.ended(PARKED_MAX as u64));
    assert_eq!(places.fetches(), look(0, 1));
}

#[test]
fn all_that_it_has_is_extended_every_third_of_the_lease() {
    let mut places = CommandSlots::new(2, 1, LEASE_US);
    places.fetches();
    assert_eq!(places.next_deadline_us(), None);
    places.fetched(0, &[(1, 10), (2, 20)], 100);
    places.begin();
    assert_eq!((places.extend(1_099), places.next_deadline_us()), (vec![], Some(1_100)));
    assert_eq!(places.extend(1_100), [(0, 1, 10), (0, 2, 20)]);
    assert_eq!(places.next_deadline_us(), Some(2_100));
    places.ended(1);
    places.ended(2);
    assert_eq!((places.extend(9_999), places.next_deadline_us()), (vec![], None));
}

#[test]
fn commands_not_begun_go_back_when_the_worker_drains() {
    let mut places = CommandSlots::new(2, 1, LEASE_US);
    places.fetches();
    places.fetched(0, &[(1, 10), (2, 20)], 0);
    places.begin();
    assert_eq!(places.drain(), [(0, 2, 20)]);
    assert_eq!((places.fetches(), places.is_over()), (vec![], false));
    places.ended(1);
    assert!(places.is_over());
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Fetch,
    Come(usize, usize),
    Begin,
    Park(u64),
    Unpark(u64),
    End(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        any::<bool>().prop_map(|_| Step::Fetch),
        (0..3_usize, 0..4_usize).prop_map(|(fetch, tokens)| Step::Come(fetch, tokens)),
        any::<bool>().prop_map(|_| Step::Begin),
        (0..40_u64).prop_map(Step::Park),
        (0..40_u64).prop_map(Step::Unpark),
        (0..40_u64).prop_map(Step::End),
    ]
}

proptest! {
    #[test]
    fn no_more_run_than_there_are_places_and_whoever_has_a_free_one_looks_or_waits(
        count in 1..4_usize,
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let mut places = CommandSlots::new(count, 3, LEASE_US);
        let (mut in_flight, mut newest) = (Vec::<Fetch>::new(), 0);
        for step in steps {
            match step {
                Step::Fetch => in_flight.extend(places.fetches()),
                Step::Come(..) if in_flight.is_empty() => {}
                Step::Come(fetch, tokens) => {
                    let fetch = in_flight.swap_remove(fetch % in_flight.len());
                    let tokens = (0..tokens.min(fetch.count as usize)).map(|_| { newest += 1; (newest, 1) });
                    places.fetched(fetch.queue, &tokens.collect::<Vec<_>>(), 0);
                }
                Step::Begin => drop(places.begin()),
                Step::Park(sequence) => drop(places.park(sequence)),
                Step::Unpark(sequence) => drop(places.unpark(sequence)),
                Step::End(sequence) => drop(places.ended(sequence)),
            }
            let taken = places.tokens.values().filter(|held| held.state != super::State::Parked).count();
            assert!(taken <= count, "{places:?}");
            if places.free() > 0 {
                in_flight.extend(places.fetches());
                let looks = in_flight.iter().any(|fetch| !fetch.waits);
                let queues = in_flight.iter().map(|fetch| fetch.queue).collect::<std::collections::BTreeSet<_>>();
                assert!(looks || queues.len() == 3, "{in_flight:?} {places:?}");
                assert_eq!(queues.len(), in_flight.len(), "one fetch of a queue at a time");
            }
        }
    }
}
