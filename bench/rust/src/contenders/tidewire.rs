//! Ours. The sender is a thread outside of the engine (`tidewire`), or an actor that is a future
//! (`tidewire-task`).

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tidewire_engine::{
    Actor, ActorRef, Context, Engine, Fault, Inbox, Mailbox, Pending, Reply, SpawnError, SpawnOptions,
};

use crate::contenders::tokio_mpsc::spread;
use crate::job::{Job, Workload};
use crate::outcome::Outcome;
use crate::pacing::{self, BURST, now_ns, resident_bytes};
use crate::probe::{Counter, Finish, Handler, Latency, Others};

/// Runs every workload with a sender outside of the engine.
pub fn run(job: &Job) -> Option<Outcome> {
    let engine = engine(job);
    match job.workload {
        Workload::Storm => Some(storm(&engine, job)),
        Workload::Exchange => Some(exchange(&engine, job)),
        Workload::PingHot => Some(ping_pong(&engine, job)),
        Workload::Ask => Some(ask(&engine, job)),
        Workload::Spawn => Some(spawn(job, |counter| engine.spawn(Sink(counter)))),
        Workload::Timers => Some(timers(&engine, job)),
        Workload::TimersDue => Some(timers_due(&engine, job)),
        Workload::FanOut => Some(fan_out(&engine, job)),
        Workload::PingIdle => Some(paced(&engine, job.count, 1, |send| pacing::after_idle(job.count, send))),
        Workload::Burst => Some(paced(&engine, job.count * BURST, BURST, |send| pacing::in_bursts(job.count, send))),
        Workload::Limit => None,
    }
}

/// Runs the workloads in which a sender on the engine's own threads differs.
pub fn run_from_task(job: &Job) -> Option<Outcome> {
    let engine = engine(job);
    match job.workload {
        Workload::Storm => Some(storm_from_task(&engine, job)),
        Workload::Ask => Some(ask_from_tasks(&engine, job)),
        Workload::FanOut => Some(fan_out_from_task(&engine, job)),
        _ => None,
    }
}

/// Runs the one workload in which actors made of a function differ from those made of a type.
pub fn run_functions(job: &Job) -> Option<Outcome> {
    let engine = engine(job);
    match job.workload {
        Workload::Spawn => Some(spawn(job, |mut counter| {
            engine.spawn_fn(move |word, _| {
                counter.take(word);
                Ok(())
            })
        })),
        _ => None,
    }
}

fn engine(job: &Job) -> Engine {
    Engine::builder().threads(job.threads).build().expect("the engine starts")
}

fn storm(engine: &Engine, job: &Job) -> Outcome {
    let _idle = idle(engine, job);
    let finish = Finish::after(1);
    let actor = sink(engine, job, Counter::new(job.count, &finish));
    let start = Instant::now();
    for word in 0..job.count {
        actor.send_blocking(word).expect("the actor lives");
    }
    Outcome::rate(job.count, finish.since(start))
}

fn storm_from_task(engine: &Engine, job: &Job) -> Outcome {
    let _idle = idle(engine, job);
    let finish = Finish::after(1);
    let actor = sink(engine, job, Counter::new(job.count, &finish));
    let (count, start) = (job.count, Instant::now());
    task(engine, move || {
        let actor = actor.clone();
        async move {
            for word in 0..count {
                actor.send(word).await.expect("the actor lives");
            }
        }
    });
    Outcome::rate(job.count, finish.since(start))
}

fn exchange(engine: &Engine, job: &Job) -> Outcome {
    let finish = Finish::after(job.actors);
    let peers = Arc::new(OnceLock::new());
    let actors: Vec<ActorRef<u64>> = (0..job.actors)
        .map(|own| {
            let counter = Counter::new(job.count, &finish);
            let peer = Peer { own, count: job.count, peers: Arc::clone(&peers), counter };
            let places = job.mailbox.max(job.count as usize + 1);
            let mut peer = Some(peer);
            let options = SpawnOptions::new().mailbox(Mailbox::new(places));
            engine.spawn_with(options, move || peer.take().expect("it never restarts")).expect("it spawns")
        })
        .collect();
    peers.set(actors.clone()).expect("set once");
    let start = Instant::now();
    for actor in &actors {
        actor.send_blocking(START).expect("the actor lives");
    }
    Outcome::rate(job.count * job.actors as u64, finish.since(start))
}

