//! Stops, dead letters, statistics, and actors that are futures.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use tidewire_engine::*;

use crate::asking::{Adder, Sum};
use crate::failing::{Watcher, fragile};
use crate::support::{PATIENCE, drain, engine, wait};
use crate::{Ctx, block_on, held};

// Promises: P3.11, P8.1, P8.3, P8.5, P8.9.
#[test]
fn a_stop_without_drain_gives_back_what_waits() {
    let engine = engine(1);
    let (actor, gate) = held(&engine, SpawnOptions::new(), 0, |n: u8| panic!("{n} must not be handled"));
    [1, 2, 3].into_iter().for_each(|n| assert_eq!(actor.tell(n).unwrap(), Sent::Accepted));
    let stopping = actor.stop(Stop::now(PATIENCE));
    let refused = actor.tell(4).unwrap_err();
    assert!(refused.is_stopped());
    gate.send(()).unwrap();
    let report = stopping.wait().unwrap();
    assert_eq!(report.returned, [1, 2, 3]);
    assert_eq!(report.ledger, Ledger { accepted: 4, handled: 1, returned: 3, dead_lettered: 0 });
    assert_eq!(actor.stop(drain()).wait().unwrap().ledger, report.ledger, "a second stop has the same ledger");
}

// Promises: P8.12.
#[test]
fn an_actor_can_stop_itself_but_not_wait_for_it() {
    let engine = engine(1);
    let (report, reported) = channel();
    let actor = engine
        .spawn_fn(move |(): (), ctx: &mut Ctx<'_, ()>| {
            let waits = ctx.me().stop(drain()).wait().unwrap_err();
            report.send(waits.to_string())?;
            Ok(())
        })
        .unwrap();
    actor.tell(()).unwrap();
    assert!(wait(&reported).contains("waits for its own stop"));
    assert_eq!(actor.stop(drain()).wait().unwrap().ledger.handled, 1);
}

// Promises: P8.12.
#[test]
fn a_child_can_stop_its_parent_but_not_wait_for_it() {
    let engine = engine(2);
    let (report, reported) = channel();
    let parent = engine
        .spawn_fn(move |(): (), ctx: &mut Ctx<'_, ()>| {
            let (grandparent, report) = (ctx.me(), report.clone());
            let child = move |(): (), ctx: &mut Ctx<'_, ()>| {
                let (grandparent, report) = (grandparent.clone(), report.clone());
                let grandchild = ctx.spawn_child(SpawnOptions::new(), move || {
                    let (grandparent, report) = (grandparent.clone(), report.clone());
                    Of(Box::new(move || {
                        let waits = grandparent.stop(drain()).wait().unwrap_err();
                        report.send(waits.to_string()).unwrap();
                    }))
                })?;
                grandchild.tell(())?;
                Ok(())
            };
            let child = ctx.spawn_child(SpawnOptions::new(), move || {
                let child = child.clone();
                OfContext(Box::new(move |ctx| child((), ctx)))
            })?;
            Ok(child.tell(()).map(drop)?)
        })
        .unwrap();
    parent.tell(()).unwrap();
    assert!(wait(&reported).contains("or in that of a child"));
    assert_eq!(parent.stop(drain()).wait().unwrap().reason, StopReason::Stopped);
}

/// A child that does something.
struct Of(Box<dyn FnMut() + Send>);

impl Actor for Of {
    type Message = ();

    fn receive(&mut self, (): (), _: &mut Ctx<'_, ()>) -> Result<(), Fault> {
        (self.0)();
        Ok(())
    }
}

