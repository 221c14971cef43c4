//! ractor: its mailboxes are unbounded, so a sender yields every so often instead of waiting for
//! capacity.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ractor::{Actor, ActorProcessingErr, ActorRef, OutputPort, RpcReplyPort, call};
use tokio::task::JoinSet;

use crate::contenders::tokio_mpsc::{every_task_has_run, spread};
use crate::contenders::{inside, tokio_runtime};
use crate::job::{Job, Workload};
use crate::outcome::Outcome;
use crate::pacing::{self, BURST, now_ns, resident_bytes};
use crate::probe::{Counter, Finish, Handler, Latency, Others};

/// Runs every workload; A8 goes through an output port.
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
    let mut idle = Vec::with_capacity(job.idle);
    for _ in 0..job.idle {
        idle.push(sink(Counter::new(1, &Finish::after(1))).await);
    }
    let finish = Finish::after(1);
    let actor = sink(Counter::new(job.count, &finish)).await;
    let start = Instant::now();
    for word in 0..job.count {
        actor.cast(word).expect("the actor lives");
        if word % GIVE_WAY == 0 {
            tokio::task::yield_now().await;
        }
    }
    let elapsed = until(finish, start).await;
    idle.iter().for_each(|actor| actor.stop(None));
    Outcome::rate(job.count, elapsed)
}

async fn exchange(job: Job) -> Outcome {
    let finish = Finish::after(job.actors);
    let peers = Arc::new(OnceLock::new());
    let mut actors = Vec::new();
    for own in 0..job.actors {
        let counter = Counter::new(job.count, &finish);
        let peer = Peer { own, count: job.count, peers: Arc::clone(&peers) };
        actors.push(Actor::spawn(None, peer, counter).await.expect("the actor starts").0);
    }
    let _ = peers.set(actors.clone());
    let start = Instant::now();
    for actor in &actors {
        actor.cast(START).expect("the actor lives");
    }
    let elapsed = until(finish, start).await;
    actors.iter().for_each(|actor| actor.stop(None));
    Outcome::rate(job.count * job.actors as u64, elapsed)
}

async fn ping_pong(job: Job) -> Outcome {
    let finish = Finish::after(1);
    let to_ping = Arc::new(OnceLock::new());
    let pong = Pong { ping: Arc::clone(&to_ping) };
    let pong = Actor::spawn(None, pong, ()).await.expect("the actor starts").0;
    let state = (job.count, Latency::new(job.count, 1, &finish));
    let ping = Actor::spawn(None, Ping { pong: pong.clone() }, state).await.expect("the actor starts").0;
    let _ = to_ping.set(ping);
    pong.cast(now_ns()).expect("the actor lives");
    until(finish.clone(), Instant::now()).await;
    Outcome::latency(finish.samples())
}

