//! Subjects and timers.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidewire_engine::*;

use crate::support::{PATIENCE, drain, engine, wait};
use crate::{block_on, collector, held};

// Promises: P6.4, P6.5.
#[test]
fn subjects_deliver_once_for_each_matching_subscription() {
    let engine = engine(1);
    let (mut collect, seen) = collector();
    let actor = engine
        .spawn_fn(move |n: u8, _| {
            collect(n);
            Ok(())
        })
        .unwrap();
    engine.subscribe("orders.*", &actor).unwrap();
    engine.subscribe("orders.>", &actor).unwrap();
    assert_eq!(engine.publish("orders.created", 1_u8).unwrap().accepted, 2);
    assert_eq!(engine.publish("orders.eu.created", 2_u8).unwrap().accepted, 1);
    assert_eq!(engine.publish("orders", 3_u8).unwrap().accepted, 0);
    assert_eq!([wait(&seen), wait(&seen), wait(&seen)], [1, 1, 2]);
    assert_eq!(engine.set_subscriptions(&["a.b", "orders.>"], &actor).unwrap(), ["a.b", "orders.>"]);
    assert_eq!(engine.unsubscribe("a.b", &actor), ["orders.>"]);
    assert_eq!(engine.unsubscribe_all(&actor), 1);
    assert_eq!(engine.publish("orders.created", 4_u8).unwrap().accepted, 0);
    assert!(engine.publish("orders..created", 5_u8).is_err());
    assert!(engine.subscribe("orders.>.x", &actor).is_err());
}

// Promises: P6.6, P6.7, P6.8.
#[test]
fn a_queue_group_shares_and_a_full_subscriber_is_reported() {
    let engine = engine(1);
    let counts = Arc::new(Mutex::new([0; 2]));
    for who in 0..2 {
        let counts = Arc::clone(&counts);
        let member = engine
            .spawn_fn(move |_: u8, _| {
                counts.lock().unwrap()[who] += 1;
                Ok(())
            })
            .unwrap();
        engine.subscribe_in("jobs.*", Some("workers"), &member).unwrap();
    }
    (0..100_u8).for_each(|n| assert_eq!(engine.publish("jobs.a", n).unwrap().accepted, 1));
    let (full, gate) = held(&engine, SpawnOptions::new().mailbox(Mailbox::new(1)), 0_u16, |_| {});
    engine.subscribe("news.x", &full).unwrap();
    assert_eq!(engine.publish("news.x", 1_u16).unwrap(), Published { accepted: 1, refused: 0 });
    assert_eq!(engine.publish("news.x", 2_u16).unwrap(), Published { accepted: 0, refused: 1 });
    assert_eq!(engine.dead_letters().list()[0].reason, DeadReason::MailboxFull);
    gate.send(()).unwrap();
    engine.shutdown(PATIENCE);
    assert_eq!(*counts.lock().unwrap(), [50, 50]);
}

// Promises: P6.4, P6.12.
#[test]
fn a_subject_with_many_subscribers_follows_subscriptions_and_ends() {
    let engine = engine(1);
    let (sender, seen) = std::sync::mpsc::channel();
    let spawn = || {
        let sender = sender.clone();
        engine.spawn_fn(move |n: u32, _| Ok(sender.send(n)?)).unwrap()
    };
    let actors: Vec<_> = (0..20).map(|_| spawn()).collect();
    let subscriptions: Vec<_> = actors.iter().map(|actor| engine.subscribe("ticks.>", actor).unwrap()).collect();
    let publish = |n| engine.publish("ticks.a", n).unwrap().accepted;
    // The second is delivered from what the first has found.
    assert_eq!((publish(1_u32), publish(2)), (20, 20));
    assert!(subscriptions[3].unsubscribe());
    assert_eq!((publish(3), publish(4)), (19, 19));
    let late = spawn();
    engine.subscribe_in("ticks.*", Some("group"), &late).unwrap();
    assert_eq!((publish(5), publish(6)), (20, 20));
    assert_eq!(engine.publish("ticks.b", 7_u32).unwrap().accepted, 20, "subjects are told apart");
    actors[0].stop(Stop::drain(PATIENCE)).wait().unwrap();
    late.stop(Stop::drain(PATIENCE)).wait().unwrap();
    assert_eq!((publish(8), publish(9)), (18, 18));
    engine.shutdown(PATIENCE);
    let mut got = [0; 10];
    seen.try_iter().for_each(|n| got[n as usize] += 1);
    assert_eq!(got, [0, 20, 20, 19, 19, 20, 20, 20, 18, 18]);
}

#[test]
fn a_plain_listener_gets_no_requests() {
    let engine = engine(1);
    let actors: Vec<ActorRef<u8>> = (0..3).map(|_| engine.spawn_fn(|_: u8, _| Ok(())).unwrap()).collect();
    engine.listen_in("quote", None, &actors[0]).unwrap();
    engine.listen_in("quote", Some("desk"), &actors[1]).unwrap();
    assert_eq!(engine.responder::<u8>("quote").unwrap().map(|found| found.id()), None);
    engine.subscribe_in("quote", Some("desk"), &actors[2]).unwrap();
    for _ in 0..4 {
        assert_eq!(engine.responder::<u8>("quote").unwrap().map(|found| found.id()), Some(actors[2].id()));
    }
    assert_eq!(engine.publish("quote", 1_u8).unwrap().accepted, 2);
}

// Promises: P9.1, P9.5, P9.8.
#[test]
fn timers_say_how_they_ended_and_repeat_until_they_are_cancelled() {
    let engine = engine(1);
    let (mut collect, seen) = collector();
    let actor = engine
        .spawn_fn(move |n: u8, _| {
            collect((n, Instant::now()));
            Ok(())
        })
        .unwrap();
    let began = Instant::now();
    let once = engine.schedule(Duration::from_millis(5), &actor, 1);
    let (n, at) = wait(&seen);
    assert_eq!(n, 1);
    assert!(at - began >= Duration::from_millis(5), "a timer never fires early");
    assert!(!once.cancel());
    let beat = engine.every(Duration::from_millis(1), &actor, 2);
    (0..5).for_each(|_| assert_eq!(wait(&seen).0, 2));
    beat.cancel();
    assert_eq!(beat.outcome(), Some(TimerOutcome::Cancelled));
    actor.stop(drain()).wait().unwrap();
    let nobody = engine.schedule(Duration::ZERO, &actor, 3);
    let (full, gate) = held(&engine, SpawnOptions::new().mailbox(Mailbox::new(1)), 0_u8, |_| {});
    full.tell(1).unwrap();
    let refused = engine.schedule(Duration::ZERO, &full, 4);
    for (timer, outcome) in
        [(once, TimerOutcome::Delivered), (nobody, TimerOutcome::NoTarget), (refused, TimerOutcome::MailboxFull)]
    {
        assert_eq!(block_on(timer.finished()), outcome);
    }
    gate.send(()).unwrap();
}
