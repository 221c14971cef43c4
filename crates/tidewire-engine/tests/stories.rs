//! What spec/semantics.md promises, told as short stories.

// A test may let a channel grow: what goes through it is counted.
#![allow(clippy::disallowed_methods, missing_docs)]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use support::{PATIENCE, drain, engine, wait};
use tidewire_engine::*;

type Ctx<'a, M> = Context<'a, M>;

/// An actor that waits at its first message until it is let go, so that a test can fill its mailbox.
fn held<M: Send + 'static>(
    engine: &Engine,
    options: SpawnOptions,
    first: M,
    mut handle: impl FnMut(M) + Send + 'static,
) -> (ActorRef<M>, std::sync::mpsc::SyncSender<()>) {
    let (gate, open) = sync_channel::<()>(0);
    let (entered, inside) = channel();
    let mut waiting = true;
    let actor = engine
        .spawn_fn_with(options, move |message: M, _: &mut Ctx<'_, M>| {
            if std::mem::take(&mut waiting) {
                entered.send(())?;
                open.recv()?;
            } else {
                handle(message);
            }
            Ok(())
        })
        .unwrap();
    actor.tell(first).unwrap();
    wait(&inside);
    (actor, gate)
}

fn collector<M: Send + 'static>() -> (impl FnMut(M) + Send + 'static, Receiver<M>) {
    let (sender, receiver) = channel();
    (move |message| sender.send(message).unwrap(), receiver)
}

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
                assert_eq!(error.message, 3, "the message comes back");
                assert!(error.to_string().contains("capacity 2"), "{error}");
            }
            Overflow::DropNew => assert_eq!(third.unwrap(), Sent::Dropped),
            Overflow::DropOld => assert_eq!(third.unwrap(), Sent::Accepted),
        }
        gate.send(()).unwrap();
        let ledger = actor.stop(drain()).wait().unwrap().ledger;
        assert_eq!(seen.iter().collect::<Vec<_>>(), kept, "{overflow:?}");
        assert!(ledger.balances());
    }
    let reasons: Vec<DeadReason> = engine.dead_letters().list().iter().map(|letter| letter.reason).collect();
    assert_eq!(reasons, [DeadReason::Dropped, DeadReason::Dropped]);
}

#[test]
fn a_sender_waits_for_room_and_wakes_also_with_a_mailbox_of_one() {
    let engine = engine(1);
    let (collect, seen) = collector();
    let (actor, gate) = held(&engine, SpawnOptions::new().mailbox(Mailbox::new(1)), 0, collect);
    actor.tell(1).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| (2..50).for_each(|n| assert_eq!(actor.send_blocking(n).unwrap(), Sent::Accepted)));
        gate.send(()).unwrap();
    });
    actor.stop(drain()).wait().unwrap();
    assert_eq!(seen.iter().collect::<Vec<_>>(), (1..50).collect::<Vec<_>>());
}

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

enum Sum {
    Add(u64),
    Get(Reply<u64>),
    Fail(Reply<u64>),
    Forget(Reply<u64>),
    Keep(Reply<u64>),
}

#[derive(Default)]
struct Adder {
    total: u64,
    kept: Option<Reply<u64>>,
}

impl Actor for Adder {
    type Message = Sum;

    fn receive(&mut self, message: Sum, _: &mut Ctx<'_, Sum>) -> Result<(), Fault> {
        match message {
            Sum::Add(n) => {
                self.total += n;
                if let Some(reply) = self.kept.take() {
                    reply.send(self.total);
                }
            }
            Sum::Get(reply) => assert!(reply.send(self.total)),
            Sum::Fail(reply) => {
                drop(reply);
                return Err("no sum today".into());
            }
            Sum::Forget(reply) => drop(reply),
            Sum::Keep(reply) => self.kept = Some(reply),
        }
        Ok(())
    }
}

#[test]
fn an_ask_ends_with_the_reply_the_error_or_the_lack_of_both() {
    let engine = engine(2);
    let adder = engine.spawn(Adder::default()).unwrap();
    adder.tell(Sum::Add(40)).unwrap();
    assert_eq!(adder.ask(Sum::Get, PATIENCE).wait().unwrap(), 40);
    let failed = adder.ask(Sum::Fail, PATIENCE).wait().unwrap_err();
    assert!(matches!(&failed, AskError::Failed(fault) if fault.to_string() == "no sum today"), "{failed}");
    assert!(matches!(adder.ask(Sum::Forget, PATIENCE).wait(), Err(AskError::NoReply { .. })));
    let later = adder.ask(Sum::Keep, PATIENCE);
    adder.tell(Sum::Add(2)).unwrap();
    assert_eq!(later.wait().unwrap(), 42);
    adder.stop(drain()).wait().unwrap();
    assert!(matches!(adder.ask(Sum::Get, PATIENCE).wait(), Err(AskError::Refused(Refusal::Stopped { .. }))));
}

