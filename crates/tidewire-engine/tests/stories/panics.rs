//! Panics outside of handlers: in drops, wakers and callbacks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use tidewire_engine::*;

use crate::support::{PATIENCE, drain, engine, wait};
use crate::{Ctx, block_on, held};

/// Does something when it is dropped.
struct Last<F: FnMut()>(F);

impl<F: FnMut()> Drop for Last<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn falls() -> Last<impl FnMut()> {
    Last(|| panic!("on purpose"))
}

// Promises: P7.3.
#[test]
fn a_state_that_panics_as_it_goes_keeps_nobody_from_the_end() {
    let engine = engine(1);
    for _ in 0..3 {
        let state = falls();
        let actor = engine.spawn_fn(move |_: u8, _: &mut Ctx<'_, u8>| {
            let _held = &state;
            Ok(())
        });
        let actor = actor.unwrap();
        actor.tell(1).unwrap();
        let report = actor.stop(drain()).wait().unwrap();
        assert_eq!((report.ledger.handled, report.reason), (1, StopReason::Stopped));
    }
    let state = falls();
    let left = engine.spawn_fn(move |_: u8, _: &mut Ctx<'_, u8>| {
        let _held = &state;
        Ok(())
    });
    left.unwrap().tell(1).unwrap();
    let report = engine.shutdown(PATIENCE);
    assert_eq!((report.ledger.handled, report.stuck.len(), report.threads.len()), (1, 0, 0));
}

// Promises: P7.5.
#[test]
fn a_state_that_does_not_let_go_is_abandoned_in_its_time() {
    let engine = engine(2);
    let (open, gate) = channel::<()>();
    let gate = Mutex::new(gate);
    let state = Last(move || {
        let _ = gate.lock().unwrap().recv();
    });
    let actor = engine.spawn_fn_with(SpawnOptions::new().name("clings"), move |_: u8, _: &mut Ctx<'_, u8>| {
        let _held = &state;
        Ok(())
    });
    let actor = actor.unwrap();
    actor.tell(1).unwrap();
    let report = actor.stop(Stop::drain(Duration::from_millis(20))).wait().unwrap();
    assert_eq!((report.reason, report.ledger.handled), (StopReason::Abandoned, 1));
    assert_eq!(report.stuck.unwrap().name.as_deref(), Some("clings"));
    open.send(()).unwrap();
    assert!(engine.shutdown(PATIENCE).stuck.is_empty());
}

// Promises: P7.3.
#[test]
fn messages_that_panic_as_they_go_cost_neither_their_actor_nor_a_thread() {
    let config = config::EngineConfig { dead_letters: 1, ..config::EngineConfig::default() };
    let engine = Engine::builder().config(config).threads(1).build().unwrap();
    let handled = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&handled);
    // Each that fails becomes a dead letter, which lets go of the one before it.
    let fails = engine
        .spawn_fn(move |message: Box<dyn Send>, _: &mut Ctx<'_, Box<dyn Send>>| {
            count.fetch_add(1, Ordering::Relaxed);
            drop(message);
            Ok(())
        })
        .unwrap();
    for _ in 0..5 {
        fails.tell(Box::new(falls())).unwrap();
    }
    let (waits, gate) = held(&engine, SpawnOptions::new(), Box::new(()) as Box<dyn Send>, drop);
    for _ in 0..5 {
        waits.tell(Box::new(falls())).unwrap();
    }
    let stopping = waits.stop(Stop::drain(Duration::from_millis(10)));
    assert_eq!(stopping.wait().unwrap().ledger.dead_lettered, 6);
    gate.send(()).unwrap();
    let report = fails.stop(drain()).wait().unwrap();
    assert!(report.ledger.balances());
    assert_eq!((handled.load(Ordering::Relaxed), report.ledger.accepted), (5, 5));
    assert!(engine.shutdown(PATIENCE).stuck.is_empty());
}

/// A waker that panics.
struct Falls;

impl Wake for Falls {
    fn wake(self: Arc<Self>) {
        panic!("on purpose");
    }
}

