//! Failures, supervision, parents and watchers.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tidewire_engine::*;

use crate::Ctx;
use crate::asking::{Adder, Sum};
use crate::support::{PATIENCE, drain, engine, wait};

struct Fragile {
    seen: Vec<u8>,
    report: std::sync::mpsc::Sender<Vec<u8>>,
}

impl Actor for Fragile {
    type Message = u8;

    fn receive(&mut self, n: u8, _: &mut Ctx<'_, u8>) -> Result<(), Fault> {
        if n == 0 {
            panic!("zero");
        }
        self.seen.push(n);
        self.report.send(self.seen.clone())?;
        Ok(())
    }

    fn copy(n: &u8) -> Option<u8> {
        Some(*n)
    }
}

pub(crate) fn fragile(engine: &Engine, supervision: Supervision) -> (ActorRef<u8>, Receiver<Vec<u8>>) {
    let (report, seen) = channel();
    let supervision = Supervision { backoff: Duration::ZERO, backoff_max: Duration::ZERO, ..supervision };
    let factory = move || Fragile { seen: Vec::new(), report: report.clone() };
    (engine.spawn_with(SpawnOptions::new().supervision(supervision), factory).unwrap(), seen)
}

// Promises: P7.1, P7.2, P7.9, P7.10, P7.11, P8.5.
#[test]
fn a_failure_resumes_restarts_or_stops_as_the_policy_says() {
    let engine = engine(1);
    for (on_failure, expected) in [(OnFailure::Resume, vec![1, 2]), (OnFailure::Restart, vec![2])] {
        let (actor, seen) = fragile(&engine, Supervision::on_failure(on_failure));
        [1, 0, 2].into_iter().for_each(|n| assert_eq!(actor.tell(n).unwrap(), Sent::Accepted));
        assert_eq!(wait(&seen), [1]);
        assert_eq!(wait(&seen), expected, "{on_failure:?}");
        let ledger = actor.stop(drain()).wait().unwrap().ledger;
        assert_eq!((ledger.accepted, ledger.handled, ledger.dead_lettered), (3, 2, 1));
    }
    let (actor, seen) = fragile(&engine, Supervision::on_failure(OnFailure::Stop));
    [1, 0].into_iter().for_each(|n| assert_eq!(actor.tell(n).unwrap(), Sent::Accepted));
    assert_eq!(wait(&seen), [1]);
    let report = actor.stop(drain()).wait().unwrap();
    assert_eq!(report.reason, StopReason::Failed("panic: zero".into()));
    let letter = engine.dead_letters().list().pop().unwrap();
    assert_eq!(letter.error.as_deref(), Some("panic: zero"));
}

/// Asks the next actor, and passes its error on.
struct Relay(ActorRef<Sum>);

impl Actor for Relay {
    type Message = Sum;

    fn receive(&mut self, message: Sum, _: &mut Ctx<'_, Sum>) -> Result<(), Fault> {
        drop(message);
        self.0.ask(Sum::Fail, PATIENCE).wait()?;
        Ok(())
    }
}

// Promises: P7.20.
#[test]
fn an_error_that_askers_pass_on_has_one_dead_letter() {
    let engine = engine(2);
    let source = engine.spawn(Adder::default()).unwrap();
    let middle = engine.spawn(Relay(source.clone())).unwrap();
    let outer = engine.spawn(Relay(middle.clone())).unwrap();
    let failed = outer.ask(Sum::Get, PATIENCE).wait().unwrap_err();
    assert!(failed.to_string().ends_with("no sum today"), "{failed}");
    let of = |letters: Vec<DeadLetter>| letters.into_iter().map(|letter| letter.actor).collect::<Vec<_>>();
    assert_eq!(of(engine.dead_letters().list()), [source.id()]);
    outer.tell(Sum::Add(1)).unwrap();
    let ledger = outer.stop(drain()).wait().unwrap().ledger;
    assert_eq!((ledger.handled, ledger.dead_lettered), (0, 2));
    let letters = of(engine.dead_letters().list());
    assert_eq!(letters, [source.id(), source.id(), outer.id()], "nobody waits for what was told");
}

