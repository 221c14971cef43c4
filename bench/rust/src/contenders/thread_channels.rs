//! Bare bounded channels between threads: what an actor would cost if it were nothing but its
//! queue.

use std::thread;
use std::time::Instant;

use crate::job::{Job, Workload};
use crate::outcome::Outcome;
use crate::pacing::{self, BURST};
use crate::probe::{Counter, Finish, Handler, Latency, Others};

/// `std::sync::mpsc::sync_channel`.
pub fn run_std(job: &Job) -> Option<Outcome> {
    run::<Std>(job)
}

/// `crossbeam_channel::bounded`.
pub fn run_crossbeam(job: &Job) -> Option<Outcome> {
    run::<Crossbeam>(job)
}

/// `kanal::bounded`.
pub fn run_kanal(job: &Job) -> Option<Outcome> {
    run::<Kanal>(job)
}

/// Common interface of the three channels.
trait Pipe {
    type Sender: Clone + Send + 'static;
    type Receiver: Send + 'static;
    fn bounded(places: usize) -> (Self::Sender, Self::Receiver);
    fn send(sender: &Self::Sender, word: u64);
    fn receive(receiver: &Self::Receiver) -> Option<u64>;
}

fn run<P: Pipe>(job: &Job) -> Option<Outcome> {
    match job.workload {
        Workload::Storm if job.idle == 0 => Some(storm::<P>(job)),
        Workload::Exchange => Some(exchange::<P>(job)),
        Workload::PingIdle => Some(paced::<P>(job, job.count, 1, |send| pacing::after_idle(job.count, send))),
        Workload::Burst => Some(paced::<P>(job, job.count * BURST, BURST, |send| pacing::in_bursts(job.count, send))),
        _ => None,
    }
}

fn storm<P: Pipe>(job: &Job) -> Outcome {
    let finish = Finish::after(1);
    let sender = receiver_thread::<P>(job.mailbox, Counter::new(job.count, &finish));
    let start = Instant::now();
    for word in 0..job.count {
        P::send(&sender, word);
    }
    Outcome::rate(job.count, finish.since(start))
}

/// One thread for each actor: many of these channels can't be awaited together.
fn exchange<P: Pipe>(job: &Job) -> Outcome {
    let finish = Finish::after(job.actors);
    let count = job.count;
    // Everybody sends first and receives then, so each channel must hold all that is meant for it.
    let places = job.mailbox.max(count as usize);
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..job.actors).map(|_| P::bounded(places)).unzip();
    let theirs: Vec<_> = (0..job.actors).map(|_| senders.clone()).collect();
    let start = Instant::now();
    for (own, (receiver, senders)) in receivers.into_iter().zip(theirs).enumerate() {
        let mut counter = Counter::new(count, &finish);
        thread::spawn(move || {
            for (word, other) in (0..count).zip(Others::new(own, senders.len())) {
                P::send(&senders[other], word);
            }
            for _ in 0..count {
                counter.take(P::receive(&receiver).expect("the senders live"));
            }
        });
    }
    Outcome::rate(count * job.actors as u64, finish.since(start))
}

fn paced<P: Pipe>(job: &Job, goal: u64, every: u64, pace: impl FnOnce(&mut dyn FnMut(u64))) -> Outcome {
    let finish = Finish::after(1);
    let sender = receiver_thread::<P>(job.mailbox, Latency::new(goal, every, &finish));
    pace(&mut |word| P::send(&sender, word));
    Outcome::latency(finish.samples())
}

fn receiver_thread<P: Pipe>(places: usize, mut handler: impl Handler) -> P::Sender {
    let (sender, receiver) = P::bounded(places);
    thread::spawn(move || {
        while let Some(word) = P::receive(&receiver) {
            handler.take(word);
        }
    });
    sender
}

struct Std;

impl Pipe for Std {
    type Sender = std::sync::mpsc::SyncSender<u64>;
    type Receiver = std::sync::mpsc::Receiver<u64>;
    fn bounded(places: usize) -> (Self::Sender, Self::Receiver) {
        std::sync::mpsc::sync_channel(places)
    }
    fn send(sender: &Self::Sender, word: u64) {
        sender.send(word).expect("the receiver lives");
    }
    fn receive(receiver: &Self::Receiver) -> Option<u64> {
        receiver.recv().ok()
    }
}

struct Crossbeam;

impl Pipe for Crossbeam {
    type Sender = crossbeam_channel::Sender<u64>;
    type Receiver = crossbeam_channel::Receiver<u64>;
    fn bounded(places: usize) -> (Self::Sender, Self::Receiver) {
        crossbeam_channel::bounded(places)
    }
    fn send(sender: &Self::Sender, word: u64) {
        sender.send(word).expect("the receiver lives");
    }
    fn receive(receiver: &Self::Receiver) -> Option<u64> {
        receiver.recv().ok()
    }
}

struct Kanal;

impl Pipe for Kanal {
    type Sender = kanal::Sender<u64>;
    type Receiver = kanal::Receiver<u64>;
    fn bounded(places: usize) -> (Self::Sender, Self::Receiver) {
        kanal::bounded(places)
    }
    fn send(sender: &Self::Sender, word: u64) {
        sender.send(word).expect("the receiver lives");
    }
    fn receive(receiver: &Self::Receiver) -> Option<u64> {
        receiver.recv().ok()
    }
}