async fn ask(job: Job) -> Outcome {
    let echo = Actor::spawn(None, Echo, ()).await.expect("the actor starts").0;
    let share = job.count / job.in_flight as u64;
    let mut askers = JoinSet::new();
    let start = Instant::now();
    for _ in 0..job.in_flight {
        let echo = echo.clone();
        askers.spawn(async move {
            for word in 0..share {
                assert_eq!(call!(echo, |reply| Request(word, reply)).expect("the actor lives"), word);
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
        actors.push(sink(Counter::new(1, &finish)).await);
    }
    let elapsed = start.elapsed();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let bytes = resident_bytes().saturating_sub(before);
    Outcome::rate(job.count, elapsed).with("bytes_each", bytes as f64 / job.count as f64)
}

async fn timers(job: Job) -> Outcome {
    let actor = sink(Counter::new(u64::MAX, &Finish::after(1))).await;
    let start = Instant::now();
    let later = |index: u64| actor.send_after(spread(index), move || index);
    let timers: Vec<_> = (0..job.count).map(later).collect();
    every_task_has_run().await;
    let scheduled = start.elapsed();
    timers.iter().step_by(2).for_each(tokio::task::JoinHandle::abort);
    every_task_has_run().await;
    let both = start.elapsed();
    let start = Instant::now();
    for index in 0..job.count {
        later(index).abort();
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
    let actor = sink(Counter::new(job.count, &finish)).await;
    let start = Instant::now();
    let due = Duration::from_millis(100);
    for index in 0..job.count {
        drop(actor.send_after(due.saturating_sub(start.elapsed()), move || index));
    }
    Outcome::default().with("last_after_ms", until(finish, start).await.as_secs_f64() * 1e3)
}

async fn fan_out(job: Job) -> Outcome {
    let finish = Finish::after(job.actors);
    let port = OutputPort::<u64>::default();
    for _ in 0..job.actors {
        port.subscribe(sink(Counter::new(job.count, &finish)).await, Some);
    }
    let start = Instant::now();
    for word in 0..job.count {
        port.send(word);
        // The port keeps ten messages and loses older ones, so its subscribers must run in between.
        tokio::task::yield_now().await;
    }
    Outcome::rate(job.count * job.actors as u64, until(finish, start).await)
}

/// The sender is a thread of its own, outside of the runtime.
fn paced(job: &Job, goal: u64, every: u64, pace: impl FnOnce(&mut dyn FnMut(u64))) -> Outcome {
    let finish = Finish::after(1);
    let (threads, theirs) = (job.threads, finish.clone());
    let (hand_over, actor) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || {
        tokio_runtime(threads).block_on(async {
            let sink = Sink(std::marker::PhantomData);
            let started = Actor::spawn(None, sink, Latency::new(goal, every, &theirs)).await;
            let (actor, running) = started.expect("the actor starts");
            let _ = hand_over.send(actor);
            let _ = running.await;
        });
    });
    let actor = actor.recv().expect("the host hands the actor over");
    pace(&mut |word| actor.cast(word).expect("the actor lives"));
    Outcome::latency(finish.samples())
}

/// Waits for the finish without holding up the threads that run actors.
async fn until(finish: Finish, start: Instant) -> Duration {
    let waiting = tokio::task::spawn_blocking(move || finish.since(start));
    waiting.await.expect("waiting does not panic")
}

async fn sink<H: Handler + Sync>(handler: H) -> ActorRef<u64> {
    let sink = Sink(std::marker::PhantomData);
    Actor::spawn(None, sink, handler).await.expect("the actor starts").0
}

/// How many messages a sender sends before it lets others run.
const GIVE_WAY: u64 = 1024;

/// The word that starts an exchange.
const START: u64 = u64::MAX;

struct Sink<H>(std::marker::PhantomData<H>);

impl<H: Handler + Sync> Actor for Sink<H> {
    type Msg = u64;
    type State = H;
    type Arguments = H;

    async fn pre_start(&self, _: ActorRef<u64>, handler: H) -> Result<H, ActorProcessingErr> {
        Ok(handler)
    }

    async fn handle(&self, _: ActorRef<u64>, word: u64, handler: &mut H) -> Result<(), ActorProcessingErr> {
        handler.take(word);
        Ok(())
    }
}

struct Peer {
    own: usize,
    count: u64,
    peers: Arc<OnceLock<Vec<ActorRef<u64>>>>,
}

impl Actor for Peer {
    type Msg = u64;
    type State = Counter;
    type Arguments = Counter;

    async fn pre_start(&self, _: ActorRef<u64>, counter: Counter) -> Result<Counter, ActorProcessingErr> {
        Ok(counter)
    }

    async fn handle(&self, _: ActorRef<u64>, word: u64, counter: &mut Counter) -> Result<(), ActorProcessingErr> {
        if word != START {
            counter.take(word);
            return Ok(());
        }
        let peers = self.peers.get().expect("set before the start");
        for (word, other) in (0..self.count).zip(Others::new(self.own, peers.len())) {
            peers[other].cast(word)?;
        }
        Ok(())
    }
}

struct Ping {
    pong: ActorRef<u64>,
}

impl Actor for Ping {
    type Msg = u64;
    type State = (u64, Latency);
    type Arguments = (u64, Latency);

    async fn pre_start(&self, _: ActorRef<u64>, state: Self::State) -> Result<Self::State, ActorProcessingErr> {
        Ok(state)
    }

    async fn handle(&self, _: ActorRef<u64>, word: u64, state: &mut Self::State) -> Result<(), ActorProcessingErr> {
        state.1.take(word);
        state.0 -= 1;
        if state.0 > 0 {
            self.pong.cast(now_ns())?;
        }
        Ok(())
    }
}

struct Pong {
    ping: Arc<OnceLock<ActorRef<u64>>>,
}

impl Actor for Pong {
    type Msg = u64;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<u64>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(&self, _: ActorRef<u64>, word: u64, (): &mut ()) -> Result<(), ActorProcessingErr> {
        self.ping.get().expect("set before the start").cast(word)?;
        Ok(())
    }
}

struct Request(u64, RpcReplyPort<u64>);

struct Echo;

impl Actor for Echo {
    type Msg = Request;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Request>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(&self, _: ActorRef<Request>, request: Request, (): &mut ()) -> Result<(), ActorProcessingErr> {
        request.1.send(request.0)?;
        Ok(())
    }
}