// Promises: P7.6, P7.13.
#[test]
fn a_failed_message_is_delivered_again_as_often_as_allowed_and_restarts_are_limited() {
    let engine = engine(1);
    let (actor, _seen) = fragile(&engine, Supervision { max_deliveries: 3, ..Supervision::default() });
    actor.tell(0).unwrap();
    let report = actor.stop(drain()).wait().unwrap();
    assert_eq!(report.ledger.dead_lettered, 1);
    assert_eq!(engine.dead_letters().len(), 1, "one letter for three attempts");
    assert_eq!(actor.statistics().failed, 3);

    let supervision = Supervision { on_failure: OnFailure::Restart, max_restarts: 2, ..Supervision::default() };
    let (actor, _seen) = fragile(&engine, supervision);
    [0, 0, 0, 5].into_iter().for_each(|n| drop(actor.tell(n)));
    let report = actor.stop(drain()).wait().unwrap();
    assert_eq!(report.reason, StopReason::RestartLimit("panic: zero".into()));
    assert_eq!(actor.statistics().restarts, 2);
    assert!(report.ledger.balances());
    assert_eq!(report.ledger.handled, 0);
}

struct Parent {
    events: std::sync::mpsc::Sender<String>,
    escalates: bool,
}

impl Actor for Parent {
    type Message = ();

    fn started(&mut self, ctx: &mut Ctx<'_, ()>) -> Result<(), Fault> {
        let events = self.events.clone();
        let on_failure = if self.escalates { OnFailure::Escalate } else { OnFailure::Resume };
        let options = SpawnOptions::new().name("child").supervision(Supervision::on_failure(on_failure));
        let child = ctx.spawn_child(options, move || Child { events: events.clone() })?;
        ctx.watch(&child);
        Ok(())
    }

    fn receive(&mut self, (): (), _: &mut Ctx<'_, ()>) -> Result<(), Fault> {
        Ok(self.events.send("parent has a message".into())?)
    }

    fn signal(&mut self, signal: Signal, _: &mut Ctx<'_, ()>) -> Result<(), Fault> {
        let Signal::Terminated { name, reason, .. } = signal else { return Ok(()) };
        self.events.send(format!("told that {} ended: {reason}", name.as_deref().unwrap_or("?")))?;
        Ok(())
    }

    fn stopped(&mut self) {
        let _ = self.events.send("parent stopped".into());
    }
}

struct Child {
    events: std::sync::mpsc::Sender<String>,
}

impl Actor for Child {
    type Message = u8;

    fn receive(&mut self, n: u8, _: &mut Ctx<'_, u8>) -> Result<(), Fault> {
        if n == 0 { Err("child is ill".into()) } else { Ok(()) }
    }

    fn stopped(&mut self) {
        let _ = self.events.send("child stopped".into());
    }
}

// Promises: P7.14.
#[test]
fn children_stop_before_their_parent() {
    let engine = engine(2);
    let (events, told) = channel();
    let parent = engine.spawn(Parent { events, escalates: false }).unwrap();
    parent.tell(()).unwrap();
    parent.stop(drain()).wait().unwrap();
    let order: Vec<String> = told.iter().filter(|event| !event.starts_with("told")).collect();
    assert_eq!(order, ["parent has a message", "child stopped", "parent stopped"]);
    assert_eq!(engine.actors(), 0);
}

// Promises: P1.10, P7.12.
#[test]
fn a_failure_that_escalates_is_the_parents_failure_and_watchers_are_told() {
    let engine = engine(2);
    let (events, told) = channel();
    let options = SpawnOptions::new().supervision(Supervision::on_failure(OnFailure::Stop));
    let parent = engine.spawn_with(options, move || Parent { events: events.clone(), escalates: true }).unwrap();
    let (done, finished) = channel();
    let watcher = engine.spawn(Watcher { watched: parent.clone(), done }).unwrap();
    // The child is spawned by the parent's start hook, on another thread.
    parent.tell(()).unwrap();
    assert_eq!(wait(&told), "parent has a message");
    engine.lookup::<u8>("child").unwrap().tell(0).unwrap();
    assert_eq!(wait(&finished), StopReason::Failed("child is ill".into()));
    assert_eq!(wait(&told), "child stopped");
    drop(watcher);
}

pub(crate) struct Watcher {
    pub(crate) watched: ActorRef<()>,
    pub(crate) done: std::sync::mpsc::Sender<StopReason>,
}

impl Actor for Watcher {
    type Message = ();

    fn started(&mut self, ctx: &mut Ctx<'_, ()>) -> Result<(), Fault> {
        ctx.watch(&self.watched);
        Ok(())
    }

    fn receive(&mut self, (): (), _: &mut Ctx<'_, ()>) -> Result<(), Fault> {
        Ok(())
    }

    fn signal(&mut self, signal: Signal, _: &mut Ctx<'_, ()>) -> Result<(), Fault> {
        let Signal::Terminated { reason, .. } = signal else { return Ok(()) };
        Ok(self.done.send(reason)?)
    }
}