type WithContext = Box<dyn FnMut(&mut Ctx<'_, ()>) -> Result<(), Fault> + Send>;

/// A child that does something with its context.
struct OfContext(WithContext);

impl Actor for OfContext {
    type Message = ();

    fn receive(&mut self, (): (), ctx: &mut Ctx<'_, ()>) -> Result<(), Fault> {
        (self.0)(ctx)
    }
}

// Promises: P8.6, P8.7.
#[test]
fn a_stop_that_runs_out_of_time_names_the_stuck_handler_and_frees_the_name() {
    let engine = engine(2);
    let (actor, gate) = held(&engine, SpawnOptions::new().name("stuck"), 0, |_: u8| {});
    actor.tell(1).unwrap();
    let report = actor.stop(Stop::drain(Duration::from_millis(10))).wait().unwrap();
    assert_eq!(report.reason, StopReason::Abandoned);
    assert_eq!(report.ledger, Ledger { accepted: 2, handled: 0, returned: 0, dead_lettered: 2 });
    assert_eq!(report.stuck.unwrap().name.as_deref(), Some("stuck"));
    // Both are in the list when they are counted; what its thread has is not known yet.
    let of_stuck = |letter: &DeadLetter| (letter.reason, letter.message.is_some());
    assert_eq!(engine.dead_letters().counts()[&DeadReason::Abandoned], 2);
    let letters: Vec<_> = engine.dead_letters().list().iter().map(of_stuck).collect();
    assert_eq!(letters.iter().filter(|(reason, _)| *reason == DeadReason::Abandoned).count(), 2);
    engine.spawn_fn_with(SpawnOptions::new().name("stuck"), |_: u8, _| Ok(())).unwrap();
    gate.send(()).unwrap();
    assert!(engine.shutdown(PATIENCE).stuck.is_empty());
    // Now it is, of the message that had not begun.
    let letters = engine.dead_letters().list();
    let kept =
        |letter: &DeadLetter| letter.message.as_ref().and_then(|kept| kept.lock().as_ref()?.downcast_ref().copied());
    let mut messages: Vec<Option<u8>> = letters.iter().map(kept).collect();
    messages.sort();
    assert_eq!(messages, [None, Some(1)]);
}

#[test]
fn a_message_that_fails_in_an_actor_that_was_abandoned_has_one_letter() {
    let engine = engine(2);
    let (entered, inside) = channel();
    let (gate, open) = channel::<()>();
    let fails = move |_: u8, _: &mut Ctx<'_, u8>| {
        entered.send(())?;
        open.recv()?;
        Err("too late".into())
    };
    let actor = engine.spawn_fn(fails).unwrap();
    actor.tell(1).unwrap();
    wait(&inside);
    let report = actor.stop(Stop::drain(Duration::from_millis(10))).wait().unwrap();
    assert_eq!(report.ledger.dead_lettered, 1);
    let of = |letter: DeadLetter| (letter.reason, letter.error);
    let letters = || engine.dead_letters().list().into_iter().map(of).collect::<Vec<_>>();
    assert_eq!(letters(), [(DeadReason::Abandoned, None)]);
    gate.send(()).unwrap();
    engine.shutdown(PATIENCE);
    assert_eq!(letters(), [(DeadReason::Abandoned, Some("too late".into()))]);
}

#[test]
fn waits_for_an_abandoned_actor_end_with_its_loss() {
    let engine = engine(2);
    let (gate, open) = channel::<()>();
    let (entered, inside) = channel();
    let actor = engine
        .spawn_fn(move |_: Reply<()>, _| {
            entered.send(())?;
            Ok(open.recv()?)
        })
        .unwrap();
    let mut asks = [Duration::MAX, Duration::MAX, 2 * PATIENCE].map(|after| Box::pin(actor.ask(|reply| reply, after)));
    let mut context = std::task::Context::from_waker(Waker::noop());
    assert!(asks.iter_mut().all(|ask| ask.as_mut().poll(&mut context).is_pending()));
    wait(&inside);
    actor.stop(Stop::drain(Duration::from_millis(10))).wait().unwrap();
    let (tell, told) = channel();
    std::thread::spawn(move || asks.into_iter().for_each(|ask| tell.send(block_on(ask)).unwrap()));
    for _ in 0..3 {
        assert!(matches!(wait(&told), Err(AskError::Lost { reason: DeadReason::Abandoned, .. })));
    }
    drop(gate);
}

