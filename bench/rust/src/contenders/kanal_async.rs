//! kanal's bounded channel between tasks of a tokio runtime.

use std::sync::Arc;
use std::time::Instant;

use crate::contenders::inside;
use crate::job::{Job, Workload};
use crate::outcome::Outcome;
use crate::probe::{Counter, Finish, Handler, Others};

/// Runs the storm and the exchange.
pub fn run(job: &Job) -> Option<Outcome> {
    let threads = job.threads;
    match job.workload {
        Workload::Storm if job.idle == 0 => Some(inside(threads, storm(job.clone()))),
        Workload::Exchange => Some(inside(threads, exchange(job.clone()))),
        _ => None,
    }
}

async fn storm(job: Job) -> Outcome {
    let finish = Finish::after(1);
    let (sender, receiver) = kanal::bounded_async(job.mailbox);
    let consumer = tokio::spawn(consume(receiver, Counter::new(job.count, &finish)));
    let start = Instant::now();
    for word in 0..job.count {
        sender.send(word).await.expect("the receiver lives");
    }
    drop(sender);
    consumer.await.expect("the consumer does not panic");
    Outcome::rate(job.count, finish.since(start))
}

async fn exchange(job: Job) -> Outcome {
    let finish = Finish::after(job.actors);
    // Everybody sends first and receives then, so each channel must hold all that is meant for it.
    let places = job.mailbox.max(job.count as usize);
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..job.actors).map(|_| kanal::bounded_async(places)).unzip();
    let senders: Arc<[kanal::AsyncSender<u64>]> = senders.into();
    let start = Instant::now();
    let mut tasks = Vec::new();
    for (own, receiver) in receivers.into_iter().enumerate() {
        let (senders, mut counter) = (Arc::clone(&senders), Counter::new(job.count, &finish));
        tasks.push(tokio::spawn(async move {
            for (word, other) in (0..job.count).zip(Others::new(own, senders.len())) {
                senders[other].send(word).await.expect("the receiver lives");
            }
            for _ in 0..job.count {
                counter.take(receiver.recv().await.expect("the senders live"));
            }
        }));
    }
    for task in tasks {
        task.await.expect("an actor does not panic");
    }
    Outcome::rate(job.count * job.actors as u64, finish.since(start))
}

async fn consume(receiver: kanal::AsyncReceiver<u64>, mut handler: impl Handler) {
    while let Ok(word) = receiver.recv().await {
        handler.take(word);
    }
}
