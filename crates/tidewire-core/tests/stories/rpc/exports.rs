//! The export table: exported objects and their release.

use proptest::prelude::*;
use tidewire_core::rpc::exports::Exports;

const LEASE: u64 = 600;
const CLAIM: u64 = 10;

fn table() -> Exports<&'static str, &'static str> {
    Exports::new(3, CLAIM)
}

fn given(key: &'static str) -> Exports<&'static str, &'static str> {
    let mut exports = table();
    exports.add("one", "thing", key, LEASE, "value", 0).expect("room");
    exports
}

// Promises: P13.56.
#[test]
fn only_the_node_and_the_link_that_claimed_it_may_use_release_and_return_it() {
    let mut exports = given("0123456789");
    for (key, holder) in [("0123456789", "other"), ("b", "one")] {
        let gone = exports.used(key, holder, 1, 0).expect_err("it is not theirs").to_string();
        let shown = &key[..key.len().min(8)];
        assert!(gone.starts_with(&format!("{shown}: {holder:?} holds no export of this key")), "{gone}");
    }
    assert!(exports.claim("0123456789", "other", 1, 0).is_err(), "it is another node's");
    assert!(exports.claim("b", "other", 1, 0).is_ok(), "what is gone needs no claim");
    assert!(!exports.is_claimed("0123456789"));
    assert!(exports.claim("0123456789", "one", 7, 0).is_ok() && exports.is_claimed("0123456789"));
    assert!(exports.used("0123456789", "one", 8, 0).is_err());
    assert_eq!(exports.release("0123456789", "one", 8, 1), None);
    assert_eq!(exports.returned("0123456789", Some(("one", 8))), None);
    assert_eq!(exports.returned("0123456789", None), Some(&"value"));
    assert_eq!((exports.left(8).len(), exports.left(7).len(), exports.len()), (0, 1, 0));
}

// Promises: P13.63.
#[test]
fn a_full_table_takes_more_once_a_lease_is_over() {
    let mut exports = table();
    for (n, key) in ["a", "b", "c"].into_iter().enumerate() {
        assert_eq!(exports.add("one", key, key, LEASE + n as u64, key, 0), Ok(vec![]));
    }
    let full = exports.add("one", "d", "d", LEASE, "d", LEASE - 1).expect_err("there is no room");
    assert!(full.to_string().starts_with("remote_objects=3: so many exports"), "{full}");
    assert_eq!(exports.add("one", "d", "d", LEASE, "d", LEASE), Ok(vec!["a"]));
    assert_eq!((exports.dispose(&"d"), exports.clear().len(), exports.is_empty()), (vec!["d"], 2, true));
}

#[derive(Clone, Debug)]
enum Step {
    Give(u8),
    Use(u8),
    Begin(u8),
    End(u8),
    Release(u8, u64),
    Expire,
}

fn step() -> impl Strategy<Value = Step> {
    let thing = 0u8..3;
    prop_oneof![
        3 => thing.clone().prop_map(Step::Give),
        2 => thing.clone().prop_map(Step::Use),
        2 => thing.clone().prop_map(Step::Begin),
        2 => thing.clone().prop_map(Step::End),
        3 => (thing, 0u64..3).prop_map(|(thing, count)| Step::Release(thing, count)),
        1 => Just(Step::Expire),
    ]
}

/// The model of one object: references, calls, end of the lease.
type Model = [Option<(u64, u32, u64)>; 3];

fn end_unused(model: &mut Model, thing: usize) {
    if matches!(model[thing], Some((0, 0, _))) {
        model[thing] = None;
    }
}

proptest! {
    /// Nothing goes while somebody has it or calls it and its lease lasts, and nothing stays beyond
    /// that.
    #[test]
    fn it_is_there_as_long_as_it_is_held_called_or_leased(steps in prop::collection::vec((step(), 0u64..LEASE), 0..80)) {
        const KEYS: [&str; 3] = ["a", "b", "c"];
        let (mut exports, mut model, mut now) = (Exports::<usize, usize>::new(9, LEASE), Model::default(), 0);
        for (step, passed) in steps {
            now += passed;
            match step {
                Step::Give(thing) => {
                    let at = usize::from(thing);
                    if exports.again("one", &at, now).is_none() {
                        prop_assert_eq!(exports.add("one", at, KEYS[at], LEASE, at, now), Ok(vec![]));
                    }
                    let (given, busy, _) = model[at].unwrap_or_default();
                    model[at] = Some((given + 1, busy, now + LEASE));
                }
                Step::Use(thing) => {
                    let at = usize::from(thing);
                    let may = model[at].is_some_and(|(given, ..)| given > 0);
                    prop_assert_eq!(exports.used(KEYS[at], "one", 1, now).is_ok(), may);
                    if let Some((_, _, until)) = model[at].as_mut().filter(|_| may) {
                        *until = now + LEASE;
                    }
                }
                Step::Begin(thing) => {
                    exports.begins(KEYS[usize::from(thing)]);
                    if let Some((_, busy, _)) = &mut model[usize::from(thing)] {
                        *busy += 1;
                    }
                }
                Step::End(thing) => {
                    let at = usize::from(thing);
                    if let Some((_, busy, until)) = model[at].as_mut().filter(|(_, busy, _)| *busy > 0) {
                        (*busy, *until) = (*busy - 1, now + LEASE);
                        exports.ends(KEYS[at], now);
                        end_unused(&mut model, at);
                    }
                }
                Step::Release(thing, count) => {
                    let at = usize::from(thing);
                    exports.release(KEYS[at], "one", 1, count);
                    if let Some((given, ..)) = &mut model[at] {
                        *given = given.saturating_sub(count);
                    }
                    end_unused(&mut model, at);
                }
                Step::Expire => {
                    let (_, next) = exports.expire(now);
                    for one in &mut model {
                        one.take_if(|(_, busy, until)| *busy == 0 && *until <= now);
                    }
                    let expected = model.iter().flatten().filter(|(_, busy, _)| *busy == 0).map(|(_, _, until)| *until).min();
                    prop_assert_eq!(next, expected);
                }
            }
            for (at, key) in KEYS.into_iter().enumerate() {
                prop_assert_eq!(exports.contains(key), model[at].is_some(), "{} after {} us", key, now);
            }
        }
    }
}
