//! Order, mailboxes and names.

use tidewire_engine::*;

use crate::support::{drain, engine, wait};
use crate::{collector, held};

// Promises: P2.3, P2.5, P2.6.
#[test]
fn higher_priorities_overtake_and_lower_ones_do_not_starve() {
    let engine = engine(1);
    let (collect, seen) = collector();
    let (actor, gate) = held(&engine, SpawnOptions::new(), (Priority::Normal, 0), collect);
    for n in 0..100 {
        actor.tell_with((Priority::Low, n), Priority::Low).unwrap();
        actor.tell_with((Priority::Normal, n), Priority::Normal).unwrap();
        actor.tell_with((Priority::High, n), Priority::High).unwrap();
        actor.tell_with((Priority::Urgent, n), Priority::Urgent).unwrap();
    }
    gate.send(()).unwrap();
    actor.stop(drain()).wait().unwrap();
    let order: Vec<(Priority, i32)> = seen.iter().collect();
    assert_eq!(order[0].0, Priority::Urgent);
    for lane in [Priority::Urgent, Priority::High, Priority::Normal, Priority::Low] {
        let numbers: Vec<i32> = order.iter().filter(|(p, _)| *p == lane).map(|(_, n)| *n).collect();
        assert_eq!(numbers, (0..100).collect::<Vec<_>>(), "{lane:?} is in order");
    }
    let first = |lane| order.iter().position(|(p, _)| *p == lane).unwrap();
    assert_eq!(first(Priority::Low), 16, "sixteen of higher lanes in a row, then one of the lowest");
    assert_eq!(first(Priority::Normal), 17, "and one of the lane above it");
    assert_eq!(first(Priority::High), 18, "and one of the lane above that");
    let lows: Vec<usize> = (0..400).filter(|at| order[*at].0 == Priority::Low).collect();
    assert!(
        lows.windows(2).all(|pair| pair[1] - pair[0] <= 19),
        "a low one waits for 16 others and the two lanes that are due too"
    );
}

/// How many messages of other lanes come between two of one lane that waits all the while, at most.
fn longest_wait(burst: usize, order: &[Priority], left: &[usize; 4]) -> [usize; 4] {
    let lanes = [Priority::Urgent, Priority::High, Priority::Normal, Priority::Low];
    let mut left = *left;
    let (mut waited, mut longest) = ([0; 4], [0; 4]);
    for priority in order {
        for (at, lane) in lanes.iter().enumerate() {
            if lane == priority {
                (left[at], waited[at]) = (left[at] - 1, 0);
            } else if left[at] > 0 {
                waited[at] += 1;
                longest[at] = longest[at].max(waited[at]);
            }
        }
    }
    assert!(left == [0; 4], "burst {burst}: all of them were handled");
    longest
}

// Promises: P2.5, P2.7.
#[test]
fn no_lane_waits_for_more_than_the_burst_and_one_message_of_each_lane_that_is_due() {
    for burst in [1, 2, 3, 16] {
        for counts in [[100, 100, 100, 100], [300, 5, 50, 100], [100, 0, 100, 20], [0, 200, 30, 100], [40, 40, 0, 90]] {
            let config = config::EngineConfig { lane_burst: burst, ..config::EngineConfig::default() };
            let engine = Engine::builder().config(config).threads(1).build().unwrap();
            let (collect, seen) = collector();
            let (actor, gate) = held(&engine, SpawnOptions::new(), Priority::Normal, collect);
            for (lane, count) in
                [Priority::Urgent, Priority::High, Priority::Normal, Priority::Low].into_iter().zip(counts)
            {
                (0..count).for_each(|_| _ = actor.tell_with(lane, lane).unwrap());
            }
            gate.send(()).unwrap();
            actor.stop(drain()).wait().unwrap();
            let order: Vec<Priority> = seen.iter().collect();
            let longest = longest_wait(burst, &order, &counts);
            assert!(longest[1..].iter().all(|waited| *waited <= burst + 2), "burst {burst}, {counts:?}: {longest:?}");
            assert!(longest[0] <= 3, "burst {burst}, {counts:?}: urgent ones waited for {}", longest[0]);
        }
    }
}

