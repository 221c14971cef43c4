//! Between "nothing waits" and "on a thread": a message that is accepted is always handled,
//! whatever comes between the last look into the mailbox and falling idle. The protocol of
//! `cell.rs` over a plain mailbox. Run with `make test-loom`.

#![cfg(loom)]
#![allow(missing_docs)]

use loom::sync::{Arc, Mutex};
use loom::thread;

#[derive(Default)]
struct Inbox {
    waiting: u32,
    active: bool,
    resumed: bool,
    closed: bool,
    accepted: u32,
}

#[derive(Default)]
struct Actor {
    inbox: Mutex<Inbox>,
    /// The run queue, as far as this actor is concerned: how often it is on it.
    queued: Mutex<u32>,
    /// Held for a turn: two turns at once would wait for each other here.
    turn: Mutex<u32>,
}

impl Actor {
    fn push(&self) -> bool {
        let wake = {
            let mut inbox = self.inbox.lock().unwrap();
            if inbox.closed {
                return false;
            }
            inbox.waiting += 1;
            inbox.accepted += 1;
            !std::mem::replace(&mut inbox.active, true)
        };
        if wake {
            *self.queued.lock().unwrap() += 1;
        }
        true
    }

    fn close(&self) {
        let wake = {
            let mut inbox = self.inbox.lock().unwrap();
            inbox.closed = true;
            inbox.resumed = inbox.active;
            !std::mem::replace(&mut inbox.active, true)
        };
        if wake {
            *self.queued.lock().unwrap() += 1;
        }
    }

    /// Runs the actor as a dispatcher thread does that finds it on its queue. Returns true if the
    /// actor has ended.
    fn run(&self) -> bool {
        {
            let mut queued = self.queued.lock().unwrap();
            if *queued == 0 {
                return false;
            }
            *queued -= 1;
        }
        let mut handled = self.turn.lock().unwrap();
        loop {
            let taken = std::mem::take(&mut self.inbox.lock().unwrap().waiting);
            *handled += taken;
            let mut inbox = self.inbox.lock().unwrap();
            if inbox.waiting > 0 {
                continue;
            }
            if inbox.closed {
                return true;
            }
            if std::mem::take(&mut inbox.resumed) {
                continue;
            }
            inbox.active = false;
            return false;
        }
    }
}

#[test]
fn an_accepted_message_is_handled() {
    loom::model(|| {
        let actor = Arc::new(Actor::default());
        let sender = {
            let actor = Arc::clone(&actor);
            thread::spawn(move || assert!(actor.push()))
        };
        let runner = {
            let actor = Arc::clone(&actor);
            thread::spawn(move || {
                actor.run();
            })
        };
        actor.push();
        sender.join().unwrap();
        runner.join().unwrap();
        while *actor.queued.lock().unwrap() > 0 {
            actor.run();
        }
        assert_eq!(*actor.turn.lock().unwrap(), 2);
        assert!(!actor.inbox.lock().unwrap().active);
    });
}

#[test]
fn a_stop_loses_nothing_that_was_accepted() {
    loom::model(|| {
        let actor = Arc::new(Actor::default());
        let sender = {
            let actor = Arc::clone(&actor);
            thread::spawn(move || actor.push())
        };
        let runner = {
            let actor = Arc::clone(&actor);
            thread::spawn(move || actor.run())
        };
        actor.close();
        sender.join().unwrap();
        let mut ended = runner.join().unwrap();
        while *actor.queued.lock().unwrap() > 0 {
            ended |= actor.run();
        }
        assert!(ended);
        assert_eq!(*actor.turn.lock().unwrap(), actor.inbox.lock().unwrap().accepted);
    });
}