#[test]
fn a_shutdown_is_hastened_by_whoever_has_less_patience() {
    let engine = engine(2);
    let (actor, gate) = held(&engine, SpawnOptions::new(), 0, |_: u8| {});
    actor.tell(1).unwrap();
    let patient = engine.begin_shutdown(true, PATIENCE);
    let hasty = block_on(engine.begin_shutdown(false, Duration::from_millis(10)));
    assert_eq!((hasty.stuck.len(), hasty.ledger.dead_lettered), (1, 2));
    assert_eq!(block_on(patient).ledger, hasty.ledger);
    gate.send(()).unwrap();
}

// Promises: P16.8.
#[test]
fn an_actor_and_a_child_begin_no_message_once_a_shutdown_without_drain_has_begun() {
    let engine = engine(2);
    let (actor, gate) = held(&engine, SpawnOptions::new(), 0, |n: u8| panic!("{n} must not be handled"));
    actor.tell(1).unwrap();
    let (open, is_open) = channel::<()>();
    let ((begun, has_begun), (told, has_told)) = (channel(), channel());
    let parent = engine.spawn_fn(move |is_open: std::sync::mpsc::Receiver<()>, ctx: &mut Ctx<'_, _>| {
        let (begun, is_open) = (begun.clone(), Arc::new(Mutex::new(is_open)));
        let child = ctx.spawn_child(SpawnOptions::new(), move || {
            let (begun, is_open) = (begun.clone(), Arc::clone(&is_open));
            Of(Box::new(move || {
                begun.send(()).unwrap();
                is_open.lock().unwrap().recv().unwrap();
            }))
        })?;
        (0..2).try_for_each(|_| child.tell(()).map(drop))?;
        Ok(told.send(())?)
    });
    parent.unwrap().tell(is_open).unwrap();
    wait(&has_told);
    wait(&has_begun);
    let stopping = engine.begin_shutdown(false, PATIENCE);
    gate.send(()).unwrap();
    open.send(()).unwrap();
    let ledger = block_on(stopping).ledger;
    assert_eq!((ledger.handled, ledger.dead_lettered), (3, 2));
    assert!(has_begun.try_recv().is_err());
}

#[test]
fn values_of_an_abandoned_future_are_dropped_with_the_last_thread() {
    for is_woken in [false, true] {
        let engine = engine(1);
        let ((holds, dropped), (begun, has_begun)) = (channel::<()>(), channel());
        let place = Arc::new(Mutex::new(None));
        let woken = is_woken.then(|| Arc::clone(&place));
        let waits = move |inbox: Inbox<()>| {
            let (mut begun, place) = (Some(begun.clone()), Arc::clone(&place));
            // It holds the actor that it is the future of.
            let held = (inbox, holds.clone());
            std::future::poll_fn(move |task| {
                let _held = &held;
                *place.lock().unwrap() = Some(task.waker().clone());
                begun.take().map_or(Ok(()), |begun| begun.send(()))?;
                Poll::Pending
            })
        };
        engine.spawn_task(SpawnOptions::new(), waits).unwrap();
        wait(&has_begun);
        // Its only thread has the future in line behind a handler that does not end, or has nobody
        // in line.
        let ((open, gate), (stands, is_held)) = (channel::<()>(), channel());
        let stuck = engine.spawn_fn(move |(): (), _| {
            woken.as_ref().and_then(|place| place.lock().unwrap().take()).into_iter().for_each(Waker::wake);
            stands.send(())?;
            Ok(gate.recv()?)
        });
        stuck.unwrap().tell(()).unwrap();
        wait(&is_held);
        let report = engine.shutdown(Duration::ZERO);
        assert_eq!((report.stuck.len(), report.threads.len()), (2, 1));
        open.send(()).unwrap();
        assert_eq!(dropped.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected), "{is_woken}");
    }
}