#[test]
fn an_expired_or_cancelled_ask_is_not_handled() {
    let engine = engine(1);
    let (collect, seen) = collector();
    let (reply_to, _replies) = channel::<Reply<u8>>();
    drop(reply_to);
    let (actor, gate) = held::<(u8, Option<Reply<u8>>)>(&engine, SpawnOptions::new(), (0, None), collect);
    let expired = actor.ask(|reply| (1, Some(reply)), Duration::from_millis(1));
    assert!(matches!(expired.wait(), Err(AskError::Timeout { .. })));
    drop(actor.ask(|reply| (2, Some(reply)), PATIENCE));
    actor.tell((3, None)).unwrap();
    gate.send(()).unwrap();
    let ledger = actor.stop(drain()).wait().unwrap().ledger;
    assert_eq!(seen.iter().map(|(n, _)| n).collect::<Vec<_>>(), [3]);
    assert_eq!((ledger.accepted, ledger.handled, ledger.dead_lettered), (4, 2, 2));
    let reasons = engine.dead_letters().counts();
    assert!(reasons.contains_key(&DeadReason::Cancelled));
    assert_eq!(reasons.values().sum::<u64>(), 2);
}

enum Chain {
    Next(Option<ActorRef<Chain>>),
    Ask(Reply<String>),
}

fn link(engine: &Engine, name: &str) -> ActorRef<Chain> {
    let mut next: Option<ActorRef<Chain>> = None;
    let options = SpawnOptions::new().name(name);
    let handle = move |message: Chain, ctx: &mut Ctx<'_, Chain>| {
        match message {
            Chain::Next(to) => next = to,
            Chain::Ask(reply) => match &next {
                None => drop(reply.send(format!("{}", ctx.id()))),
                Some(to) => drop(reply.send(to.ask(Chain::Ask, PATIENCE).wait()?)),
            },
        }
        Ok(())
    };
    engine.spawn_fn_with(options, handle).unwrap()
}

#[test]
fn a_ring_of_asks_is_reported_with_its_path_instead_of_waiting() {
    let engine = engine(2);
    let [a, b, c] = ["a", "b", "c"].map(|name| link(&engine, name));
    a.tell(Chain::Next(Some(b.clone()))).unwrap();
    b.tell(Chain::Next(Some(c.clone()))).unwrap();
    c.tell(Chain::Next(Some(a.clone()))).unwrap();
    let error = a.ask(Chain::Ask, PATIENCE).wait().unwrap_err().to_string();
    for name in ["a (#1)", "b (#2)", "c (#3)"] {
        assert!(error.contains(name), "{error}");
    }
    a.tell(Chain::Next(Some(a.clone()))).unwrap();
    let own = a.ask(Chain::Ask, PATIENCE).wait().unwrap_err().to_string();
    assert!(own.contains("a (#1) -> a (#1)"), "{own}");
}

#[test]
fn thirty_actors_can_wait_for_each_other_on_one_thread() {
    let engine = engine(1);
    let links: Vec<_> = (0..30).map(|n| link(&engine, &format!("link-{n}"))).collect();
    for pair in links.windows(2) {
        pair[0].tell(Chain::Next(Some(pair[1].clone()))).unwrap();
    }
    assert_eq!(links[0].ask(Chain::Ask, PATIENCE).wait().unwrap(), "#30");
}

#[test]
fn a_blocked_handler_does_not_delay_the_others_of_its_dispatcher() {
    let engine = engine(2);
    let (collect, seen) = collector();
    let mut collect = collect;
    let other = engine
        .spawn_fn(move |n: u8, _| {
            collect(n);
            Ok(())
        })
        .unwrap();
    let (gate, open) = sync_channel::<()>(0);
    // It tells the other one, which waits in the line of this very thread, and then blocks.
    let blocker = engine
        .spawn_fn(move |(): (), _| {
            other.tell(7)?;
            Ok(open.recv()?)
        })
        .unwrap();
    blocker.tell(()).unwrap();
    assert_eq!(wait(&seen), 7);
    gate.send(()).unwrap();
}

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

fn fragile(engine: &Engine, supervision: Supervision) -> (ActorRef<u8>, Receiver<Vec<u8>>) {
    let (report, seen) = channel();
    let supervision = Supervision { backoff: Duration::ZERO, backoff_max: Duration::ZERO, ..supervision };
    let factory = move || Fragile { seen: Vec::new(), report: report.clone() };
    (engine.spawn_with(SpawnOptions::new().supervision(supervision), factory).unwrap(), seen)
}

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

struct Watcher {
    watched: ActorRef<()>,
    done: std::sync::mpsc::Sender<StopReason>,
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

#[test]
fn a_stop_that_runs_out_of_time_names_the_stuck_handler_and_frees_the_name() {
    let engine = engine(2);
    let (actor, gate) = held(&engine, SpawnOptions::new().name("stuck"), 0, |_: u8| {});
    actor.tell(1).unwrap();
    let report = actor.stop(Stop::drain(Duration::from_millis(10))).wait().unwrap();
    assert_eq!(report.reason, StopReason::Abandoned);
    assert_eq!(report.ledger, Ledger { accepted: 2, handled: 0, returned: 0, dead_lettered: 2 });
    assert_eq!(report.stuck.unwrap().name.as_deref(), Some("stuck"));
    engine.spawn_fn_with(SpawnOptions::new().name("stuck"), |_: u8, _| Ok(())).unwrap();
    gate.send(()).unwrap();
    assert!(engine.shutdown(PATIENCE).stuck.is_empty());
}

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

/// Runs a future on this thread.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Wake(std::thread::Thread);
    impl std::task::Wake for Wake {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::task::Waker::from(Arc::new(Wake(std::thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            std::task::Poll::Ready(value) => return value,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}
