//! The cases that must hold under load: nothing lost, nothing twice, nothing hanging. Alone in its
//! process, because that load would make stories late that look at the time.

// A test may let a channel grow: what goes through it is counted.
#![allow(clippy::disallowed_methods, missing_docs)]

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use support::{PATIENCE, drain, engine, engine_with, wait};
use tidewire_engine::{ActorRef, AskError, Context, Mailbox, Overflow, Reply, SpawnOptions, Stop, TimerOutcome};

/// A small generator for seeded choices.
struct Seeded(u64);

impl Seeded {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

// Promises: P1.1, P1.2, P2.1.
#[test]
fn four_senders_lose_nothing_and_keep_their_order() {
    const EACH: u64 = 100_000;
    let engine = engine(4);
    let mut next = [0_u64; 4];
    let (done, finished) = channel();
    let mut seen = 0;
    let sink = engine
        .spawn_fn(move |(sender, n): (usize, u64), _| {
            assert_eq!(next[sender], n, "sender {sender} is out of order");
            next[sender] += 1;
            seen += 1;
            if seen == 4 * EACH {
                done.send(()).unwrap();
            }
            Ok(())
        })
        .unwrap();
    thread::scope(|scope| {
        for sender in 0..4 {
            let sink = sink.clone();
            scope.spawn(move || {
                (0..EACH).for_each(|n| {
                    sink.send_blocking((sender, n)).unwrap();
                })
            });
        }
    });
    wait(&finished);
    let report = sink.stop(drain()).wait().unwrap();
    assert_eq!(report.ledger.handled, 4 * EACH);
    assert_eq!(engine.dead_letters().len(), 0);
}

// Promises: P9.3, P9.4.
#[test]
fn a_timer_is_fired_or_cancelled_never_both_never_neither() {
    const TIMERS: usize = 200_000;
    let engine = engine(2);
    let fired = Arc::new((0..TIMERS).map(|_| AtomicBool::new(false)).collect::<Vec<_>>());
    let marks = Arc::clone(&fired);
    let options = SpawnOptions::new().mailbox(Mailbox::new(1_000_000));
    let target = engine
        .spawn_fn_with(options, move |n: usize, _| {
            assert!(!marks[n].swap(true, SeqCst), "timer {n} fired twice");
            Ok(())
        })
        .unwrap();
    let cancelled: Vec<bool> = (0..TIMERS)
        .map(|n| {
            let timer = engine.schedule(Duration::ZERO, &target, n);
            let cancelled = timer.cancel();
            if cancelled {
                assert_eq!(timer.outcome(), Some(TimerOutcome::Cancelled));
            }
            cancelled
        })
        .collect();
    // A timer behind all the others: when it has fired, so have they.
    let (done, finished) = channel();
    let last = engine.spawn_fn(move |(): (), _| Ok(done.send(())?)).unwrap();
    engine.schedule(Duration::from_millis(1), &last, ());
    wait(&finished);
    target.stop(drain()).wait().unwrap();
    for n in 0..TIMERS {
        assert_ne!(cancelled[n], fired[n].load(SeqCst), "timer {n}: cancelled and fired must differ");
    }
}

// Promises: P2.8.
#[test]
fn behaviours_change_in_order_with_messages() {
    let engine = engine(2);
    let base = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&base);
    let actor = engine
        .spawn_fn(move |_: u64, _| {
            seen.fetch_add(1, SeqCst);
            Ok(())
        })
        .unwrap();
    let above = Arc::new(AtomicU64::new(0));
    for _ in 0..500 {
        let above = Arc::clone(&above);
        let change = move |_: u64, _: &mut tidewire_engine::Context<'_, u64>| {
            above.fetch_add(1, SeqCst);
            Ok(())
        };
        actor.request_become(change, true).unwrap();
        actor.send_blocking(1).unwrap();
        actor.request_unbecome().unwrap();
        actor.send_blocking(2).unwrap();
    }
    // Depth 100 and back, and ten more unbecomes than there are behaviours: the base is never lost.
    for depth in 0..100 {
        let above = Arc::clone(&above);
        actor
            .request_become(
                move |_, _| {
                    above.fetch_add(depth - depth, SeqCst);
                    Ok(())
                },
                true,
            )
            .unwrap();
    }
    (0..110).for_each(|_| {
        actor.request_unbecome().unwrap();
    });
    actor.send_blocking(3).unwrap();
    thread::scope(|scope| {
        for _ in 0..20 {
            let actor = actor.clone();
            scope.spawn(move || {
                for _ in 0..50 {
                    actor.request_become(|_, _| Ok(()), true).unwrap();
                    actor.request_unbecome().unwrap();
                }
            });
        }
    });
    actor.send_blocking(4).unwrap();
    let ledger = actor.stop(drain()).wait().unwrap().ledger;
    assert!(ledger.balances());
    assert_eq!(above.load(SeqCst), 500);
    assert_eq!(base.load(SeqCst), 502);
}

