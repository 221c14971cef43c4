//! The timing wheel against a sorted map, and its promises about order and memory.

use std::collections::BTreeMap;
use std::rc::Rc;

use proptest::prelude::*;
use tidewire_core::wheel::{Key, Wheel};

#[test]
fn time_that_runs_backwards_fires_nothing_early() {
    let mut wheel = Wheel::default();
    assert_eq!(wheel.poll(1_000), None);
    wheel.insert(1_100, ());
    assert_eq!(wheel.poll(10), None);
    assert_eq!(wheel.now(), 1_000);
    assert!(wheel.poll(1_100).is_some());
}

// Promises: P9.6.
#[test]
fn a_removed_timer_frees_its_value_at_once() {
    let mut wheel = Wheel::default();
    let value = Rc::new(());
    let key = wheel.insert(10, Rc::clone(&value));
    wheel.insert(20, Rc::clone(&value));
    drop(wheel.remove(key));
    assert_eq!(Rc::strong_count(&value), 2);
}

#[test]
fn memory_is_used_again_and_given_back() {
    let mut wheel = Wheel::default();
    for round in 0..10 {
        let keys: Vec<Key> = (0..10_000).map(|n| wheel.insert(round + n, n)).collect();
        assert!(wheel.capacity() <= 2 * 10_000, "round {round}: {}", wheel.capacity());
        // From the middle to both ends, so that the free list and the end of the storage both see
        // use.
        for pair in keys[..5_000].iter().rev().zip(&keys[5_000..]) {
            assert!(wheel.remove(*pair.0).is_some() && wheel.remove(*pair.1).is_some());
        }
        assert!(wheel.is_empty());
        assert!(wheel.capacity() <= 64, "round {round}: {}", wheel.capacity());
    }
}

#[test]
fn waiting_for_the_next_deadline_ends() {
    let mut wheel = Wheel::default();
    let decoys: Vec<Key> = (1..1_000).map(|n| wheel.insert(n * 1_000, false)).collect();
    wheel.insert(7_777_777_777, true);
    for key in decoys {
        wheel.remove(key);
    }
    let mut polls = 0;
    while let Some(deadline) = wheel.next_deadline() {
        polls += 1;
        wheel.advance(deadline, &mut |_, real| assert!(real));
    }
    assert!(polls <= 11, "{polls} polls");
}

#[derive(Clone, Debug)]
enum Step {
    Insert { delay: u64 },
    InsertPast { by: u64 },
    Remove { which: prop::sample::Index },
    RemoveOld { which: prop::sample::Index },
    Advance { by: u64 },
    AdvanceToNext,
    PollOnce { by: u64 },
}

/// Spans of every size, so that each level of the wheel is met and its turns wrap.
fn span() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0_u64..4,
        4 => 0_u64..200,
        3 => 0_u64..100_000,
        2 => (0_u32..64, any::<u64>()).prop_map(|(bits, noise)| noise >> (63 - bits)),
        1 => (0_u32..63, -2_i64..3).prop_map(|(bits, near)| (1_u64 << bits).saturating_add_signed(near)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => span().prop_map(|delay| Step::Insert { delay }),
        1 => span().prop_map(|by| Step::InsertPast { by }),
        4 => any::<prop::sample::Index>().prop_map(|which| Step::Remove { which }),
        1 => any::<prop::sample::Index>().prop_map(|which| Step::RemoveOld { which }),
        3 => span().prop_map(|by| Step::Advance { by }),
        2 => Just(Step::AdvanceToNext),
        2 => span().prop_map(|by| Step::PollOnce { by }),
    ]
}

/// The wheel and what it must do: timers sorted by deadline, then by insertion.
#[derive(Default)]
struct Pair {
    wheel: Wheel<u64>,
    model: BTreeMap<(u64, u64), Key>,
    gone: Vec<Key>,
    now: u64,
    inserted: u64,
}

impl Pair {
    fn apply(&mut self, step: Step) {
        match step {
            Step::Insert { delay } => self.insert(self.now.saturating_add(delay)),
            Step::InsertPast { by } => self.insert(self.now.saturating_sub(by)),
            Step::Remove { which } if !self.model.is_empty() => self.remove(which.index(self.model.len())),
            Step::RemoveOld { which } if !self.gone.is_empty() => {
                let old = *which.get(&self.gone);
                assert_eq!(self.wheel.get(old), None);
                assert_eq!(self.wheel.remove(old), None);
            }
            Step::Remove { .. } | Step::RemoveOld { .. } => {}
            Step::Advance { by } => self.advance(self.now.saturating_add(by)),
            Step::AdvanceToNext => self.advance(self.wheel.next_deadline().unwrap_or(self.now)),
            Step::PollOnce { by } => {
                self.poll(self.now.saturating_add(by));
            }
        }
        self.check();
    }

    fn insert(&mut self, deadline: u64) {
        let key = self.wheel.insert(deadline, self.inserted);
        self.model.insert((deadline.max(self.now), self.inserted), key);
        self.inserted += 1;
    }

    fn remove(&mut self, index: usize) {
        let (&(deadline, value), &key) = self.model.iter().nth(index).unwrap();
        assert_eq!(self.wheel.deadline(key), Some(deadline));
        assert_eq!(self.wheel.remove(key), Some(value));
        self.model.remove(&(deadline, value));
        self.gone.push(key);
    }

    fn advance(&mut self, now: u64) {
        while self.poll(now) {}
    }

    fn poll(&mut self, now: u64) -> bool {
        let due = self.model.first_entry().filter(|first| first.key().0 <= now);
        let expected = due.map(|first| first.remove_entry());
        assert_eq!(self.wheel.poll(now), expected.map(|((_, value), key)| (key, value)));
        self.gone.extend(expected.map(|(_, key)| key));
        self.now = expected.map_or(now, |((deadline, _), _)| deadline);
        expected.is_some()
    }

    fn check(&self) {
        assert_eq!(self.wheel.len(), self.model.len());
        assert_eq!(self.wheel.now(), self.now);
        let first = self.model.first_key_value().map(|(&(deadline, _), _)| deadline);
        let bound = self.wheel.next_deadline();
        assert_eq!(bound.is_some(), first.is_some());
        assert!(bound <= first && bound.is_none_or(|bound| bound >= self.now));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn it_does_what_a_sorted_map_does(start in span(), steps in prop::collection::vec(step(), 1..120)) {
        let mut pair = Pair::default();
        pair.advance(start);
        for step in steps {
            pair.apply(step);
        }
        pair.advance(u64::MAX);
        assert!(pair.wheel.is_empty());
    }

    #[test]
    fn without_removals_the_next_deadline_is_exact(
        deadlines in prop::collection::vec(span(), 1..50), polls in prop::collection::vec(span(), 0..20),
    ) {
        let mut pair = Pair::default();
        deadlines.into_iter().for_each(|deadline| pair.insert(deadline));
        for by in polls {
            pair.advance(pair.now.saturating_add(by));
            prop_assert_eq!(pair.wheel.next_deadline(), pair.model.first_key_value().map(|(key, _)| key.0));
        }
    }
}
