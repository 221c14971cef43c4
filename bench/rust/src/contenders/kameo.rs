//! kameo: bounded mailboxes, its own default of a task for each actor.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use kameo::actor::{Actor, ActorRef, Spawn};
use kameo::error::Infallible;
use kameo::mailbox;
use kameo::message::{Context, Message};
use tokio::task::JoinSet;

use crate::contenders::tokio_mpsc::{every_task_has_run, spread};
use crate::contenders::{inside, tokio_runtime};
use crate::job::{Job, Workload};
use crate::outcome::Outcome;
use crate::pacing::{self, BURST, now_ns, resident_bytes};
use crate::probe::{Counter, Finish, Handler, Latency, Others};

/// Runs every workload; it has no publish of its own in the core, so A8 tells 50 actors in a loop.
pub fn run(job: &Job) -> Option<Outcome> {
    let theirs = job.clone();
    match job.workload {
        Workload::Storm => Some(inside(job.threads, storm(theirs))),
        Workload::Exchange => Some(inside(job.threads, exchange(theirs))),
        Workload::PingHot => Some(inside(job.threads, ping_pong(theirs))),
        Workload::Ask => Some(inside(job.threads, ask(theirs))),
        Workload::Spawn => Some(inside(job.threads, spawn(theirs))),
        Workload::Timers => Some(inside(job.threads, timers(theirs))),
        Workload::TimersDue => Some(inside(job.threads, timers_due(theirs))),
        Workload::FanOut => Some(inside(job.threads, fan_out(theirs))),
        Workload::PingIdle => Some(paced(job, job.count, 1, |send| pacing::after_idle(job.count, send))),
        Workload::Burst => Some(paced(job, job.count * BURST, BURST, |send| pacing::in_bursts(job.count, send))),
        Workload::Limit => None,
    }
}

async fn storm(job: Job) -> Outcome {
    let idle: Vec<_> = (0..job.idle).map(|_| sink(&job, Counter::new(1, &Finish::after(1)))).collect();
    let finish = Finish::after(1);
    let actor = sink(&job, Counter::new(job.count, &finish));
    actor.wait_for_startup().await;
    let start = Instant::now();
    for word in 0..job.count {
        actor.tell(word).send().await.expect("the actor lives");
    }
    let elapsed = until(finish, start).await;
    drop(idle);
    Outcome::rate(job.count, elapsed)
}

async fn exchange(job: Job) -> Outcome {
    let finish = Finish::after(job.actors);
    let peers = Arc::new(OnceLock::new());
    // One place more than there are messages: the one that starts the exchange.
    let places = job.mailbox.max(job.count as usize + 1);
    let actors: Vec<ActorRef<Peer>> = (0..job.actors)
        .map(|own| {
            let counter = Counter::new(job.count, &finish);
            let peer = Peer { own, count: job.count, peers: Arc::clone(&peers), counter };
            Peer::spawn_with_mailbox(peer, mailbox::bounded(places))
        })
        .collect();
    let _ = peers.set(actors.clone());
    let start = Instant::now();
    for actor in &actors {
        actor.tell(START).send().await.expect("the actor lives");
    }
    Outcome::rate(job.count * job.actors as u64, until(finish, start).await)
}

async fn ping_pong(job: Job) -> Outcome {
    let finish = Finish::after(1);
    let (to_pong, to_ping) = (Arc::new(OnceLock::new()), Arc::new(OnceLock::new()));
    let pong = Pong::spawn_with_mailbox(Pong { ping: Arc::clone(&to_ping) }, mailbox::bounded(job.mailbox));
    let ping = Ping { pong: Arc::clone(&to_pong), latency: Latency::new(job.count, 1, &finish), left: job.count };
    let ping = Ping::spawn_with_mailbox(ping, mailbox::bounded(job.mailbox));
    let _ = to_pong.set(pong.clone());
    let _ = to_ping.set(ping);
    pong.tell(now_ns()).send().await.expect("the actor lives");
    until(finish.clone(), Instant::now()).await;
    Outcome::latency(finish.samples())
}

async fn ask(job: Job) -> Outcome {
    let echo = Echo::spawn_with_mailbox(Echo, mailbox::bounded(job.mailbox));
    let share = job.count / job.in_flight as u64;
    let mut askers = JoinSet::new();
    let start = Instant::now();
    for _ in 0..job.in_flight {
        let echo = echo.clone();
        askers.spawn(async move {
            for word in 0..share {
                assert_eq!(echo.ask(word).send().await.ok(), Some(word));
            }
        });
    }
    askers.join_all().await;
    Outcome::rate(share * job.in_flight as u64, start.elapsed())
}

async fn spawn(job: Job) -> Outcome {
    let finish = Finish::after(1);
    let mut actors = Vec::with_capacity(job.count as usize);
    let before = resident_bytes();
    let start = Instant::now();
    for _ in 0..job.count {
        actors.push(sink(&job, Counter::new(1, &finish)));
    }
    actors.last().expect("at least one").wait_for_startup().await;
    let elapsed = start.elapsed();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let bytes = resident_bytes().saturating_sub(before);
    Outcome::rate(job.count, elapsed).with("bytes_each", bytes as f64 / job.count as f64)
}