/// A future that waits for ever, and holds the actor that it is the future of.
fn waits<T: Clone + Send + 'static>(engine: &Engine, holds: T) -> ActorRef<()> {
    let (begun, has_begun) = channel();
    let waits = move |inbox: Inbox<()>| {
        let (begun, held) = (begun.clone(), (inbox, holds.clone()));
        async move {
            let _held = held;
            begun.send(())?;
            std::future::pending().await
        }
    };
    let actor = engine.spawn_task(SpawnOptions::new(), waits).unwrap();
    wait(&has_begun);
    actor
}

#[test]
fn values_of_an_abandoned_future_are_dropped_by_a_free_thread() {
    let engine = engine(2);
    let (holds, dropped) = channel::<()>();
    let actor = waits(&engine, holds);
    let report = actor.stop(Stop::drain(Duration::from_millis(10))).wait().unwrap();
    assert_eq!(report.reason, StopReason::Abandoned);
    assert_eq!(dropped.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
}

#[test]
fn values_of_an_abandoned_future_may_shut_its_engine_down() {
    struct Shuts(Engine);
    impl Drop for Shuts {
        fn drop(&mut self) {
            self.0.shutdown(Duration::ZERO);
        }
    }
    let engine = engine(1);
    let (_actor, gate) = held(&engine, SpawnOptions::new(), 0, |_: u8| {});
    let shuts = Arc::new(Shuts(engine.clone()));
    // The only thread is stuck, and never begins with it: whoever shuts down lets go of it.
    let begins = move |_: Inbox<()>| std::future::ready(Err(format!("{:p}", shuts).into()));
    engine.spawn_task(SpawnOptions::new(), begins).unwrap();
    let (done, is_done) = channel();
    std::thread::spawn(move || done.send(engine.shutdown(Duration::ZERO).stuck.len()));
    assert_eq!(wait(&is_done), 2);
    gate.send(()).unwrap();
}

// Promises: P7.16.
#[test]
fn dead_letters_are_bounded_and_can_be_told_again() {
    let config = config::EngineConfig { dead_letters: 3, ..config::EngineConfig::default() };
    let engine = Engine::builder().config(config).threads(1).build().unwrap();
    let told = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&told);
    let added = move || {
        counted.fetch_add(1, Ordering::Relaxed);
    };
    assert!(engine.dead_letters().on_added(added));
    let fail = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let (actor, seen) = fragile(&engine, Supervision::default());
    (0..5).for_each(|_| assert_eq!(actor.tell(0).unwrap(), Sent::Accepted));
    actor.tell(9).unwrap();
    assert_eq!(wait(&seen), [9]);
    assert_eq!((engine.dead_letters().len(), engine.dead_letters().let_go()), (3, 2));
    assert_eq!(told.load(Ordering::Relaxed), 5, "each is told of once, kept or not");
    assert!(!engine.dead_letters().on_added(|| {}), "the first call stays");
    let letter = engine.dead_letters().list().remove(0);
    engine.dead_letters().requeue(letter.number).unwrap();
    assert_eq!(engine.dead_letters().requeue(letter.number), Err(RequeueError::Unknown));
    drop(fail);
    let ledger = actor.stop(drain()).wait().unwrap().ledger;
    assert_eq!(ledger.dead_lettered, 6);
    assert_eq!(engine.dead_letters().clear(), 3);
}

// Promises: P1.5, P8.17.
#[test]
fn an_engine_can_be_shut_down_twice_and_a_new_one_made() {
    for _ in 0..3 {
        let engine = engine(2);
        let actor = engine.spawn_fn(|_: u8, _| Ok(())).unwrap();
        actor.tell(1).unwrap();
        let report = engine.shutdown(PATIENCE);
        assert_eq!((report.actors, report.ledger.handled), (1, 1));
        assert_eq!(engine.shutdown(PATIENCE).ledger, report.ledger);
        assert!(matches!(engine.spawn_fn(|_: u8, _| Ok(())), Err(SpawnError::EngineStopped)));
        assert!(actor.tell(2).is_err());
    }
}