fn ping_pong(engine: &Engine, job: &Job) -> Outcome {
    let finish = Finish::after(1);
    let to_ping = Arc::new(OnceLock::<ActorRef<u64>>::new());
    let ping = Arc::clone(&to_ping);
    let pong = engine.spawn_fn(move |word: u64, _| {
        ping.get().expect("set before the start").tell(word)?;
        Ok(())
    });
    let pong = pong.expect("it spawns");
    let (mut latency, mut left, back) = (Latency::new(job.count, 1, &finish), job.count, pong.clone());
    let ping = engine.spawn_fn(move |word: u64, _| {
        latency.take(word);
        left -= 1;
        if left > 0 {
            back.tell(now_ns())?;
        }
        Ok(())
    });
    to_ping.set(ping.expect("it spawns")).expect("set once");
    pong.tell(now_ns()).expect("the actor lives");
    Outcome::latency(finish.samples())
}

/// A window of requests from one thread outside: the oldest is waited for before the next is sent.
fn ask(engine: &Engine, job: &Job) -> Outcome {
    let echo = echo(engine);
    let mut window: VecDeque<Pending<u64>> = VecDeque::with_capacity(job.in_flight);
    let start = Instant::now();
    for word in 0..job.count {
        if window.len() == job.in_flight {
            window.pop_front().expect("not empty").wait().expect("an answer");
        }
        window.push_back(echo.ask(|reply| Request(word, reply), PATIENCE));
    }
    window.into_iter().for_each(|pending| assert!(pending.wait().is_ok()));
    Outcome::rate(job.count, start.elapsed())
}

fn ask_from_tasks(engine: &Engine, job: &Job) -> Outcome {
    let echo = echo(engine);
    let finish = Finish::after(job.in_flight);
    let share = job.count / job.in_flight as u64;
    let start = Instant::now();
    for _ in 0..job.in_flight {
        let (echo, finish) = (echo.clone(), finish.clone());
        task(engine, move || {
            let (echo, finish) = (echo.clone(), finish.clone());
            async move {
                for word in 0..share {
                    let answer = echo.ask(|reply| Request(word, reply), PATIENCE).await;
                    assert_eq!(answer.ok(), Some(word));
                }
                finish.one();
            }
        });
    }
    Outcome::rate(share * job.in_flight as u64, finish.since(start))
}

fn spawn(job: &Job, one: impl Fn(Counter) -> Result<ActorRef<u64>, SpawnError>) -> Outcome {
    let finish = Finish::after(1);
    let mut actors = Vec::with_capacity(job.count as usize);
    let before = resident_bytes();
    let start = Instant::now();
    for _ in 0..job.count {
        actors.push(one(Counter::new(1, &finish)).expect("it spawns"));
    }
    actors.last().expect("at least one").tell(0).expect("the actor lives");
    let elapsed = finish.since(start);
    std::thread::sleep(Duration::from_millis(200));
    let bytes = resident_bytes().saturating_sub(before);
    Outcome::rate(job.count, elapsed).with("bytes_each", bytes as f64 / job.count as f64)
}

fn timers(engine: &Engine, job: &Job) -> Outcome {
    let actor = sink(engine, job, Counter::new(u64::MAX, &Finish::after(1)));
    let before = resident_bytes();
    let start = Instant::now();
    let timers: Vec<_> = (0..job.count).map(|index| engine.schedule(spread(index), &actor, index)).collect();
    let scheduled = start.elapsed();
    let bytes = resident_bytes().saturating_sub(before);
    let cancelled = timers.iter().step_by(2).filter(|timer| timer.cancel()).count();
    let both = start.elapsed();
    let start = Instant::now();
    for index in 0..job.count {
        engine.schedule(spread(index), &actor, index).cancel();
    }
    Outcome::rate(job.count, start.elapsed())
        .with("schedule_rate", job.count as f64 / scheduled.as_secs_f64())
        .with("cancel_rate", cancelled as f64 / (both - scheduled).as_secs_f64())
        .with("bytes_each", bytes as f64 / job.count as f64)
}

fn timers_due(engine: &Engine, job: &Job) -> Outcome {
    let finish = Finish::after(1);
    let options = SpawnOptions::new().mailbox(Mailbox::new(job.count as usize));
    let mut counter = Counter::new(job.count, &finish);
    let actor = engine.spawn_fn_with(options, move |word, _| {
        counter.take(word);
        Ok(())
    });
    let (actor, start) = (actor.expect("it spawns"), Instant::now());
    let due = Duration::from_millis(100);
    for word in 0..job.count {
        drop(engine.schedule(due.saturating_sub(start.elapsed()), &actor, word));
    }
    Outcome::default().with("last_after_ms", finish.since(start).as_secs_f64() * 1e3)
}

