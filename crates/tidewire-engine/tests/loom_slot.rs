//! The slot of a reply, in all interleavings: an ask ends once, whoever ends it, and whoever waits for it is woken. What runs is `slot.rs`
//! itself, over loom's atomics and locks; what it says to the rest of the engine stands below. Run with `make test-loom`.

#![cfg(loom)]
#![allow(missing_docs)]

#[path = "../src/slot.rs"]
#[allow(dead_code)]
mod slot;
#[path = "support/loom_sync.rs"]
#[allow(dead_code, unused_imports)]
mod sync;

mod actor {
    pub type ActorId = u64;
}

mod error {
    use std::time::Duration;

    pub type Fault = String;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[allow(dead_code)]
    pub enum DeadReason {
        Expired,
        Abandoned,
    }

    #[derive(Clone, Debug, PartialEq, Eq)]
    #[allow(dead_code)]
    pub enum AskError {
        Failed(Fault),
        Timeout { actor: u64, after: Duration },
        NoReply { actor: u64 },
        Lost { actor: u64, reason: DeadReason },
    }
}

mod guard {
    pub fn wake_all(wakers: impl IntoIterator<Item = std::task::Waker>) {
        wakers.into_iter().for_each(std::task::Waker::wake);
    }
}

mod short_mutex {
    pub use crate::sync::Mutex as ShortMutex;
}

mod timers {
    pub trait Fire {
        fn fire(self: std::sync::Arc<Self>);
        fn abandoned(&self, _actor: u64) {}
    }
}

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use error::AskError;
use loom::sync::Notify;
use loom::thread;
use slot::{AskEnd, Asked, Slot, Standing};
use timers::Fire;

struct Bell(Notify);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

fn slot() -> Arc<Slot<u8>> {
    let slot = Arc::new(Slot::new(7, Duration::from_secs(3_600)));
    // Nobody reads the clock: a model has none.
    slot.watched.store(true, sync::Ordering::Relaxed);
    slot
}

/// Waits until the ask ends; loom reports it if nobody wakes this.
fn wait(slot: &Slot<u8>) -> Result<u8, AskError> {
    let bell = Arc::new(Bell(Notify::new()));
    let waker = Waker::from(Arc::clone(&bell));
    loop {
        if let Some(value) = slot.look_or_wait(&waker) {
            return value;
        }
        bell.0.wait();
    }
}

fn does<T: 'static>(slot: &Arc<Slot<u8>>, act: impl FnOnce(&Arc<Slot<u8>>) -> T + 'static) -> thread::JoinHandle<T> {
    let slot = Arc::clone(slot);
    thread::spawn(move || act(&slot))
}

#[test]
fn of_a_reply_and_a_deadline_one_ends_the_ask_and_the_asker_is_woken() {
    loom::model(|| {
        let slot = slot();
        let replies = does(&slot, |slot| slot.complete(Ok(1)));
        let fires = does(&slot, |slot| Arc::clone(slot).fire());
        let value = wait(&slot);
        fires.join().unwrap();
        let sent = replies.join().unwrap();
        assert_eq!(sent, value == Ok(1), "the handler is told whether its reply was the end");
        assert!(sent || matches!(value, Err(AskError::Timeout { .. })));
        assert_eq!(slot.take(), None, "there is one end");
    });
}

#[test]
fn a_handler_that_ends_without_a_reply_ends_the_ask_in_either_order() {
    loom::model(|| {
        let slot = slot();
        let drops = does(&slot, |slot| slot.reply_gone());
        let ends = does(&slot, |slot| slot.settle(AskEnd::Handled));
        assert_eq!(wait(&slot), Err(AskError::NoReply { actor: 7 }));
        drops.join().unwrap();
        ends.join().unwrap();
    });
}

#[test]
fn who_gives_an_ask_up_leaves_nothing_in_its_place() {
    loom::model(|| {
        let slot = slot();
        let replies = does(&slot, |slot| slot.complete(Ok(1)));
        assert!(slot.look_or_wait(Waker::noop()).is_none_or(|value| value == Ok(1)));
        slot.cancel();
        let sent = replies.join().unwrap();
        assert_eq!(slot.take(), None);
        assert_eq!(sent, slot.standing() == Standing::Live, "it had ended, or is cancelled");
    });
}

#[test]
fn an_actor_that_is_abandoned_ends_the_ask_once() {
    loom::model(|| {
        let slot = slot();
        let replies = does(&slot, |slot| slot.complete(Ok(1)));
        let abandons = does(&slot, |slot| slot.abandoned(7));
        let value = wait(&slot);
        abandons.join().unwrap();
        assert_eq!(replies.join().unwrap(), value.is_ok());
    });
}
