//! Reply slot in all interleavings: an ask ends only once, and every waiter is woken. The model
//! runs `ask_slot.rs` itself, over the atomics and locks of loom. Stubs for the rest of the engine
//! are below. Run with `make test-loom`.

#![cfg(loom)]
#![allow(missing_docs)]

#[path = "../src/ask_slot.rs"]
#[allow(dead_code)]
mod ask_slot;
#[path = "support/loom_sync.rs"]
#[allow(dead_code, unused_imports)]
mod sync;

mod actor {
    pub mod id {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct ActorId(u64);

        impl ActorId {
            pub const fn new(id: u64) -> Self {
                Self(id)
            }

            pub fn get(self) -> u64 {
                self.0
            }
        }
    }
}

mod core {
    pub struct Core;
}

mod error {
    use std::time::Duration;

    use super::actor::id::ActorId;

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
        Timeout { actor: ActorId, after: Duration, starved: Option<()> },
        NoReply { actor: ActorId },
        Lost { actor: ActorId, reason: DeadReason },
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
    /// A model has no clock: nothing reads it here but to say when a deadline is.
    pub mod clock {
        use std::time::{Duration, Instant};

        pub const NEVER: u64 = u64::MAX;

        pub fn now() -> u64 {
            unreachable!("deadlines are watched here")
        }

        pub fn instant(_: u64) -> Instant {
            Instant::now()
        }

        pub fn nanos(span: Duration) -> u64 {
            u64::try_from(span.as_nanos()).unwrap()
        }
    }

    use std::time::Instant;

    pub trait Fire {
        fn fire(self: std::sync::Arc<Self>);
        fn abandoned(&self, _actor: super::actor::id::ActorId) {}
        fn due(&self) -> Due;
        fn waits(&self) -> bool;
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Due {
        AsSaid,
        Later(Instant),
        Never,
    }
}

use std::sync::Weak;
use std::task::{Wake, Waker};
use std::time::Duration;

use actor::id::ActorId;
use ask_slot::{AskEnd, AskHandle, AskSlot, AskState, SlotView};
use error::AskError;
use loom::sync::Notify;
use loom::thread;
use sync::Arc;
use timers::{Due, Fire};

const ASKED: ActorId = ActorId::new(7);
const HOUR: Duration = Duration::from_secs(3_600);

struct Bell(Notify);

impl Wake for Bell {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.notify();
    }
}

/// A slot whose ask is under way, and which somebody watches.
fn slot() -> Arc<AskSlot<u8>> {
    let slot = Arc::new(AskSlot::new(Weak::new()));
    slot.begin(ASKED, HOUR, 1);
    slot.is_to_be_watched();
    slot
}

/// Waits until the ask ends; loom reports it if nobody wakes this. Answers how, and whether the
/// slot stays where its deadline is.
fn end_of(slot: &AskSlot<u8>) -> (Result<u8, AskError>, bool) {
    let bell = std::sync::Arc::new(Bell(Notify::new()));
    let waker = Waker::from(std::sync::Arc::clone(&bell));
    loop {
        if let SlotView::Ended { value, stays } = slot.look_or_wait(&waker) {
            return (value, stays);
        }
        bell.0.wait();
    }
}

fn wait(slot: &AskSlot<u8>) -> Result<u8, AskError> {
    end_of(slot).0
}

fn does<T: 'static>(
    slot: &Arc<AskSlot<u8>>,
    act: impl FnOnce(&Arc<AskSlot<u8>>) -> T + 'static,
) -> thread::JoinHandle<T> {
    let slot = Arc::clone(slot);
    thread::spawn(move || act(&slot))
}

/// The deadlines of an engine look at a slot that they hold. Answers whether they hold on to it,
/// and what they found.
fn deadlines(slot: &Arc<AskSlot<u8>>) -> thread::JoinHandle<(Option<Arc<AskSlot<u8>>>, Due)> {
    let held = Arc::clone(slot);
    thread::spawn(move || {
        let due = held.due();
        ((due != Due::Never).then_some(held), due)
    })
}

