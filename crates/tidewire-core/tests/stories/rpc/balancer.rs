//! Choice of an instance for a call.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tidewire_core::rpc::balancer::{Balancer, Ended, Policy};

const QUICKEST: Policy = Policy::LowestLatency { explore: 0.0 };

fn balancer(ids: &[&str]) -> Balancer<()> {
    let mut made = Balancer::default();
    assert!(ids.iter().all(|id| made.add(*id, ()).is_ok()));
    made
}

fn chosen(balancer: &mut Balancer<()>, policy: Policy, dice: u64) -> String {
    balancer.choose(policy, dice, |_| false).expect("there is one").0.to_string()
}

/// Each gets a call that takes so long.
fn take(balancer: &mut Balancer<()>, took_us: &[(&str, u64)]) {
    for (id, took_us) in took_us {
        balancer.began(id);
        balancer.ended(id, Ended::Answered(*took_us));
    }
}

// Promises: P13.85.
#[test]
fn each_is_tried_once_and_then_the_quickest_gets_the_calls() {
    let mut three = balancer(&["a", "b", "c"]);
    for (id, took_us) in [("a", 30_000), ("b", 10_000), ("c", 20_000)] {
        assert_eq!(chosen(&mut three, QUICKEST, 1), id);
        take(&mut three, &[(id, took_us)]);
    }
    assert_eq!(chosen(&mut three, QUICKEST, 1), "b");
    // Two calls that it is at make it slower than the next one.
    ["b", "b"].iter().for_each(|id| three.began(id));
    assert_eq!(chosen(&mut three, QUICKEST, 1), "c");
}

#[test]
fn the_quickest_is_found_again_when_it_changes() {
    let mut three = balancer(&["a", "b", "c"]);
    let policy = Policy::LowestLatency { explore: 0.1 };
    let mut dice = dice_of(3);
    let mut calls = |took: [(&str, u64); 3]| {
        let took = BTreeMap::from(took);
        let mut counts = BTreeMap::<String, u32>::new();
        for _ in 0..1_000 {
            let id = chosen(&mut three, policy, dice());
            take(&mut three, &[(&id, took[&*id])]);
            *counts.entry(id).or_default() += 1;
        }
        counts
    };
    let before = calls([("a", 10_000), ("b", 1_000), ("c", 20_000)]);
    assert!(before["b"] > 850, "{before:?}");
    assert!(before.values().all(|count| *count > 10), "the others are tried now and then: {before:?}");
    let after = calls([("a", 500), ("b", 50_000), ("c", 20_000)]);
    assert!(after["a"] > 700, "{after:?}");
}

// Promises: P13.86.
#[test]
fn a_quick_failure_draws_no_calls() {
    let mut three = balancer(&["a", "b", "c"]);
    take(&mut three, &[("a", 10_000), ("b", 10_000), ("c", 10_000)]);
    for _ in 0..20 {
        three.began("a");
        three.ended("a", Ended::Failed(1));
    }
    assert_eq!(chosen(&mut three, QUICKEST, 1), "b");
}

/// Numbers of a seed.
fn dice_of(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add(u8),
    Remove(u8),
    Call(u8, u64, u8),
    End(u8, u64, bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_u8..5).prop_map(Step::Add),
        (0_u8..5).prop_map(Step::Remove),
        (0_u8..4, any::<u64>(), 0_u8..5).prop_map(|(policy, dice, without)| Step::Call(policy, dice, without)),
        (0_u8..5, 0_u64..1_000_000, any::<bool>()).prop_map(|(id, took_us, fails)| Step::End(id, took_us, fails)),
    ]
}

proptest! {
    /// After any sequence of joins, departures and ends: an instance is chosen if one is present
    /// and was not refused. The least busy one is chosen, and calls are counted.
    #[test]
    fn a_call_goes_to_one_that_is_there(steps in proptest::collection::vec(step(), 0..200)) {
        let mut balancer = Balancer::default();
        let mut known = Vec::<(u8, u64)>::new();
        for step in steps {
            match step {
                Step::Add(id) => {
                    let is_new = !known.iter().any(|(other, _)| *other == id);
                    prop_assert_eq!(balancer.add(id.to_string(), id).is_ok(), is_new);
                    if is_new { known.push((id, 0)); }
                }
                Step::Remove(id) => {
                    let was_there = known.iter().any(|(other, _)| *other == id);
                    prop_assert_eq!(balancer.remove(&id.to_string()), was_there.then_some(id));
                    known.retain(|(other, _)| *other != id);
                }
                Step::Call(policy, dice, without) => {
                    let policy = [Policy::First, Policy::Random, Policy::LeastOutstanding, Policy::LowestLatency { explore: 0.5 }][usize::from(policy)];
                    let left: Vec<_> = known.iter().filter(|(id, _)| *id != without).copied().collect();
                    let chosen = balancer.choose(policy, dice, |id| id == without.to_string()).map(|(_, way)| *way);
                    prop_assert_eq!(chosen.is_some(), !left.is_empty());
                    let Some(chosen) = chosen else { continue };
                    let load = left.iter().find(|(id, _)| *id == chosen).map(|(_, load)| *load);
                    prop_assert!(load.is_some(), "{} was refused or is gone", chosen);
                    if policy == Policy::First { prop_assert_eq!(chosen, left[0].0); }
                    if policy == Policy::LeastOutstanding {
                        prop_assert_eq!(load, left.iter().map(|(_, load)| *load).min());
                    }
                    balancer.began(&chosen.to_string());
                    known.iter_mut().filter(|(id, _)| *id == chosen).for_each(|(_, load)| *load += 1);
                }
                Step::End(id, took_us, fails) => {
                    balancer.ended(&id.to_string(), if fails { Ended::Failed(took_us) } else { Ended::Answered(took_us) });
                    known.iter_mut().filter(|(other, _)| *other == id).for_each(|(_, load)| *load = load.saturating_sub(1));
                }
            }
            prop_assert!(known.iter().all(|(id, load)| balancer.outstanding(&id.to_string()) == *load));
            prop_assert!(balancer.iter().map(|(_, id)| *id).eq(known.iter().map(|(id, _)| *id)));
        }
    }

    /// Among equal ones each gets as many calls as the others, and each is reached by chance too.
    #[test]
    fn calls_are_spread(count in 1_usize..9, seed in any::<u64>()) {
        let mut balancer = Balancer::default();
        (0..count).for_each(|id| assert!(balancer.add(id.to_string(), id).is_ok()));
        let mut dice = dice_of(seed);
        let mut counts = vec![(0_u32, 0_u32); count];
        for _ in 0..count * 200 {
            if let Some((_, at)) = balancer.choose(Policy::LeastOutstanding, dice(), |_| false) { counts[*at].0 += 1; }
            if let Some((_, at)) = balancer.choose(Policy::Random, dice(), |_| false) { counts[*at].1 += 1; }
        }
        prop_assert!(counts.iter().all(|(turns, chance)| *turns == 200 && (100..=300).contains(chance)), "{:?}", counts);
    }
}
