//! tokio's bounded channel between tasks: the ground that ractor and actix stand on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::task::JoinSet;

use crate::contenders::{inside, tokio_runtime};
use crate::job::{Job, Workload};
use crate::outcome::Outcome;
use crate::pacing::{self, BURST, now_ns, resident_bytes};
use crate::probe::{Counter, Finish, Handler, Latency, Others};

/// Runs every workload that tasks and channels can express.
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
    let idle: Vec<_> = (0..job.idle).map(|_| idle_task(job.mailbox)).collect();
    let finish = Finish::after(1);
    let (sender, receiver) = mpsc::channel(job.mailbox);
    let consumer = tokio::spawn(consume(receiver, Counter::new(job.count, &finish)));
    tokio::task::yield_now().await;
    let start = Instant::now();
    for word in 0..job.count {
        sender.send(word).await.expect("the receiver lives");
    }
    drop(sender);
    consumer.await.expect("the consumer does not panic");
    drop(idle);
    Outcome::rate(job.count, finish.since(start))
}

async fn exchange(job: Job) -> Outcome {
    let finish = Finish::after(job.actors);
    // Everybody sends first and receives then, so each channel must hold all that is meant for it.
    let places = job.mailbox.max(job.count as usize);
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..job.actors).map(|_| mpsc::channel(places)).unzip();
    let senders: Arc<[mpsc::Sender<u64>]> = senders.into();
    let mut tasks = JoinSet::new();
    let start = Instant::now();
    for (own, mut receiver) in receivers.into_iter().enumerate() {
        let (senders, mut counter) = (Arc::clone(&senders), Counter::new(job.count, &finish));
        tasks.spawn(async move {
            for (word, other) in (0..job.count).zip(Others::new(own, senders.len())) {
                senders[other].send(word).await.expect("the receiver lives");
            }
            for _ in 0..job.count {
                counter.take(receiver.recv().await.expect("the senders live"));
            }
        });
    }
    tasks.join_all().await;
    Outcome::rate(job.count * job.actors as u64, finish.since(start))
}

async fn ping_pong(job: Job) -> Outcome {
    let (ping, mut pinged) = mpsc::channel::<u64>(job.mailbox);
    let (pong, mut ponged) = mpsc::channel::<u64>(job.mailbox);
    tokio::spawn(async move {
        while let Some(word) = pinged.recv().await {
            pong.send(word).await.expect("the receiver lives");
        }
    });
    let mut samples = Vec::with_capacity(job.count as usize);
    for _ in 0..job.count {
        ping.send(now_ns()).await.expect("the receiver lives");
        let sent = ponged.recv().await.expect("the sender lives");
        samples.push(now_ns() - sent);
    }
    Outcome::latency(samples)
}

async fn ask(job: Job) -> Outcome {
    let (sender, mut requests) = mpsc::channel::<(u64, oneshot::Sender<u64>)>(job.mailbox);
    tokio::spawn(async move {
        while let Some((word, reply)) = requests.recv().await {
            let _ = reply.send(word);
        }
    });
    let share = job.count / job.in_flight as u64;
    let mut askers = JoinSet::new();
    let start = Instant::now();
    for _ in 0..job.in_flight {
        let sender = sender.clone();
        askers.spawn(async move {
            for word in 0..share {
                let (reply, answer) = oneshot::channel();
                sender.send((word, reply)).await.expect("the receiver lives");
                assert_eq!(answer.await, Ok(word));
            }
        });
    }
    askers.join_all().await;
    Outcome::rate(share * job.in_flight as u64, start.elapsed())
}

async fn spawn(job: Job) -> Outcome {
    let mut senders = Vec::with_capacity(job.count as usize);
    let before = resident_bytes();
    let start = Instant::now();
    for _ in 0..job.count {
        senders.push(idle_task(job.mailbox));
    }
    let elapsed = start.elapsed();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let bytes = resident_bytes().saturating_sub(before);
    Outcome::rate(job.count, elapsed).with("bytes_each", bytes as f64 / job.count as f64)
}

async fn timers(job: Job) -> Outcome {
    let later = |after: Duration| tokio::spawn(tokio::time::sleep(after));
    let start = Instant::now();
    let timers: Vec<_> = (0..job.count).map(|index| later(spread(index))).collect();
    every_task_has_run().await;
    let scheduled = start.elapsed();
    timers.iter().step_by(2).for_each(tokio::task::JoinHandle::abort);
    every_task_has_run().await;
    let both = start.elapsed();
    let start = Instant::now();
    for index in 0..job.count {
        later(spread(index)).abort();
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
    let (sender, receiver) = mpsc::channel(job.count as usize);
    tokio::spawn(consume(receiver, Counter::new(job.count, &finish)));
    let start = Instant::now();
    let due = start + Duration::from_millis(100);
    for word in 0..job.count {
        let sender = sender.clone();
        tokio::spawn(async move {
            tokio::time::sleep_until(due.into()).await;
            sender.send(word).await.expect("the receiver lives");
        });
    }
    let finished = tokio::task::spawn_blocking(move || finish.since(start));
    let elapsed = finished.await.expect("waiting does not panic");
    Outcome::default().with("last_after_ms", elapsed.as_secs_f64() * 1e3)
}

async fn fan_out(job: Job) -> Outcome {
    let finish = Finish::after(job.actors);
    let (sender, _) = broadcast::channel::<u64>(job.mailbox.next_power_of_two());
    let mut tasks = JoinSet::new();
    for _ in 0..job.actors {
        let (mut receiver, mut counter) = (sender.subscribe(), Counter::new(job.count, &finish));
        tasks.spawn(async move {
            while let Ok(word) = receiver.recv().await {
                counter.take(word);
            }
        });
    }
    let start = Instant::now();
    for word in 0..job.count {
        sender.send(word).expect("receivers live");
    }
    drop(sender);
    tasks.join_all().await;
    Outcome::rate(job.count * job.actors as u64, finish.since(start))
}

/// The sender is a thread of its own, outside of the runtime.
fn paced(job: &Job, goal: u64, every: u64, pace: impl FnOnce(&mut dyn FnMut(u64))) -> Outcome {
    let finish = Finish::after(1);
    let (sender, receiver) = mpsc::channel(job.mailbox);
    let (threads, handler) = (job.threads, Latency::new(goal, every, &finish));
    let host = std::thread::spawn(move || {
        let runtime = tokio_runtime(threads);
        runtime.block_on(async { tokio::spawn(consume(receiver, handler)).await })
    });
    pace(&mut |word| sender.try_send(word).expect("there is room"));
    drop(sender);
    host.join().expect("the host does not panic").expect("the consumer does not panic");
    Outcome::latency(finish.samples())
}

async fn consume(mut receiver: mpsc::Receiver<u64>, mut handler: impl Handler) {
    while let Some(word) = receiver.recv().await {
        handler.take(word);
    }
}

fn idle_task(mailbox: usize) -> mpsc::Sender<u64> {
    let (sender, mut receiver) = mpsc::channel::<u64>(mailbox);
    tokio::spawn(async move { while receiver.recv().await.is_some() {} });
    sender
}

/// Tasks run in the order in which they were spawned or woken: when this one has, so have all
/// before it. With several threads that is only nearly so.
pub(crate) async fn every_task_has_run() {
    tokio::spawn(async {}).await.expect("it does nothing");
}

/// Delays between 1 and 61 s, so that timers lie in many slots of a wheel.
pub(crate) fn spread(index: u64) -> Duration {
    Duration::from_micros(1_000_000 + index.wrapping_mul(7_919) % 60_000_000)
}