// Promises: P3.1, P3.2, P3.3, P3.5, P3.6, P3.8.
#[test]
fn a_full_mailbox_does_what_its_policy_says() {
    let engine = engine(1);
    for (overflow, kept) in [
        (Overflow::Wait, vec![1, 2]),
        (Overflow::Fail, vec![1, 2]),
        (Overflow::DropNew, vec![1, 2]),
        (Overflow::DropOld, vec![2, 3]),
    ] {
        let (collect, seen) = collector();
        let options = SpawnOptions::new().mailbox(Mailbox::new(2).overflow(overflow));
        let (actor, gate) = held(&engine, options, 0, collect);
        actor.tell(1).unwrap();
        actor.tell(2).unwrap();
        let third = actor.tell(3);
        match overflow {
            Overflow::Wait | Overflow::Fail => {
                let error = third.unwrap_err();
                assert!(error.is_full());
                assert!(error.to_string().contains("capacity 2"), "{error}");
                assert_eq!(error.into_message(), 3, "the message comes back");
            }
            Overflow::DropNew => assert_eq!(third.unwrap(), Sent::Dropped),
            Overflow::DropOld => assert_eq!(third.unwrap(), Sent::Accepted),
            other => panic!("{other:?} has no row here"),
        }
        gate.send(()).unwrap();
        let ledger = actor.stop(drain()).wait().unwrap().ledger;
        assert_eq!(seen.iter().collect::<Vec<_>>(), kept, "{overflow:?}");
        assert!(ledger.balances());
    }
    let reasons: Vec<DeadReason> = engine.dead_letters().list().iter().map(|letter| letter.reason).collect();
    assert_eq!(reasons, [DeadReason::Dropped, DeadReason::Dropped]);
}

// Promises: P1.6, P1.7, P1.8, P1.9.
#[test]
fn a_taken_name_is_an_error_and_free_again_after_the_stop() {
    let engine = engine(1);
    let options = || SpawnOptions::new().name("only");
    let first = engine.spawn_fn_with(options(), |_: u8, _| Ok(())).unwrap();
    let error = engine.spawn_fn_with(options(), |_: u8, _| Ok(())).unwrap_err();
    assert!(matches!(error, SpawnError::NameTaken { .. }), "{error}");
    assert_eq!(engine.actors(), 1);
    assert_eq!(engine.lookup::<u8>("only"), Some(first.clone()));
    assert_eq!(engine.lookup::<u16>("only"), None, "another type of message is another actor");
    first.stop(drain()).wait().unwrap();
    let second = engine.spawn_fn_with(options(), |_: u8, _| Ok(())).unwrap();
    assert_ne!(first.id(), second.id());
}

#[test]
fn wrong_options_name_the_field_the_value_and_the_range() {
    let engine = engine(1);
    let spawn = |options| engine.spawn_fn_with(options, |_: u8, _| Ok(())).unwrap_err().to_string();
    let zero = spawn(SpawnOptions::new().mailbox(Mailbox::new(0)));
    assert!(zero.contains("mailbox.capacity: 0") && zero.contains("1 to 1000000"), "{zero}");
    let huge = spawn(SpawnOptions::new().mailbox(Mailbox::new(1_000_000_000_000)));
    assert!(huge.contains("mailbox.capacity: 1000000000000"), "{huge}");
    let lost = spawn(SpawnOptions::new().dispatcher("nowhere"));
    assert!(lost.contains("\"nowhere\"") && lost.contains("default"), "{lost}");
    let policy = SpawnOptions::new().supervision(Supervision::on_failure(OnFailure::Restart));
    assert!(spawn(policy).contains("factory"));
    assert_eq!(engine.actors(), 0);
}

// Promises: P1.12, P1.13.
#[test]
fn messages_told_before_the_start_wait_and_starting_twice_is_an_error() {
    let engine = Engine::builder().threads(1).paused(true).build().unwrap();
    let (mut collect, seen) = collector();
    let actor = engine
        .spawn_fn(move |n: u8, _| {
            collect(n);
            Ok(())
        })
        .unwrap();
    (0..3).for_each(|n| assert_eq!(actor.tell(n).unwrap(), Sent::Accepted));
    assert_eq!(actor.statistics().handled, 0);
    engine.start().unwrap();
    assert!(matches!(engine.start(), Err(EngineError::AlreadyStarted)));
    assert_eq!([wait(&seen), wait(&seen), wait(&seen)], [0, 1, 2]);
}
