//! Choice of an instance for a call.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tidewire_core::rpc::balancer::{Balancer, CallProfile, DECISIONS_MAX, Ended, Policy, RoutingReason};

const QUICKEST: Policy = Policy::LowestLatency { explore: 0.0 };
const SECOND_US: u64 = 1_000_000;

/// A caller at some time, whose calls end one after another.
struct Caller {
    balancer: Balancer<()>,
    policy: Policy,
    now_us: u64,
    is_idempotent: bool,
}

impl Caller {
    fn of(ids: &[&str]) -> Self {
        let mut balancer = Balancer::default();
        assert!(ids.iter().all(|id| balancer.add(*id, ()).is_ok()));
        Self { balancer, policy: QUICKEST, now_us: 0, is_idempotent: true }
    }

    fn call<'a>(&self, method: &'a str, cost: f64) -> CallProfile<'a> {
        CallProfile { method, cost, is_idempotent: self.is_idempotent, now_us: self.now_us, dice: 0 }
    }

    fn chosen(&mut self, method: &str, cost: f64) -> String {
        let call = self.call(method, cost);
        self.balancer.choose(self.policy, &call, |_| false).expect("there is one").0.to_string()
    }

    /// An instance takes a call that ends so.
    fn take(&mut self, id: &str, method: &str, cost: f64, how: Ended) {
        let load = self.balancer.began(id, self.policy, &self.call(method, cost));
        let (Ended::Answered(took_us) | Ended::Failed(took_us)) = how else { panic!("it takes time") };
        self.now_us += took_us;
        self.balancer.ended(id, load, how);
    }

    /// A chosen instance takes a call that ends as `how` says.
    fn play(&mut self, how: impl Fn(&str) -> Ended) -> String {
        let id = self.chosen("m", 0.0);
        self.take(&id, "m", 0.0, how(&id));
        id
    }

    fn reason(&self) -> RoutingReason {
        self.balancer.explain(&self.call("m", 0.0)).decisions.last().expect("a choice was made").reason
    }
}

// Promises: P13.85.
#[test]
fn each_is_tried_once_and_then_the_quickest_gets_the_calls() {
    let mut three = Caller::of(&["a", "b", "c"]);
    let took = BTreeMap::from([("a", 30_000), ("b", 10_000), ("c", 20_000)]);
    let mut first: Vec<_> = (0..3).map(|_| three.play(|id| Ended::Answered(took[id]))).collect();
    first.sort();
    assert_eq!(first, ["a", "b", "c"]);
    (0..60).for_each(|round| {
        three.take(["a", "b", "c"][round % 3], "m", 0.0, Ended::Answered(took[["a", "b", "c"][round % 3]]))
    });
    assert_eq!((three.chosen("m", 0.0).as_str(), three.reason()), ("b", RoutingReason::LowestTime));
    // The calls that it is at make it slower than the next one.
    for _ in 0..2 {
        let _ = three.balancer.began("b", QUICKEST, &three.call("m", 0.0));
    }
    assert_eq!(three.chosen("m", 0.0), "c");
}

// Promises: P13.85.
#[test]
fn an_instance_is_estimated_by_method_and_load_by_cost() {
    let mut two = Caller::of(&["a", "b"]);
    for round in 0..200 {
        let rows = f64::from(round % 20) * 100.0;
        for (id, long_us) in [("a", 90_000), ("b", 10_000)] {
            two.take(id, "short", rows, Ended::Answered(1_000 + 10 * rows as u64));
            two.take(id, "long", 0.0, Ended::Answered(long_us));
        }
    }
    assert!((0..4).all(|_| two.chosen("long", 0.0) == "b"));
    let short = two.balancer.explain(&two.call("short", 500.0)).instances;
    let times = short.iter().filter_map(|one| one.expected_us).collect::<Vec<_>>();
    assert!((0.9..1.1).contains(&(times[0] / times[1])), "a is slow at one method alone: {times:?}");
    let (few, many) = (two.call("short", 10.0), two.call("short", 1_900.0));
    for expected_us in two.balancer.explain(&many).instances.iter().filter_map(|one| one.expected_us) {
        assert!((15_000.0..25_000.0).contains(&expected_us), "1 ms and 10 us a row: {expected_us}");
    }
    let _ = two.balancer.began("b", QUICKEST, &many);
    for _ in 0..3 {
        let _ = two.balancer.began("a", QUICKEST, &few);
    }
    assert_eq!(two.chosen("short", 10.0), "a", "three short calls are less than a long one");
}

// Promises: P13.87.
#[test]
fn the_quickest_is_found_again_by_few_probes() {
    let mut three = Caller::of(&["a", "b", "c"]);
    three.policy = Policy::LowestLatency { explore: 0.02 };
    let mut calls = |took: [(&str, u64); 3]| {
        let took = BTreeMap::from(took);
        let mut counts = BTreeMap::<String, u32>::new();
        (0..1_000).for_each(|_| *counts.entry(three.play(|id| Ended::Answered(took[id]))).or_default() += 1);
        let explained = three.balancer.explain(&three.call("m", 0.0));
        assert!(explained.probes <= explained.calls / 50, "{} of {}", explained.probes, explained.calls);
        counts
    };
    let before = calls([("a", 10_000), ("b", 1_000), ("c", 20_000)]);
    assert!(before["b"] > 900, "{before:?}");
    let after = calls([("a", 500), ("b", 50_000), ("c", 20_000)]);
    assert!(after["a"] > 900, "{after:?}");
    // Between such long calls each of the others wants a probe.
    calls([("a", 900_000), ("b", 1_000_000), ("c", 1_100_000)]);
}