// Promises: P8.2.
#[test]
fn fifty_stops_at_once_handle_everything_that_was_queued() {
    let engine = engine(4);
    let actors: Vec<ActorRef<u8>> = (0..50)
        .map(|_| {
            let slow = |_: u8, _: &mut tidewire_engine::Context<'_, u8>| {
                thread::park_timeout(Duration::from_millis(1));
                Ok(())
            };
            engine.spawn_fn(slow).unwrap()
        })
        .collect();
    for actor in &actors {
        (0..50).for_each(|n| {
            actor.tell(n).unwrap();
        });
    }
    thread::scope(|scope| {
        for actor in &actors {
            scope.spawn(move || {
                let ledger = actor.stop(drain()).wait().unwrap().ledger;
                assert_eq!((ledger.accepted, ledger.handled, ledger.dead_lettered), (50, 50, 0));
            });
        }
    });
}

// Promises: P3.11, P8.4.
#[test]
fn every_message_accepted_while_stopping_is_in_the_ledger() {
    for round in 0..50 {
        let engine = engine(2);
        let handled = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&handled);
        let actor = engine
            .spawn_fn(move |_: u64, _| {
                counted.fetch_add(1, SeqCst);
                Ok(())
            })
            .unwrap();
        let accepted = Arc::new(AtomicU64::new(0));
        let (started, start) = channel();
        let posters: Vec<_> = (0..5)
            .map(|_| {
                let (actor, accepted, started) = (actor.clone(), Arc::clone(&accepted), started.clone());
                thread::spawn(move || {
                    let mut n = 0;
                    while actor.send_blocking(n).is_ok() {
                        accepted.fetch_add(1, SeqCst);
                        n += 1;
                        if n == 20 {
                            started.send(()).unwrap();
                        }
                    }
                })
            })
            .collect();
        (0..5).for_each(|_| wait(&start));
        let stop = if round % 2 == 0 { drain() } else { Stop::now(PATIENCE) };
        let report = actor.stop(stop).wait().unwrap();
        posters.into_iter().for_each(|poster| poster.join().unwrap());
        assert!(report.ledger.balances(), "round {round}: {:?}", report.ledger);
        assert_eq!(report.ledger.accepted, accepted.load(SeqCst), "round {round}");
        assert_eq!(report.ledger.handled, handled.load(SeqCst), "round {round}");
        assert_eq!(report.ledger.returned, report.returned.len() as u64, "round {round}");
    }
}

