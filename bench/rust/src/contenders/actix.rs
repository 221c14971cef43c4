//! actix: one thread runs everything (its fastest form), or the actors live on an arbiter of their
//! own and the sender outside.
//!
//! `do_send` ignores the bound of the mailbox and `send` waits for the answer, so a sender of many
//! messages uses `do_send` and yields every so often.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use actix::{Actor, Addr, Arbiter, AsyncContext, Context, Message, MessageResult, System};

use crate::job::{Job, Workload};
use crate::outcome::Outcome;
use crate::pacing::{self, BURST, now_ns, resident_bytes};
use crate::probe::{Counter, Finish, Handler, Latency, Others};

/// Runs every workload but the timers; with one thread on the system's arbiter, else on others.
pub fn run(job: &Job) -> Option<Outcome> {
    let theirs = job.clone();
    let outcome = match job.workload {
        Workload::Storm => System::new().block_on(storm(theirs)),
        Workload::Exchange => System::new().block_on(exchange(theirs)),
        Workload::PingHot => System::new().block_on(ping_pong(theirs)),
        Workload::Ask => System::new().block_on(ask(theirs)),
        Workload::Spawn => System::new().block_on(spawn(theirs)),
        Workload::TimersDue => System::new().block_on(timers_due(theirs)),
        Workload::FanOut => System::new().block_on(fan_out(theirs)),
        Workload::PingIdle => paced(job.count, 1, |send| pacing::after_idle(job.count, send)),
        Workload::Burst => paced(job.count * BURST, BURST, |send| pacing::in_bursts(job.count, send)),
        // Cancelling a timer of an actor walks all its others: half a million of them would never
        // end.
        Workload::Timers | Workload::Limit => return None,
    };
    Some(outcome)
}

async fn storm(job: Job) -> Outcome {
    let home = Home::new(job.threads);
    let idle: Vec<_> = (0..job.idle).map(|_| home.start(|| Sink(Counter::new(1, &Finish::after(1))))).collect();
    let finish = Finish::after(1);
    let actor = home.sink(Counter::new(job.count, &finish));
    let start = Instant::now();
    for word in 0..job.count {
        actor.do_send(Word(word));
        if word % GIVE_WAY == 0 {
            tokio::task::yield_now().await;
        }
    }
    let elapsed = until(finish, start).await;
    drop(idle);
    Outcome::rate(job.count, elapsed)
}

async fn exchange(job: Job) -> Outcome {
    let home = Home::new(job.threads);
    let finish = Finish::after(job.actors);
    let peers = Arc::new(OnceLock::new());
    let mut actors = Vec::new();
    for own in 0..job.actors {
        let counter = Counter::new(job.count, &finish);
        let peer = Peer { own, count: job.count, peers: Arc::clone(&peers), counter };
        actors.push(home.start(move || peer));
    }
    let _ = peers.set(actors.clone());
    let start = Instant::now();
    for actor in &actors {
        actor.do_send(Word(START));
    }
    Outcome::rate(job.count * job.actors as u64, until(finish, start).await)
}

async fn ping_pong(job: Job) -> Outcome {
    let home = Home::new(job.threads);
    let finish = Finish::after(1);
    let to_ping = Arc::new(OnceLock::new());
    let pong = Pong { ping: Arc::clone(&to_ping) };
    let pong = home.start(move || pong);
    let ping = Ping { pong: pong.clone(), left: job.count, latency: Latency::new(job.count, 1, &finish) };
    let _ = to_ping.set(home.start(move || ping));
    pong.do_send(Word(now_ns()));
    until(finish.clone(), Instant::now()).await;
    Outcome::latency(finish.samples())
}

async fn ask(job: Job) -> Outcome {
    let echo = Home::new(job.threads).start(|| Echo);
    let share = job.count / job.in_flight as u64;
    let start = Instant::now();
    let askers: Vec<_> = (0..job.in_flight)
        .map(|_| {
            let echo = echo.clone();
            actix::spawn(async move {
                for word in 0..share {
                    assert_eq!(echo.send(Request(word)).await.ok(), Some(word));
                }
            })
        })
        .collect();
    for asker in askers {
        asker.await.expect("an asker does not panic");
    }
    Outcome::rate(share * job.in_flight as u64, start.elapsed())
}

async fn spawn(job: Job) -> Outcome {
    let finish = Finish::after(1);
    let mut actors = Vec::with_capacity(job.count as usize);
    let before = resident_bytes();
    let start = Instant::now();
    for _ in 0..job.count {
        actors.push(Sink(Counter::new(1, &finish)).start());
    }
    let last = actors.last().expect("at least one");
    last.send(Word(0)).await.expect("the actor lives");
    let elapsed = start.elapsed();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let bytes = resident_bytes().saturating_sub(before);
    Outcome::rate(job.count, elapsed).with("bytes_each", bytes as f64 / job.count as f64)
}

async fn timers_due(job: Job) -> Outcome {
    let finish = Finish::after(1);
    let start = Instant::now();
    let many = ManyTimers {
        count: job.count,
        due: start + Duration::from_millis(100),
        counter: Counter::new(job.count, &finish),
    };
    let actor = many.start();
    let elapsed = until(finish, start).await;
    drop(actor);
    Outcome::default().with("last_after_ms", elapsed.as_secs_f64() * 1e3)
}

