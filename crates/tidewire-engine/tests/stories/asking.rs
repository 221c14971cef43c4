//! Asks, and handlers that wait.

use std::sync::mpsc::{channel, sync_channel};
use std::time::Duration;

use tidewire_engine::*;

use crate::support::{PATIENCE, drain, engine, wait};
use crate::{Ctx, collector, held};

pub(crate) enum Sum {
    Add(u64),
    Get(Reply<u64>),
    Fail(Reply<u64>),
    Forget(Reply<u64>),
    Keep(Reply<u64>),
}

#[derive(Default)]
pub(crate) struct Adder {
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

// Promises: P4.1, P4.2, P4.6.
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

// Promises: P4.7, P4.8.
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

// Promises: P1.6, P4.11, P4.12.
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

// Promises: P5.5.
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