// Promises: P6.10.
#[test]
fn a_constant_subscriber_misses_nothing_while_others_come_and_go() {
    const BROADCASTS: u64 = 20_000;
    let engine = engine(2);
    let (done, finished) = channel();
    let mut next = 0;
    let options = || SpawnOptions::new().mailbox(Mailbox::new(100_000));
    let constant = engine
        .spawn_fn_with(options(), move |n: u64, _| {
            assert_eq!(n, next);
            next += 1;
            if next == BROADCASTS {
                done.send(()).unwrap();
            }
            Ok(())
        })
        .unwrap();
    engine.subscribe("news.*", &constant).unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let visitor = engine.spawn_fn_with(options(), |_: u64, _| Ok(())).unwrap();
                while !over.load(SeqCst) {
                    let subscription = engine.subscribe("news.>", &visitor).unwrap();
                    assert!(subscription.unsubscribe());
                    assert!(!subscription.unsubscribe());
                }
            });
        }
        (0..BROADCASTS).for_each(|n| assert!(engine.publish("news.today", n).unwrap().accepted >= 1));
        over.store(true, SeqCst);
    });
    wait(&finished);
}

// Promises: P6.11.
/// Publishers cache the subscriptions of a subject with many subscribers.
#[test]
fn a_subscriber_among_many_gets_messages_of_its_time_and_none_after() {
    const ROUNDS: u64 = 2_000;
    const STAY: usize = 200;
    const COME: usize = 3;
    let engine = engine(2);
    let spawn = |handle: Box<dyn Fn((usize, bool)) + Send>| {
        let options = SpawnOptions::new().mailbox(Mailbox::new(100_000));
        let handle = move |told: (usize, bool), _: &mut Context<'_, (usize, bool)>| {
            handle(told);
            Ok(())
        };
        engine.spawn_fn_with(options, handle).unwrap()
    };
    for _ in 0..STAY {
        engine.subscribe("news.>", &spawn(Box::new(|_| {}))).unwrap();
    }
    let got: [AtomicU64; COME] = std::array::from_fn(|_| AtomicU64::new(0));
    let (got, late) = (Arc::new(got), Arc::new(AtomicBool::new(false)));
    thread::scope(|scope| {
        for me in 0..COME {
            let (got, late, engine) = (Arc::clone(&got), Arc::clone(&late), &engine);
            let visitor = spawn(Box::new(move |(from, meanwhile)| match (from == me, meanwhile) {
                (true, true) => _ = got[me].fetch_add(1, SeqCst),
                (true, false) => late.store(true, SeqCst),
                (false, _) => {}
            }));
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let subscription = engine.subscribe("news.>", &visitor).unwrap();
                    let there = engine.publish("news.today", (me, true)).unwrap().accepted;
                    assert!((STAY + 1..=STAY + COME).contains(&there), "{there} were told");
                    assert!(subscription.unsubscribe());
                    let there = engine.publish("news.today", (me, false)).unwrap().accepted;
                    assert!((STAY..STAY + COME).contains(&there), "{there} were told");
                }
            });
        }
    });
    assert!(engine.shutdown(PATIENCE).ledger.balances());
    assert_eq!(got.each_ref().map(|got| got.load(SeqCst)), [ROUNDS; COME]);
    assert!(!late.load(SeqCst), "somebody was told what was published after it had gone");
}

#[test]
fn each_message_runs_on_its_own_dispatcher() {
    let names = ["north", "east", "south", "west"];
    let engine = engine_with(&names.map(|name| (name, 4)));
    let wrong = Arc::new(AtomicU64::new(0));
    let actors: Vec<ActorRef<u64>> = names
        .iter()
        .map(|name| {
            let wrong = Arc::clone(&wrong);
            let prefix = format!("tidewire-{name}-");
            let check = move |_: u64, _: &mut tidewire_engine::Context<'_, u64>| {
                if !thread::current().name().is_some_and(|thread| thread.starts_with(&prefix)) {
                    wrong.fetch_add(1, SeqCst);
                }
                Ok(())
            };
            engine.spawn_fn_with(SpawnOptions::new().dispatcher(*name), check).unwrap()
        })
        .collect();
    thread::scope(|scope| {
        for sender in 0..16_u64 {
            let actors = &actors;
            scope.spawn(move || {
                (0..6_250).for_each(|n| {
                    actors[(sender % 4) as usize].send_blocking(n).unwrap();
                })
            });
        }
    });
    let handled: u64 = actors.iter().map(|actor| actor.stop(drain()).wait().unwrap().ledger.handled).sum();
    assert_eq!(handled, 100_000);
    assert_eq!(wrong.load(SeqCst), 0);
}

