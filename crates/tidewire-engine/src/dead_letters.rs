//! Dead letters: messages that were given up, stored with their reason.

use std::any::Any;
use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};
use std::time::SystemTime;

use tidewire_sync::Mutex;

use crate::actor::id::ActorId;
use crate::cell::any_cell::AnyCell;
use crate::error::{DeadReason, Refusal};
use crate::guard::guarded;

/// Slot of a stored message: empty once the message has been requeued.
pub type StoredMessage = Arc<Mutex<Option<Box<dyn Any + Send>>>>;

/// A message that was given up.
#[derive(Clone, derive_more::Debug)]
#[non_exhaustive]
pub struct DeadLetter {
    /// Its number, from 1, in the order in which letters came.
    pub number: u64,
    /// The actor it was meant for.
    pub actor: ActorId,
    /// Name of the actor.
    pub name: Option<Arc<str>>,
    /// Why it was given up.
    #[debug("{:?}", reason.as_str())]
    pub reason: DeadReason,
    /// The error of the handler, where there was one.
    pub error: Option<Arc<str>>,
    /// Text that the alternate form (`{:#}`) of the error adds: in Python, the traceback.
    #[debug(skip)]
    pub detail: Option<Arc<str>>,
    /// When.
    #[debug(skip)]
    pub at: SystemTime,
    /// The message, where its type allows keeping one. Of an actor that was abandoned its thread
    /// has those that it had in hand: they are here once that comes back, but for the one that its
    /// handler was at work on.
    #[debug(skip)]
    pub message: Option<StoredMessage>,
    /// Weak: the letters of an engine must not keep it.
    #[debug(skip)]
    pub(crate) cell: Option<Weak<dyn AnyCell>>,
}

/// The bounded store of dead letters of one engine.
pub struct DeadLetters {
    state: Mutex<State>,
    capacity: usize,
    added: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Default)]
struct State {
    letters: VecDeque<DeadLetter>,
    next: u64,
    discarded: u64,
    counts: BTreeMap<DeadReason, u64>,
}

/// Reason of a failed requeue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, derive_more::Display)]
#[non_exhaustive]
pub enum RequeueError {
    /// No letter has this number (any more).
    #[display("no dead letter has this number: it was dropped, requeued, or let go")]
    Unknown,
    /// The message was not stored, because its type has no copy.
    #[display("the message was not kept: implement Actor::copy for its type")]
    NotKept,
    /// Its actor refused it; the letter stays.
    #[display("{_0}")]
    Refused(Refusal),
}

impl std::error::Error for RequeueError {}

impl DeadLetters {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { state: Mutex::default(), capacity, added: OnceLock::new() }
    }

    /// Copies of the stored letters, oldest first. The messages themselves are shared, not copied.
    pub fn list(&self) -> Vec<DeadLetter> {
        self.state.lock().letters.iter().cloned().collect()
    }

    /// As [`list`](DeadLetters::list), but only letters with a number above this one: the later
    /// ones.
    pub fn list_after(&self, number: u64) -> Vec<DeadLetter> {
        let state = self.state.lock();
        let from = state.letters.partition_point(|letter| letter.number <= number);
        state.letters.range(from..).cloned().collect()
    }

    /// Number of stored letters.
    pub fn len(&self) -> usize {
        self.state.lock().letters.len()
    }

    /// True if no dead letter is stored.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of all letters so far by reason, stored or not.
    pub fn counts(&self) -> BTreeMap<DeadReason, u64> {
        self.state.lock().counts.clone()
    }

    /// Number of letters that were evicted because the store was full.
    pub fn let_go(&self) -> u64 {
        self.state.lock().discarded
    }

    /// Calls this after each new letter, on the thread that gave the message up: the call must be
    /// quick and must not block. Returns false if the engine already has such a call.
    pub fn on_added(&self, call: impl Fn() + Send + Sync + 'static) -> bool {
        self.added.set(Box::new(call)).is_ok()
    }

    /// Sends the message of a letter to its actor again, and removes the letter.
    ///
    /// # Errors
    /// If there is no such letter, its message was not stored, or the actor refuses it. The letter
    /// then stays as it is.
    pub fn requeue(&self, number: u64) -> Result<(), RequeueError> {
        let letter = self.find(number).ok_or(RequeueError::Unknown)?;
        let (Some(place), Some(cell)) = (letter.message, letter.cell) else { return Err(RequeueError::NotKept) };
        let stopped = RequeueError::Refused(Refusal::Stopped { actor: letter.actor });
        let cell = cell.upgrade().ok_or(stopped)?;
        let message = place.lock().take().ok_or(RequeueError::Unknown)?;
        match cell.tell_any(message) {
            Ok(()) => {
                self.remove(number);
                Ok(())
            }
            Err((refusal, message)) => {
                *place.lock() = Some(message);
                Err(RequeueError::Refused(refusal))
            }
        }
    }

    /// Drops a letter. Answers whether there was one.
    pub fn remove(&self, number: u64) -> bool {
        let letter = {
            let mut state = self.state.lock();
            let at = state.letters.binary_search_by_key(&number, |letter| letter.number).ok();
            at.and_then(|at| state.letters.remove(at))
        };
        letter.is_some()
    }

    /// Drops all letters, and answers how many there were.
    pub fn clear(&self) -> usize {
        let letters = std::mem::take(&mut self.state.lock().letters);
        let count = letters.len();
        for letter in letters {
            guarded(|| drop(letter));
        }
        count
    }

    /// Adds a letter, and answers which number it has got.
    pub(crate) fn add(&self, mut letter: DeadLetter) -> u64 {
        let (old, number) = {
            let mut state = self.state.lock();
            state.next += 1;
            let number = state.next;
            letter.number = number;
            *state.counts.entry(letter.reason).or_default() += 1;
            state.letters.push_back(letter);
            let full = state.letters.len() > self.capacity;
            state.discarded += u64::from(full);
            (full.then(|| state.letters.pop_front()), number)
        };
        guarded(|| drop(old));
        if let Some(added) = self.added.get() {
            guarded(added);
        }
        number
    }

    /// Adds to a letter, if it is still there, what was not known when it came.
    pub(crate) fn complete(
        &self,
        number: u64,
        message: Option<StoredMessage>,
        error: Option<Arc<str>>,
        detail: Option<Arc<str>>,
    ) {
        let dropped = {
            let mut state = self.state.lock();
            match state.letters.binary_search_by_key(&number, |letter| letter.number) {
                Ok(at) => {
                    let letter = &mut state.letters[at];
                    (letter.message, letter.error, letter.detail) = (message, error, detail);
                    None
                }
                Err(_) => Some(message),
            }
        };
        guarded(|| drop(dropped));
    }

    fn find(&self, number: u64) -> Option<DeadLetter> {
        let state = self.state.lock();
        let at = state.letters.binary_search_by_key(&number, |letter| letter.number).ok()?;
        state.letters.get(at).cloned()
    }
}