#[test]
fn the_last_engine_can_be_dropped_inside_a_handler() {
    let engine = engine(1);
    let (done, finished) = channel();
    let actor = engine
        .spawn_fn(move |engine: Engine, _| {
            drop(engine);
            Ok(done.send(())?)
        })
        .unwrap();
    drop(actor.tell(engine));
    wait(&finished);
}

// Promises: P7.15, P8.10.
#[test]
fn an_actor_that_is_a_future_handles_messages_and_can_ask() {
    let engine = engine(1);
    let adder = engine.spawn(Adder::default()).unwrap();
    let asked = adder.clone();
    let (report, reported) = channel();
    let task = engine
        .spawn_task(SpawnOptions::new(), move |mut inbox: Inbox<u64>| {
            let (adder, report) = (asked.clone(), report.clone());
            async move {
                while let Some(n) = inbox.recv().await {
                    adder.send(Sum::Add(n)).await?;
                    report.send(adder.ask(Sum::Get, PATIENCE).await?)?;
                }
                Ok(())
            }
        })
        .unwrap();
    (1..=3).for_each(|n| assert_eq!(task.tell(n).unwrap(), Sent::Accepted));
    assert_eq!([wait(&reported), wait(&reported), wait(&reported)], [1, 3, 6]);
    assert_eq!(task.stop(drain()).wait().unwrap().ledger.handled, 3);
    let short = engine.spawn_task(SpawnOptions::new(), |_: Inbox<()>| async { Ok(()) }).unwrap();
    let (done, finished) = channel();
    engine.spawn(Watcher { watched: short.clone(), done }).unwrap();
    assert_eq!(wait(&finished), StopReason::Finished);
    assert_eq!(short.stop(drain()).wait().unwrap().reason, StopReason::Finished);
}

// Promises: P10.1.
#[test]
fn statistics_count_what_happened() {
    let engine = engine(1);
    let actor =
        engine.spawn_fn_with(
            SpawnOptions::new().name("counted"),
            |n: u8, _| if n == 0 { Err("zero".into()) } else { Ok(()) },
        );
    let actor = actor.unwrap();
    (0..10).for_each(|n| assert_eq!(actor.tell(n).unwrap(), Sent::Accepted));
    let probe = engine.spawn_fn(|reply: Reply<()>, _| {
        reply.send(());
        Ok(())
    });
    probe.unwrap().ask(|reply| reply, PATIENCE).wait().unwrap();
    let all = engine.statistics();
    let row = all.actors.iter().find(|row| row.name.as_deref() == Some("counted")).unwrap();
    assert_eq!((row.accepted, row.handled, row.failed, row.depth, row.capacity), (10, 9, 1, 0, 10_000));
    assert!(row.timings.queueing.count() > 0);
    let default = all.dispatchers.iter().find(|row| &*row.name == DEFAULT_DISPATCHER).unwrap();
    assert_eq!((default.actors, default.failed), (2, 1));
    assert_eq!(all.dead_letters[&DeadReason::Failed], 1);
}