// Promises: P5.1, P5.2.
#[test]
fn two_actors_on_one_thread_take_turns() {
    const EACH: usize = 50_000;
    let engine = engine(1);
    let (gate, open) = sync_channel::<()>(0);
    let first = engine.spawn_fn(move |(): (), _| Ok(open.recv()?)).unwrap();
    first.tell(()).unwrap();
    let order = Arc::new(Mutex::new(Vec::with_capacity(2 * EACH)));
    let actors: Vec<ActorRef<usize>> = (0..2_u8)
        .map(|who| {
            let order = Arc::clone(&order);
            let note = move |_: usize, _: &mut tidewire_engine::Context<'_, usize>| {
                order.lock().unwrap().push(who);
                Ok(())
            };
            engine.spawn_fn_with(SpawnOptions::new().mailbox(Mailbox::new(EACH)), note).unwrap()
        })
        .collect();
    for actor in &actors {
        (0..EACH).for_each(|n| {
            actor.tell(n).unwrap();
        });
    }
    gate.send(()).unwrap();
    actors.iter().for_each(|actor| drop(actor.stop(drain()).wait().unwrap()));
    let order = order.lock().unwrap();
    let first_end = (0..2_u8).map(|who| order.iter().rposition(|other| *other == who).unwrap()).min().unwrap();
    let finished = order[first_end];
    let of_the_other = order[..first_end].iter().filter(|who| **who != finished).count();
    assert!(of_the_other >= EACH / 10, "one finished when the other had done {of_the_other} of {EACH}");
}

// Promises: P8.8, P8.16.
#[test]
fn an_actor_that_blocks_for_ever_does_not_stop_shutdown() {
    let engine = engine(2);
    let (_keep, never) = channel::<()>();
    let (entered, inside) = channel();
    let never = Mutex::new(never);
    let options = SpawnOptions::new().name("stuck");
    let stuck = engine
        .spawn_fn_with(options, move |(): (), _| {
            entered.send(()).unwrap();
            Ok(never.lock().unwrap().recv()?)
        })
        .unwrap();
    let fine = engine.spawn_fn(|_: u64, _| Ok(())).unwrap();
    stuck.tell(()).unwrap();
    stuck.tell(()).unwrap();
    wait(&inside);
    (0..100).for_each(|n| {
        fine.tell(n).unwrap();
    });
    let report = engine.shutdown(Duration::from_millis(200));
    assert_eq!(report.stuck.len(), 1);
    assert_eq!(report.stuck[0].name.as_deref(), Some("stuck"));
    assert!(report.stuck[0].thread.as_deref().is_some_and(|thread| thread.starts_with("tidewire-default-")));
    assert_eq!(report.threads.len(), 1);
    assert_eq!((report.ledger.accepted, report.ledger.handled, report.ledger.dead_lettered), (102, 100, 2));
    assert!(report.ledger.balances());
}