// Promises: P7.3.
#[test]
fn timers_go_on_after_a_panic_of_whom_they_wake_or_call() {
    let engine = engine(3);
    let (actor, gate) = held(&engine, SpawnOptions::new(), None, |_: Option<Reply<()>>| {});
    let mut context_of = TaskContext::from_waker(Waker::noop());
    let falls = Waker::from(Arc::new(Falls));
    let mut asks: Vec<_> = (0..3).map(|_| Box::pin(actor.ask(Some, Duration::from_millis(5)))).collect();
    for ask in &mut asks {
        assert!(ask.as_mut().poll(&mut TaskContext::from_waker(&falls)).is_pending());
    }
    engine.dead_letters().on_added(|| panic!("on purpose"));
    // The timer finds a full mailbox, and leaves a dead letter.
    let (full, open) = held(&engine, SpawnOptions::new().mailbox(Mailbox::new(1)), 0, |_: u8| {});
    full.tell(1).unwrap();
    let refused = engine.schedule(Duration::from_millis(5), &full, 2);
    assert_eq!(block_on(refused.finished()), TimerOutcome::MailboxFull);
    // The thread of timers still tells, and abandons whom nobody waits for.
    let (late, is_late) = channel();
    let other = engine.spawn_fn(move |(): (), _: &mut Ctx<'_, ()>| Ok(late.send(())?)).unwrap();
    engine.schedule(Duration::from_millis(20), &other, ());
    wait(&is_late);
    let stopped = actor.stop(Stop::drain(Duration::from_millis(10))).wait().unwrap();
    assert_eq!(stopped.reason, StopReason::Abandoned);
    for mut ask in asks {
        assert!(matches!(ask.as_mut().poll(&mut context_of), Poll::Ready(Err(AskError::Timeout { .. }))));
    }
    gate.send(()).unwrap();
    open.send(()).unwrap();
    assert!(engine.shutdown(PATIENCE).threads.is_empty());
}

// Promises: P7.3.
#[test]
fn a_waker_that_panics_keeps_no_other_from_being_woken() {
    let engine = engine(1);
    let (actor, gate) = held(&engine, SpawnOptions::new(), 0, |_: u8| {});
    let mut falls = Box::pin(actor.stop(drain()));
    let waker = Waker::from(Arc::new(Falls));
    assert!(falls.as_mut().poll(&mut TaskContext::from_waker(&waker)).is_pending());
    let other = actor.clone();
    let waiting = std::thread::spawn(move || block_on(other.stop(drain())).unwrap().ledger.handled);
    gate.send(()).unwrap();
    assert_eq!(waiting.join().unwrap(), 1);
    assert!(engine.shutdown(PATIENCE).threads.is_empty());
}

#[test]
#[should_panic(expected = "polled again after it had ended")]
fn an_ask_that_has_ended_is_polled_no_more() {
    let engine = engine(1);
    let actor = engine
        .spawn_fn(|reply: Reply<u8>, _: &mut Ctx<'_, Reply<u8>>| {
            reply.send(1);
            Ok(())
        })
        .unwrap();
    let mut ask = Box::pin(actor.ask(|reply| reply, PATIENCE));
    assert_eq!(block_on(ask.as_mut()).unwrap(), 1);
    let _ = ask.as_mut().poll(&mut TaskContext::from_waker(Waker::noop()));
}

// Promises: P9.7.
#[test]
fn timers_that_wait_when_their_engine_ends_are_cancelled() {
    let engine = engine(1);
    let actor = engine.spawn_fn(|_: u8, _: &mut Ctx<'_, u8>| Ok(())).unwrap();
    let hour = Duration::from_secs(3_600);
    let held = Arc::new(());
    let timers = [engine.schedule(hour, &actor, 1), engine.every_after(hour, hour, &actor, 2)];
    let keeps = engine.spawn_fn(|_: Arc<()>, _: &mut Ctx<'_, Arc<()>>| Ok(())).unwrap();
    let keeping = engine.schedule(hour, &keeps, Arc::clone(&held));
    let waiting = timers.clone().map(|timer| std::thread::spawn(move || block_on(timer.finished())));
    let begun = Instant::now();
    engine.shutdown(PATIENCE);
    for waiting in waiting {
        assert_eq!(waiting.join().unwrap(), TimerOutcome::Cancelled);
    }
    assert_eq!(keeping.outcome(), Some(TimerOutcome::Cancelled));
    assert!(!timers[0].cancel());
    assert_eq!(Arc::strong_count(&held), 1, "its message is free");
    assert_eq!(engine.schedule(hour, &actor, 3).outcome(), Some(TimerOutcome::Cancelled), "and so are later ones");
    assert!(begun.elapsed() < PATIENCE);
}