async fn timers(job: Job) -> Outcome {
    let actor = sink(&job, Counter::new(u64::MAX, &Finish::after(1)));
    let start = Instant::now();
    let timers: Vec<_> = (0..job.count).map(|index| actor.tell(index).send_after(spread(index))).collect();
    every_task_has_run().await;
    let scheduled = start.elapsed();
    timers.iter().step_by(2).for_each(tokio::task::JoinHandle::abort);
    every_task_has_run().await;
    let both = start.elapsed();
    let start = Instant::now();
    for index in 0..job.count {
        actor.tell(index).send_after(spread(index)).abort();
        if index % 256 == 0 {
            tokio::task::yield_now().await;
        }
    }
    Outcome::rate(job.count, start.elapsed())
        .with("schedule_rate", job.count as f64 / scheduled.as_secs_f64())
        .with("cancel_rate", job.count as f64 / 2.0 / (both - scheduled).as_secs_f64())
}

async fn timers_due(job: Job) -> Outcome {
    let finish = Finish::after(1);
    let actor = sink(&job, Counter::new(job.count, &finish));
    let start = Instant::now();
    let due = Duration::from_millis(100);
    for index in 0..job.count {
        drop(actor.tell(index).send_after(due.saturating_sub(start.elapsed())));
    }
    Outcome::default().with("last_after_ms", until(finish, start).await.as_secs_f64() * 1e3)
}

async fn fan_out(job: Job) -> Outcome {
    let finish = Finish::after(job.actors);
    let actors: Vec<_> = (0..job.actors).map(|_| sink(&job, Counter::new(job.count, &finish))).collect();
    let start = Instant::now();
    for word in 0..job.count {
        for actor in &actors {
            actor.tell(word).send().await.expect("the actor lives");
        }
    }
    Outcome::rate(job.count * job.actors as u64, until(finish, start).await)
}

/// The sender is a thread of its own, outside of the runtime.
fn paced(job: &Job, goal: u64, every: u64, pace: impl FnOnce(&mut dyn FnMut(u64))) -> Outcome {
    let finish = Finish::after(1);
    let (places, threads, theirs) = (job.mailbox, job.threads, finish.clone());
    let (hand_over, actor) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || {
        tokio_runtime(threads).block_on(async {
            let handler = Latency::new(goal, every, &theirs);
            let actor = Sink::spawn_with_mailbox(Sink(handler), mailbox::bounded(places));
            actor.wait_for_startup().await;
            let _ = hand_over.send(actor.clone());
            actor.wait_for_shutdown().await;
        });
    });
    let actor = actor.recv().expect("the host hands the actor over");
    pace(&mut |word| actor.tell(word).try_send().expect("there is room"));
    Outcome::latency(finish.samples())
}

/// Waits for the finish without holding up the threads that run actors.
async fn until(finish: Finish, start: Instant) -> Duration {
    let waiting = tokio::task::spawn_blocking(move || finish.since(start));
    waiting.await.expect("waiting does not panic")
}

fn sink<H: Handler>(job: &Job, handler: H) -> ActorRef<Sink<H>> {
    Sink::spawn_with_mailbox(Sink(handler), mailbox::bounded(job.mailbox))
}

/// The word that starts an exchange.
const START: u64 = u64::MAX;

struct Sink<H>(H);

impl<H: Handler> Message<u64> for Sink<H> {
    type Reply = ();

    async fn handle(&mut self, word: u64, _: &mut Context<Self, ()>) {
        self.0.take(word);
    }
}

struct Peer {
    own: usize,
    count: u64,
    peers: Arc<OnceLock<Vec<ActorRef<Peer>>>>,
    counter: Counter,
}

impl Message<u64> for Peer {
    type Reply = ();

    async fn handle(&mut self, word: u64, _: &mut Context<Self, ()>) {
        if word != START {
            return self.counter.take(word);
        }
        let peers = self.peers.get().expect("set before the start");
        for (word, other) in (0..self.count).zip(Others::new(self.own, peers.len())) {
            peers[other].tell(word).try_send().expect("there is room for all");
        }
    }
}

struct Ping {
    pong: Arc<OnceLock<ActorRef<Pong>>>,
    latency: Latency,
    left: u64,
}

impl Message<u64> for Ping {
    type Reply = ();

    async fn handle(&mut self, word: u64, _: &mut Context<Self, ()>) {
        self.latency.take(word);
        self.left -= 1;
        if self.left > 0 {
            let pong = self.pong.get().expect("set before the start");
            pong.tell(now_ns()).try_send().expect("there is room");
        }
    }
}

struct Pong {
    ping: Arc<OnceLock<ActorRef<Ping>>>,
}

impl Message<u64> for Pong {
    type Reply = ();

    async fn handle(&mut self, word: u64, _: &mut Context<Self, ()>) {
        let ping = self.ping.get().expect("set before the start");
        ping.tell(word).try_send().expect("there is room");
    }
}

struct Echo;

impl Message<u64> for Echo {
    type Reply = u64;

    async fn handle(&mut self, word: u64, _: &mut Context<Self, u64>) -> u64 {
        word
    }
}

/// Expansion of kameo's derive macro, without the dependencies of the macro.
macro_rules! plain_actor {
    ($($generics:ident: $bound:ident)? => $actor:ty) => {
        impl<$($generics: $bound)?> Actor for $actor {
            type Args = Self;
            type Error = Infallible;

            async fn on_start(state: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
                Ok(state)
            }
        }
    };
}

plain_actor!(H: Handler => Sink<H>);
plain_actor!(=> Peer);
plain_actor!(=> Ping);
plain_actor!(=> Pong);
plain_actor!(=> Echo);
