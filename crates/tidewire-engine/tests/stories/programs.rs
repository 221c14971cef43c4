//! Random programs of tells, asks, changes of behaviour and stops, from several threads: whatever
//! happens, the ledger balances against counts kept outside of the engine, and each sender's
//! messages keep their order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use tidewire_engine::*;

use crate::support::{PATIENCE, engine};

#[derive(Clone, Debug)]
enum Step {
    Tell(Priority),
    Send,
    Ask { waits: bool },
    Become,
    Unbecome,
    Stop { drain: bool },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => prop_oneof![Just(Priority::Urgent), Just(Priority::High), Just(Priority::Normal), Just(Priority::Low)].prop_map(Step::Tell),
        4 => Just(Step::Send),
        3 => any::<bool>().prop_map(|waits| Step::Ask { waits }),
        2 => Just(Step::Become),
        2 => Just(Step::Unbecome),
        1 => any::<bool>().prop_map(|drain| Step::Stop { drain }),
    ]
}

#[derive(Clone, Debug)]
struct Program {
    threads: usize,
    capacity: usize,
    overflow: Overflow,
    on_failure: OnFailure,
    fails_every: u64,
    senders: Vec<Vec<Step>>,
}

fn program() -> impl Strategy<Value = Program> {
    let overflow =
        prop_oneof![Just(Overflow::Wait), Just(Overflow::Fail), Just(Overflow::DropNew), Just(Overflow::DropOld)];
    let on_failure = prop_oneof![Just(OnFailure::Resume), Just(OnFailure::Restart), Just(OnFailure::Stop)];
    let senders = prop::collection::vec(prop::collection::vec(step(), 0..60), 1..4);
    (1..4_usize, 1..20_usize, overflow, on_failure, 0..15_u64, senders).prop_map(
        |(threads, capacity, overflow, on_failure, fails_every, senders)| Program {
            threads,
            capacity,
            overflow,
            on_failure,
            fails_every,
            senders,
        },
    )
}

struct Message {
    sender: usize,
    priority: Priority,
    number: u64,
    reply: Option<Reply<u64>>,
}

/// Messages that the handlers saw, stored outside of the actor so that a restart does not lose
/// them.
#[derive(Default)]
struct Seen {
    handled: AtomicU64,
    failed: AtomicU64,
    last: Mutex<BTreeMap<(usize, u8), u64>>,
}

impl Seen {
    fn handle(&self, message: Message, fails_every: u64) -> Result<(), Fault> {
        let lane = (message.sender, message.priority as u8);
        let before = self.last.lock().unwrap().insert(lane, message.number);
        assert!(before.is_none_or(|before| before < message.number), "{lane:?}: {} after {before:?}", message.number);
        if fails_every > 0 && message.number % fails_every == fails_every - 1 {
            self.failed.fetch_add(1, SeqCst);
            return Err("as the program wants".into());
        }
        self.handled.fetch_add(1, SeqCst);
        if let Some(reply) = message.reply {
            reply.send(message.number);
        }
        Ok(())
    }
}

struct Subject {
    seen: Arc<Seen>,
    fails_every: u64,
}

impl Actor for Subject {
    type Message = Message;

    fn receive(&mut self, message: Message, _: &mut Context<'_, Message>) -> Result<(), Fault> {
        self.seen.handle(message, self.fails_every)
    }
}

/// Runs one sender's steps; answers how many messages and changes were accepted.
fn run(sender: usize, steps: &[Step], actor: &ActorRef<Message>, seen: &Arc<Seen>) -> u64 {
    let mut accepted = 0;
    let mut asks = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let message = |priority| Message { sender, priority, number: number as u64, reply: None };
        match step {
            Step::Tell(priority) => {
                accepted +=
                    u64::from(actor.tell_with(message(*priority), *priority).is_ok_and(|s| s == Sent::Accepted));
            }
            Step::Send => {
                accepted +=
                    u64::from(actor.send_blocking(message(Priority::Normal)).is_ok_and(|s| s == Sent::Accepted));
            }
            Step::Ask { waits } => {
                let make = |reply| Message { reply: Some(reply), ..message(Priority::Normal) };
                let pending = actor.ask(make, PATIENCE);
                if *waits { asks.push(pending) } else { drop(pending) }
            }
            Step::Become => {
                let seen = Arc::clone(seen);
                let change = move |message, _: &mut Context<'_, Message>| seen.handle(message, 0);
                accepted += u64::from(actor.request_become(change, true).is_ok_and(|s| s == Sent::Accepted));
            }
            Step::Unbecome => accepted += u64::from(actor.request_unbecome().is_ok_and(|s| s == Sent::Accepted)),
            Step::Stop { drain } => drop(actor.stop(Stop { drain: *drain, timeout: PATIENCE })),
        }
    }
    // Every ask ends: with a reply, or with the reason why there is none.
    for ask in asks {
        match ask.wait() {
            Ok(_)
            | Err(AskError::Refused(_) | AskError::Lost { .. } | AskError::Failed(_) | AskError::NoReply { .. }) => {}
            Err(error) => panic!("an ask ended with {error}"),
        }
    }
    accepted
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    // Promises: P4.1, P8.4.
    #[test]
    fn ledgers_balance_and_order_holds(program in program()) {
        let engine = engine(program.threads);
        let seen = Arc::new(Seen::default());
        let supervision = Supervision {
            on_failure: program.on_failure,
            backoff: Duration::ZERO,
            backoff_max: Duration::ZERO,
            max_restarts: 1_000,
            ..Supervision::default()
        };
        let options = SpawnOptions::new()
            .mailbox(Mailbox::new(program.capacity).overflow(program.overflow))
            .supervision(supervision);
        let (factory_seen, fails_every) = (Arc::clone(&seen), program.fails_every);
        let factory = move || Subject { seen: Arc::clone(&factory_seen), fails_every };
        let actor = engine.spawn_with(options, factory).unwrap();

        let asks: u64 = program.senders.iter().flatten().filter(|step| matches!(step, Step::Ask { .. })).count() as u64;
        let accepted: u64 = std::thread::scope(|scope| {
            let runs: Vec<_> = program
                .senders
                .iter()
                .enumerate()
                .map(|(sender, steps)| {
                    let (actor, seen) = (&actor, &seen);
                    scope.spawn(move || run(sender, steps, actor, seen))
                })
                .collect();
            runs.into_iter().map(|run| run.join().unwrap()).sum()
        });
        let report = actor.stop(Stop::drain(PATIENCE)).wait().unwrap();
        let ledger = report.ledger;

        prop_assert!(ledger.balances(), "{:?}", ledger);
        prop_assert!(ledger.accepted >= accepted && ledger.accepted <= accepted + asks, "{:?}, {} + {}", ledger, accepted, asks);
        let changes = program.senders.iter().flatten().filter(|s| matches!(s, Step::Become | Step::Unbecome)).count() as u64;
        let handled = seen.handled.load(SeqCst);
        prop_assert!(ledger.handled >= handled && ledger.handled <= handled + changes, "{:?}, {}", ledger, handled);
        prop_assert!(ledger.dead_lettered >= seen.failed.load(SeqCst), "{:?}", ledger);
        prop_assert_eq!(engine.actors(), 0);
        let late = Message { sender: 0, priority: Priority::Normal, number: 0, reply: None };
        prop_assert!(actor.tell(late).is_err());
        prop_assert_eq!(seen.handled.load(SeqCst), handled, "nothing is handled after the stop");
        prop_assert!(engine.shutdown(PATIENCE).threads.is_empty());
    }
}