/// Three stages, each of which tells the next one what it was told, and what has arrived at the
/// end.
fn pipeline(engine: &Engine) -> (ActorRef<u64>, Arc<AtomicUsize>) {
    let stored = Arc::new(AtomicUsize::new(0));
    let store = Arc::clone(&stored);
    // The last one is spawned last: a stop in the order of their ids would close it after the
    // others, and in any other order before.
    let place = Arc::new(Mutex::new(None::<ActorRef<u64>>));
    let (first_next, middle_next) = (Arc::clone(&place), Arc::new(Mutex::new(None::<ActorRef<u64>>)));
    let last_of = Arc::clone(&middle_next);
    let pass = |next: Arc<Mutex<Option<ActorRef<u64>>>>| {
        move |n: u64, _: &mut Ctx<'_, u64>| {
            std::thread::yield_now();
            next.lock().unwrap().as_ref().unwrap().tell(n).map(drop).map_err(|refused| refused.to_string().into())
        }
    };
    let last = engine
        .spawn_fn(move |_: u64, _| {
            store.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
        .unwrap();
    *last_of.lock().unwrap() = Some(last);
    *place.lock().unwrap() = Some(engine.spawn_fn(pass(middle_next)).unwrap());
    (engine.spawn_fn(pass(first_next)).unwrap(), stored)
}

// Promises: P8.13.
#[test]
fn a_shutdown_stops_nobody_before_what_the_actors_send_each_other_has_arrived() {
    for _ in 0..20 {
        let engine = engine(2);
        let (first, stored) = pipeline(&engine);
        (0..200).for_each(|n| assert_eq!(first.tell(n).unwrap(), Sent::Accepted));
        let report = engine.shutdown(PATIENCE);
        assert_eq!(stored.load(Ordering::Relaxed), 200);
        assert_eq!(report.ledger, Ledger { accepted: 600, handled: 600, returned: 0, dead_lettered: 0 });
    }
}

// Promises: P8.18.
#[test]
fn an_engine_is_idle_when_nothing_waits_runs_or_is_about_to_be_sent() {
    let engine = engine(2);
    let (first, stored) = pipeline(&engine);
    let start = engine.idle().wait_until(std::time::Instant::now() + PATIENCE).unwrap();
    assert_eq!(engine.mark(), Some(start));
    for round in 1..=50 {
        (0..20).for_each(|n| assert_eq!(first.tell(n).unwrap(), Sent::Accepted));
        let mark = engine.idle().wait_until(std::time::Instant::now() + PATIENCE).unwrap();
        assert_eq!(stored.load(Ordering::Relaxed), round * 20);
        assert_ne!(mark, start);
        assert_eq!(engine.mark(), Some(mark));
    }
}

#[test]
fn a_wait_for_an_actor_that_does_not_end_ends_at_its_own_limit() {
    let engine = engine(2);
    let (_actor, gate) = held(&engine, SpawnOptions::new().name("stuck"), 0, |_: u8| {});
    assert_eq!(engine.idle().wait_until(std::time::Instant::now() + Duration::from_millis(10)), None);
    assert_eq!(engine.mark(), None);
    assert_eq!(engine.busy()[0].name.as_deref(), Some("stuck"));
    gate.send(()).unwrap();
    assert!(engine.idle().wait_until(std::time::Instant::now() + PATIENCE).is_some());
    assert!(engine.busy().is_empty());
}

// Promises: P8.13.
#[test]
fn two_actors_that_never_leave_each_other_alone_are_stopped_in_their_time() {
    let engine = engine(2);
    let place = Arc::new(Mutex::new(None::<ActorRef<u64>>));
    let other = Arc::clone(&place);
    let pong = move |n: u64, ctx: &mut Ctx<'_, u64>| {
        let next = other.lock().unwrap().clone().unwrap_or_else(|| ctx.me());
        let _ = next.tell(n + 1);
        Ok(())
    };
    let actor = engine.spawn_fn(pong).unwrap();
    *place.lock().unwrap() = Some(
        engine
            .spawn_fn(move |n: u64, _: &mut Ctx<'_, u64>| {
                let _ = actor.tell(n);
                Ok(())
            })
            .unwrap(),
    );
    place.lock().unwrap().as_ref().unwrap().tell(0).unwrap();
    // A quarter of the time is for the stop itself, which a busy machine may take its time with.
    let report = engine.shutdown(Duration::from_secs(2));
    assert!(report.ledger.balances());
    assert!(report.stuck.is_empty(), "{:?}", report.stuck);
    place.lock().unwrap().take();
}
