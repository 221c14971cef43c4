//! The bounded channel of the standard library between threads: an actor without anything but its
//! queue.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Instant;

use crate::job::{Job, Workload};
use crate::outcome::Outcome;
use crate::pacing::{self, BURST};
use crate::probe::{Counter, Finish, Handler, Latency, Others};

/// `std::sync::mpsc::sync_channel`.
pub fn run(job: &Job) -> Option<Outcome> {
    match job.workload {
        Workload::Storm if job.idle == 0 => Some(storm(job)),
        Workload::Exchange => Some(exchange(job)),
        Workload::PingIdle => Some(paced(job, job.count, 1, |send| pacing::after_idle(job.count, send))),
        Workload::Burst => Some(paced(job, job.count * BURST, BURST, |send| pacing::in_bursts(job.count, send))),
        _ => None,
    }
}

fn storm(job: &Job) -> Outcome {
    let finish = Finish::after(1);
    let sender = receiver_thread(job.mailbox, Counter::new(job.count, &finish));
    let start = Instant::now();
    for word in 0..job.count {
        sender.send(word).expect("the receiver lives");
    }
    Outcome::rate(job.count, finish.since(start))
}

/// One thread for each actor: many of these channels can't be awaited together.
fn exchange(job: &Job) -> Outcome {
    let finish = Finish::after(job.actors);
    let count = job.count;
    // Everybody sends first and receives then, so each channel must hold all that is meant for it.
    let places = job.mailbox.max(count as usize);
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..job.actors).map(|_| sync_channel(places)).unzip();
    let theirs: Vec<_> = (0..job.actors).map(|_| senders.clone()).collect();
    let start = Instant::now();
    for (own, (receiver, senders)) in receivers.into_iter().zip(theirs).enumerate() {
        let mut counter = Counter::new(count, &finish);
        thread::spawn(move || {
            for (word, other) in (0..count).zip(Others::new(own, senders.len())) {
                senders[other].send(word).expect("the receiver lives");
            }
            for _ in 0..count {
                counter.take(receiver.recv().expect("the senders live"));
            }
        });
    }
    Outcome::rate(count * job.actors as u64, finish.since(start))
}

fn paced(job: &Job, goal: u64, every: u64, pace: impl FnOnce(&mut dyn FnMut(u64))) -> Outcome {
    let finish = Finish::after(1);
    let sender = receiver_thread(job.mailbox, Latency::new(goal, every, &finish));
    pace(&mut |word| sender.send(word).expect("the receiver lives"));
    Outcome::latency(finish.samples())
}

fn receiver_thread(places: usize, mut handler: impl Handler) -> SyncSender<u64> {
    let (sender, receiver) = sync_channel(places);
    thread::spawn(move || {
        for word in receiver {
            handler.take(word);
        }
    });
    sender
}