async fn fan_out(job: Job) -> Outcome {
    let home = Home::new(job.threads);
    let finish = Finish::after(job.actors);
    let actors: Vec<_> = (0..job.actors).map(|_| home.sink(Counter::new(job.count, &finish))).collect();
    let start = Instant::now();
    for word in 0..job.count {
        for actor in &actors {
            actor.do_send(Word(word));
        }
        if word % (GIVE_WAY / 50) == 0 {
            tokio::task::yield_now().await;
        }
    }
    Outcome::rate(job.count * job.actors as u64, until(finish, start).await)
}

/// The sender is a thread of its own, outside of the system.
fn paced(goal: u64, every: u64, pace: impl FnOnce(&mut dyn FnMut(u64))) -> Outcome {
    let finish = Finish::after(1);
    let theirs = finish.clone();
    let (hand_over, actor) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || {
        System::new().block_on(async {
            let _ = hand_over.send(Sink(Latency::new(goal, every, &theirs)).start());
            std::future::pending::<()>().await;
        });
    });
    let actor = actor.recv().expect("the host hands the actor over");
    pace(&mut |word| actor.do_send(Word(word)));
    Outcome::latency(finish.samples())
}

/// Waits for the finish without holding up the thread that runs actors.
async fn until(finish: Finish, start: Instant) -> Duration {
    let waiting = tokio::task::spawn_blocking(move || finish.since(start));
    waiting.await.expect("waiting does not panic")
}

/// Where actors are started: on this thread, or in turn on arbiters of their own.
struct Home {
    arbiters: Vec<Arbiter>,
    started: std::cell::Cell<usize>,
}

impl Home {
    fn new(threads: usize) -> Home {
        let others = if threads == 1 { 0 } else { threads };
        Home { arbiters: (0..others).map(|_| Arbiter::new()).collect(), started: std::cell::Cell::new(0) }
    }

    fn start<A, F>(&self, build: F) -> Addr<A>
    where
        A: Actor<Context = Context<A>> + Send,
        F: FnOnce() -> A + Send + 'static,
    {
        if self.arbiters.is_empty() {
            return build().start();
        }
        let turn = self.started.replace(self.started.get() + 1) % self.arbiters.len();
        A::start_in_arbiter(&self.arbiters[turn].handle(), |_| build())
    }

    fn sink<H: Handler + Unpin>(&self, handler: H) -> Addr<Sink<H>> {
        self.start(move || Sink(handler))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        for arbiter in &self.arbiters {
            arbiter.stop();
        }
    }
}

/// How many messages a sender sends before it lets others run.
const GIVE_WAY: u64 = 1024;

/// The word that starts an exchange.
const START: u64 = u64::MAX;

#[derive(Message)]
#[rtype(result = "()")]
struct Word(u64);

#[derive(Message)]
#[rtype(result = "u64")]
struct Request(u64);

struct Sink<H>(H);

impl<H: Handler + Unpin> Actor for Sink<H> {
    type Context = Context<Self>;
}

impl<H: Handler + Unpin> actix::Handler<Word> for Sink<H> {
    type Result = ();

    fn handle(&mut self, word: Word, _: &mut Context<Self>) {
        self.0.take(word.0);
    }
}

struct Peer {
    own: usize,
    count: u64,
    peers: Arc<OnceLock<Vec<Addr<Peer>>>>,
    counter: Counter,
}

impl Actor for Peer {
    type Context = Context<Self>;
}

impl actix::Handler<Word> for Peer {
    type Result = ();

    fn handle(&mut self, word: Word, _: &mut Context<Self>) {
        if word.0 != START {
            return self.counter.take(word.0);
        }
        let peers = self.peers.get().expect("set before the start");
        for (word, other) in (0..self.count).zip(Others::new(self.own, peers.len())) {
            peers[other].do_send(Word(word));
        }
    }
}

struct Ping {
    pong: Addr<Pong>,
    left: u64,
    latency: Latency,
}

impl Actor for Ping {
    type Context = Context<Self>;
}

impl actix::Handler<Word> for Ping {
    type Result = ();

    fn handle(&mut self, word: Word, _: &mut Context<Self>) {
        self.latency.take(word.0);
        self.left -= 1;
        if self.left > 0 {
            self.pong.do_send(Word(now_ns()));
        }
    }
}

struct Pong {
    ping: Arc<OnceLock<Addr<Ping>>>,
}

impl Actor for Pong {
    type Context = Context<Self>;
}

impl actix::Handler<Word> for Pong {
    type Result = ();

    fn handle(&mut self, word: Word, _: &mut Context<Self>) {
        self.ping.get().expect("set before the start").do_send(word);
    }
}

struct Echo;

impl Actor for Echo {
    type Context = Context<Self>;
}

impl actix::Handler<Request> for Echo {
    type Result = MessageResult<Request>;

    fn handle(&mut self, request: Request, _: &mut Context<Self>) -> MessageResult<Request> {
        MessageResult(request.0)
    }
}

/// Sets all its timers when it starts.
struct ManyTimers {
    count: u64,
    due: Instant,
    counter: Counter,
}

impl Actor for ManyTimers {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        for word in 0..self.count {
            context.notify_later(Word(word), self.due.saturating_duration_since(Instant::now()));
        }
    }
}

impl actix::Handler<Word> for ManyTimers {
    type Result = ();

    fn handle(&mut self, word: Word, _: &mut Context<Self>) {
        self.counter.take(word.0);
    }
}