// Promises: P13.86.
#[test]
fn an_instance_that_fails_quickly_is_ejected_and_a_probe_brings_it_back() {
    let mut three = Caller::of(&["a", "b", "c"]);
    (0..30).for_each(|round| three.take(["a", "b", "c"][round % 3], "m", 0.0, Ended::Answered(10_000)));
    (0..5).for_each(|_| three.take("a", "m", 0.0, Ended::Failed(1)));
    three.policy = Policy::LowestLatency { explore: 1.0 };
    let ejected = |caller: &Caller| caller.balancer.explain(&caller.call("m", 0.0)).instances[0].ejected_us;
    assert!(ejected(&three) > 0);
    three.now_us += 3 * SECOND_US / 4;
    three.is_idempotent = false;
    let how = |id: &str| if id == "a" { Ended::Failed(1) } else { Ended::Answered(10_000) };
    assert!((0..10).all(|_| three.play(how) != "a"), "no probe with a call that must not run twice");
    three.is_idempotent = true;
    let probes = (0..6).map(|_| (three.play(how), three.reason())).filter(|(id, _)| id == "a").collect::<Vec<_>>();
    assert_eq!(probes, [("a".to_owned(), RoutingReason::EjectedProbe)]);
    assert!(ejected(&three) > SECOND_US, "the next ejection is twice as long");
    three.now_us += 3 * SECOND_US / 2;
    assert!((0..6).any(|_| three.play(|_| Ended::Answered(10_000)) == "a"));
    assert_eq!(ejected(&three), 0);
    // At most half of the instances are ejected.
    let mut four = Caller::of(&["a", "b", "c", "d"]);
    for (id, failures) in [("a", 5), ("b", 5), ("c", 20)] {
        (0..failures).for_each(|_| four.take(id, "m", 0.0, Ended::Failed(1)));
    }
    let ejected = four.balancer.explain(&four.call("m", 0.0)).instances;
    assert_eq!(ejected.iter().map(|one| one.ejected_us > 0).collect::<Vec<_>>(), [true, true, false, false]);
}

// Promises: P13.99.
#[test]
fn a_new_instance_starts_with_one_call_and_gets_one_more_with_each_answer() {
    let mut two = Caller::of(&["a"]);
    (0..30).for_each(|_| two.take("a", "m", 0.0, Ended::Answered(10_000)));
    assert!(two.balancer.add("b", ()).is_ok());
    for window in 1..5 {
        let begun: Vec<_> = (0..60)
            .map(|_| {
                let id = two.chosen("m", 0.0);
                (two.balancer.began(&id, QUICKEST, &two.call("m", 0.0)), id)
            })
            .collect();
        assert_eq!(begun.iter().filter(|(_, id)| id == "b").count(), window);
        two.now_us += 10_000;
        let mut answered = false;
        for (load, id) in begun {
            let counts = id == "a" || !std::mem::replace(&mut answered, true);
            two.balancer.ended(&id, load, if counts { Ended::Answered(10_000) } else { Ended::Untold });
        }
    }
}

// Promises: P13.100.
#[test]
fn the_last_decisions_are_explained() {
    let mut two = Caller::of(&["a", "b"]);
    let view = |caller: &Caller| caller.balancer.explain(&caller.call("m", 0.0)).instances;
    assert!(view(&two).iter().all(|one| one.expected_us.is_none() && one.error.is_infinite() && one.is_starting));
    (0..100).for_each(|_| drop(two.play(|id| Ended::Answered(if id == "a" { 1_000 } else { 4_000 }))));
    let errors = view(&two).iter().map(|one| one.error).collect::<Vec<_>>();
    assert!(errors[0] < errors[1], "more samples, less error: {errors:?}");
    let explained = two.balancer.explain(&two.call("m", 0.0));
    assert_eq!((explained.calls, explained.decisions.len()), (100, DECISIONS_MAX));
    assert!(explained.decisions.iter().all(|one| (&*one.instance, one.reason) == ("a", RoutingReason::LowestTime)));
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
        let (mut loads, mut now_us) = (BTreeMap::new(), 0);
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
                    now_us += 1_000;
                    let call = CallProfile { method: ["m", "n"][usize::from(without) % 2], cost: f64::from(without), is_idempotent: true, now_us, dice };
                    let chosen = balancer.choose(policy, &call, |id| id == without.to_string()).map(|(_, way)| *way);
                    prop_assert_eq!(chosen.is_some(), !left.is_empty());
                    let Some(chosen) = chosen else { continue };
                    let load = left.iter().find(|(id, _)| *id == chosen).map(|(_, load)| *load);
                    prop_assert!(load.is_some(), "{} was refused or is gone", chosen);
                    if policy == Policy::First { prop_assert_eq!(chosen, left[0].0); }
                    if policy == Policy::LeastOutstanding {
                        prop_assert_eq!(load, left.iter().map(|(_, load)| *load).min());
                    }
                    loads.entry(chosen).or_insert_with(Vec::new).push(balancer.began(&chosen.to_string(), policy, &call));
                    known.iter_mut().filter(|(id, _)| *id == chosen).for_each(|(_, load)| *load += 1);
                }
                Step::End(id, took_us, fails) => {
                    let load = loads.get_mut(&id).and_then(Vec::pop).unwrap_or_default();
                    balancer.ended(&id.to_string(), load, if fails { Ended::Failed(took_us) } else { Ended::Answered(took_us) });
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
            let call = CallProfile { dice: dice(), ..CallProfile::default() };
            if let Some((_, at)) = balancer.choose(Policy::LeastOutstanding, &call, |_| false) { counts[*at].0 += 1; }
            if let Some((_, at)) = balancer.choose(Policy::Random, &call, |_| false) { counts[*at].1 += 1; }
        }
        prop_assert!(counts.iter().all(|(turns, chance)| *turns == 200 && (100..=300).contains(chance)), "{:?}", counts);
    }
}