fn fan_out(engine: &Engine, job: &Job) -> Outcome {
    let finish = subscribers(engine, job);
    let start = Instant::now();
    (0..job.count).for_each(|word| {
        engine.publish(SUBJECT, word).expect("the subject is well formed");
    });
    Outcome::rate(job.count * job.actors as u64, finish.since(start))
}

fn fan_out_from_task(engine: &Engine, job: &Job) -> Outcome {
    let finish = subscribers(engine, job);
    let (handle, count, start) = (engine.handle(), job.count, Instant::now());
    task(engine, move || {
        let handle = handle.clone();
        async move {
            (0..count).for_each(|word| {
                handle.publish(SUBJECT, word).expect("the subject is well formed");
            });
        }
    });
    Outcome::rate(job.count * job.actors as u64, finish.since(start))
}

/// Their mailboxes hold all that is published, as publishing does not wait.
fn subscribers(engine: &Engine, job: &Job) -> Finish {
    let finish = Finish::after(job.actors);
    let places = Job { mailbox: job.mailbox.max(job.count as usize), ..job.clone() };
    for _ in 0..job.actors {
        let actor = sink(engine, &places, Counter::new(job.count, &finish));
        engine.subscribe(SUBJECT, &actor).expect("it subscribes");
    }
    finish
}

fn paced(engine: &Engine, goal: u64, every: u64, pace: impl FnOnce(&mut dyn FnMut(u64))) -> Outcome {
    let finish = Finish::after(1);
    let actor = engine.spawn(Sink(Latency::new(goal, every, &finish))).expect("it spawns");
    pace(&mut |word| {
        actor.tell(word).expect("there is room");
    });
    Outcome::latency(finish.samples())
}

fn idle(engine: &Engine, job: &Job) -> Vec<ActorRef<u64>> {
    (0..job.idle).map(|_| engine.spawn(Sink(Counter::new(1, &Finish::after(1)))).expect("it spawns")).collect()
}

fn sink<H: Handler>(engine: &Engine, job: &Job, handler: H) -> ActorRef<u64> {
    let mut sink = Some(Sink(handler));
    let options = SpawnOptions::new().mailbox(Mailbox::new(job.mailbox));
    engine.spawn_with(options, move || sink.take().expect("it never restarts")).expect("it spawns")
}

fn echo(engine: &Engine) -> ActorRef<Request> {
    let echo = engine.spawn_fn(|request: Request, _| {
        request.1.send(request.0);
        Ok(())
    });
    echo.expect("it spawns")
}

/// Runs a future on the engine's threads.
fn task<F>(engine: &Engine, mut make: impl FnMut() -> F + Send + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    let spawned = engine.spawn_task(SpawnOptions::new(), move |_: Inbox<()>| {
        let work = make();
        async move {
            work.await;
            Ok(())
        }
    });
    spawned.expect("it spawns");
}

/// Where the fan-out publishes.
const SUBJECT: &str = "bench.ticks";

/// The word that starts an exchange.
const START: u64 = u64::MAX;

/// The deadline of a request.
const PATIENCE: Duration = Duration::from_secs(30);

struct Request(u64, Reply<u64>);

struct Sink<H>(H);

impl<H: Handler> Actor for Sink<H> {
    type Message = u64;

    #[inline]
    fn receive(&mut self, word: u64, _: &mut Context<'_, u64>) -> Result<(), Fault> {
        self.0.take(word);
        Ok(())
    }
}

struct Peer {
    own: usize,
    count: u64,
    peers: Arc<OnceLock<Vec<ActorRef<u64>>>>,
    counter: Counter,
}

impl Actor for Peer {
    type Message = u64;

    #[inline]
    fn receive(&mut self, word: u64, _: &mut Context<'_, u64>) -> Result<(), Fault> {
        if word != START {
            self.counter.take(word);
            return Ok(());
        }
        let peers = self.peers.get().expect("set before the start");
        for (word, other) in (0..self.count).zip(Others::new(self.own, peers.len())) {
            peers[other].tell(word)?;
        }
        Ok(())
    }
}