#[test]
fn of_a_reply_and_a_deadline_one_ends_the_ask_and_the_asker_is_woken() {
    loom::model(|| {
        let slot = slot();
        let replies = does(&slot, |slot| slot.complete(Ok(1)));
        let fires = does(&slot, |slot| slot.time_is_up());
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
        assert_eq!(wait(&slot), Err(AskError::NoReply { actor: ASKED }));
        drops.join().unwrap();
        ends.join().unwrap();
    });
}

#[test]
fn an_abandoned_ask_leaves_nothing_in_its_slot() {
    loom::model(|| {
        let slot = slot();
        let replies = does(&slot, |slot| slot.complete(Ok(1)));
        assert!(matches!(
            slot.look_or_wait(Waker::noop()),
            SlotView::Waits { .. } | SlotView::Ended { value: Ok(1), .. }
        ));
        slot.cancel();
        let sent = replies.join().unwrap();
        assert_eq!(slot.take(), None);
        assert_eq!(sent, slot.standing() == AskState::Live, "it had ended, or is cancelled");
    });
}

#[test]
fn an_actor_that_is_abandoned_ends_the_ask_once() {
    loom::model(|| {
        let slot = slot();
        let replies = does(&slot, |slot| slot.complete(Ok(1)));
        let abandons = does(&slot, |slot| slot.abandoned(ASKED));
        let value = wait(&slot);
        abandons.join().unwrap();
        assert_eq!(replies.join().unwrap(), value.is_ok());
    });
}

#[test]
fn a_slot_is_used_again_only_when_no_late_reply_can_end_the_next_ask() {
    loom::model(|| {
        let slot = slot();
        let watches = deadlines(&slot);
        let replies = does(&slot, |slot| slot.complete(Ok(1)));
        // The ask was refused, or its handler has failed while somebody else has the place for the
        // reply.
        slot.complete(Err(AskError::NoReply { actor: ASKED }));
        let SlotView::Ended { stays, .. } = slot.look_or_wait(Waker::noop()) else { panic!("it has ended") };
        let again = stays && AskSlot::is_free(&slot);
        if again {
            slot.begin(ActorId::new(8), HOUR, 2);
        }
        replies.join().unwrap();
        drop(watches.join().unwrap());
        assert_eq!(slot.take(), None);
        assert_eq!(again, slot.waits(), "nobody ends the next ask but who was asked");
    });
}

#[test]
fn the_next_ask_of_a_slot_is_watched_or_knows_that_it_is_not() {
    loom::model(|| {
        let slot = slot();
        let watches = deadlines(&slot);
        let replies = does(&slot, |slot| slot.complete(Ok(1)));
        let (_, stays) = end_of(&slot);
        if stays && AskSlot::is_free(&slot) {
            slot.begin(ActorId::new(8), HOUR, 2);
            let SlotView::Waits { watched } = slot.look_or_wait(Waker::noop()) else { panic!("nobody has replied") };
            let (held, due) = watches.join().unwrap();
            assert_ne!(due, Due::AsSaid, "the deadline of the ask before fires for none");
            assert!(held.is_some() || !watched, "nobody watches it, and it does not know");
        } else {
            drop(watches.join().unwrap());
        }
        replies.join().unwrap();
    });
}

#[test]
fn an_actor_that_is_abandoned_ends_no_ask_of_another_one() {
    loom::model(|| {
        let slot = slot();
        let abandons = does(&slot, |slot| slot.abandoned(ASKED));
        slot.complete(Ok(1));
        assert!(slot.take().is_some(), "one of the two has ended it");
        // The deadlines and whoever tells of the end still have it: that is no reason against its
        // next ask.
        slot.begin(ActorId::new(8), HOUR, 2);
        abandons.join().unwrap();
        assert!(slot.take().is_none() && slot.waits());
    });
}
