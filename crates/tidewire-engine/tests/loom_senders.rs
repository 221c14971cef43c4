//! Senders that wait for room in a full mailbox, in all interleavings: each gets its message in.
//! The mailbox is `inbox.rs` itself under a lock of loom's; around it stand the steps of
//! `ActorCell::push_or_wait`, `Activation::take` and `Activation::refill`. Run with `make
//! test-loom`.

#![cfg(loom)]
#![allow(missing_docs)]

#[path = "../src/inbox.rs"]
#[allow(dead_code)]
mod inbox;

mod cell {
    pub mod envelope {
        pub struct Envelope<M>(#[allow(dead_code)] pub M);
    }
}

mod actor {
    pub mod options {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(dead_code)]
        pub enum Overflow {
            Wait,
            Fail,
            DropNew,
            DropOld,
        }

        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(dead_code)]
        pub enum Priority {
            Urgent,
            High,
            Normal,
            Low,
        }
    }

    pub mod signal {
        pub struct Notice;
    }
}

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Wake, Waker};

use actor::options::{Overflow, Priority};
use cell::envelope::Envelope;
use inbox::{Inbox, PushOutcome, Run};
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::sync::{Mutex, Notify};
use loom::thread;

struct Bell(Notify);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

struct Actor {
    inbox: Mutex<Inbox<u32>>,
    /// `ATTEND_WAITERS`.
    attend: AtomicBool,
    in_hand: AtomicU32,
    /// Run queue state of the actor, and the wakeup for it.
    queued: Notify,
    hand: Mutex<VecDeque<Envelope<u32>>>,
}

impl Actor {
    fn new(capacity: u32) -> Arc<Self> {
        Arc::new(Self {
            inbox: Mutex::new(Inbox::new(capacity, Overflow::Wait, Run::Idle)),
            attend: AtomicBool::new(false),
            in_hand: AtomicU32::new(0),
            queued: Notify::new(),
            hand: Mutex::new(VecDeque::new()),
        })
    }

    /// Sends, and waits for room.
    fn send(&self, number: u32) {
        let bell = Arc::new(Bell(Notify::new()));
        let waker = Waker::from(Arc::clone(&bell));
        let mut envelope = Envelope(number);
        loop {
            let pushed = {
                let mut inbox = self.inbox.lock().unwrap();
                let pushed = inbox.push(envelope, Priority::Normal, || self.in_hand.load(Ordering::Relaxed));
                if matches!(pushed, PushOutcome::Full(_)) && inbox.senders_wait() {
                    inbox.wait(waker.clone());
                    self.attend.store(true, Ordering::Relaxed);
                }
                pushed
            };
            match pushed {
                PushOutcome::Accepted { wake } => {
                    if wake {
                        self.queued.notify();
                    }
                    return;
                }
                PushOutcome::Full(back) => envelope = back,
                _ => unreachable!("it is open, and its senders wait"),
            }
            bell.0.wait();
        }
    }

    /// Runs the actor until it has handled so many.
    fn run(&self, count: u32) {
        let mut hand = self.hand.lock().unwrap();
        let mut handled = 0;
        while handled < count {
            if hand.pop_front().is_some() {
                self.took(&hand);
                handled += 1;
                continue;
            }
            let woken = {
                let mut inbox = self.inbox.lock().unwrap();
                if inbox.waiting() == 0 {
                    inbox.run = Run::Idle;
                    let woken = inbox.woken(0);
                    drop(inbox);
                    self.wake(woken);
                    self.queued.wait();
                    continue;
                }
                inbox.take(&mut hand, 8);
                inbox.woken(hand.len() as u32)
            };
            self.wake(woken);
        }
    }

    /// After a message was taken out of the hand.
    fn took(&self, hand: &VecDeque<Envelope<u32>>) {
        self.in_hand.store(hand.len() as u32, Ordering::Relaxed);
        if self.attend.load(Ordering::Relaxed) && hand.is_empty() {
            let woken = self.inbox.lock().unwrap().woken(0);
            self.wake(woken);
        }
    }

    fn wake(&self, woken: Option<inbox::BoxedQueue<Waker>>) {
        if let Some(woken) = woken {
            self.attend.store(false, Ordering::Relaxed);
            woken.into_iter().for_each(Waker::wake);
        }
    }
}

fn sends(actor: &Arc<Actor>, number: u32) -> thread::JoinHandle<()> {
    let actor = Arc::clone(actor);
    thread::spawn(move || actor.send(number))
}

#[test]
fn a_sender_that_waits_for_room_gets_its_message_in() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let actor = Actor::new(1);
        actor.send(0);
        let senders = [sends(&actor, 1), sends(&actor, 2)];
        // If a sender is forgotten, loom reports a deadlock here.
        actor.run(3);
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        assert_eq!(actor.inbox.lock().unwrap().accepted, 3);
    });
}