// Promises: P3.1, P3.7, P3.8.
#[test]
fn overflow_policies_under_many_senders_account_for_every_message() {
    for (overflow, seed) in [(Overflow::Wait, 1), (Overflow::Fail, 2), (Overflow::DropNew, 3), (Overflow::DropOld, 4)] {
        let engine = engine(2);
        let counts = Arc::new(Mutex::new(BTreeMap::<&str, u64>::new()));
        let options = SpawnOptions::new().mailbox(Mailbox::new(7).overflow(overflow));
        let actor = engine.spawn_fn_with(options, |_: u64, _| Ok(())).unwrap();
        thread::scope(|scope| {
            for sender in 0..4_u64 {
                let (actor, counts) = (actor.clone(), Arc::clone(&counts));
                scope.spawn(move || {
                    let mut seeded = Seeded(seed * 100 + sender);
                    for n in 0..20_000 {
                        let sent = if seeded.below(2) == 0 { actor.tell(n) } else { actor.send_blocking(n) };
                        let what = match sent {
                            Ok(tidewire_engine::Sent::Accepted) => "accepted",
                            Ok(tidewire_engine::Sent::Dropped) => "dropped",
                            Err(error) if error.is_full() => "full",
                            Err(error) => panic!("{error}"),
                        };
                        *counts.lock().unwrap().entry(what).or_default() += 1;
                    }
                });
            }
        });
        let before = actor.statistics();
        let ledger = actor.stop(drain()).wait().unwrap().ledger;
        let counts = counts.lock().unwrap();
        assert_eq!(counts.values().sum::<u64>(), 80_000);
        assert_eq!(ledger.accepted, counts["accepted"], "{overflow:?}");
        assert!(ledger.balances(), "{overflow:?}: {ledger:?}");
        assert!(before.high_water <= 7, "{overflow:?}: {}", before.high_water);
        match overflow {
            Overflow::DropOld => assert_eq!(ledger.dead_lettered, before.dropped),
            _ => assert_eq!(ledger.dead_lettered, 0),
        }
    }
}

#[test]
fn slots_of_asks_that_are_used_again_give_each_ask_its_own_end_and_deadline() {
    const ASKERS: u64 = 8;
    const EACH: u64 = 20_000;
    let engine = engine(3);
    // Answers at once, from another thread a little later, also where the handler has failed
    // meanwhile, or not at all.
    let (late, later) = sync_channel::<(u64, Reply<u64>)>(1_000);
    let answers = thread::spawn(move || later.into_iter().map(|(n, reply)| reply.send(n)).filter(|sent| !sent).count());
    let mut kept = Vec::new();
    let asked = engine
        .spawn_fn_with(SpawnOptions::new().mailbox(Mailbox::new(100_000)), move |(n, reply): (u64, Reply<u64>), _| {
            match n % 16 {
                0..10 => assert!(reply.send(n)),
                10..12 => late.send((n, reply))?,
                12..15 => {
                    late.send((n, reply))?;
                    return Err("odd".into());
                }
                _ if n % 400 == 15 => kept.push(reply),
                _ => return Err("odd".into()),
            }
            Ok(())
        })
        .unwrap();
    let (done, finished) = channel();
    for asker in 0..ASKERS {
        let (asked, done) = (asked.clone(), done.clone());
        engine
            .spawn_task(SpawnOptions::new(), move |_: tidewire_engine::Inbox<()>| {
                let (asked, done) = (asked.clone(), done.clone());
                async move {
                    let mut ended = 0;
                    for n in 0..EACH {
                        let word = n * ASKERS + asker;
                        let silent = word % 16 == 15 && word % 400 == 15;
                        let patience = if silent { Duration::from_millis(3) } else { PATIENCE };
                        match asked.ask(|reply| (word, reply), patience).await {
                            Ok(answer) => assert_eq!(answer, word, "the reply to another ask"),
                            Err(AskError::Timeout { after, .. }) => assert!(silent && after == patience),
                            Err(AskError::Failed(_)) => assert!(word % 16 >= 12 && !silent),
                            Err(other) => panic!("{other}"),
                        }
                        ended += 1;
                    }
                    done.send(ended)?;
                    Ok(())
                }
            })
            .unwrap();
    }
    drop(done);
    for _ in 0..ASKERS {
        assert_eq!(wait(&finished), EACH);
    }
    assert_eq!(engine.statistics().timers, 0, "slots that rest are no timers that wait");
    engine.shutdown(PATIENCE);
    assert!(answers.join().unwrap() > 0, "no reply came after its ask had failed");
}
