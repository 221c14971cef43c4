//! Dead letters and failures of one actor: messages that are not handled, and the reason.

use super::ActorCell;
use crate::ask_slot::AskEnd;
use crate::cell::envelope::{Envelope, Meta};
use crate::dead_letters::{DeadLetter, StoredMessage};
use crate::error::{DeadReason, Fault, is_passed_on};
use std::any::Any;
use std::sync::Arc;
use tidewire_sync::Mutex;

/// The letters of messages that an actor had in hand when it was abandoned. Its thread has those:
/// what becomes of one is added to its letter.
#[derive(Default)]
pub(crate) struct OwedDeadLetters {
    letters: Vec<u64>,
    /// How many were given up before there were letters for them.
    early: u64,
}

impl<M: Send + 'static> ActorCell<M> {
    /// Dead-letters a message that was taken and will not be handled.
    pub(crate) fn bury_taken(&self, envelope: Envelope<M>, reason: DeadReason, error: Option<&str>) {
        self.with_aside(|aside| aside.dead += 1);
        let (message, meta) = envelope.split();
        if message.is_some() {
            self.record_taken(message, reason, error, None);
        }
        self.settle_dead(meta, reason);
    }

    /// Adds letters for messages that the thread of the actor has: as many as `unfinished`, but for
    /// those that it has given up since `owed` was set.
    pub(crate) fn owe_letters(&self, unfinished: u64) {
        let early = self.with_aside(|aside| aside.owed.as_ref().map_or(0, |owed| owed.early));
        let letters: Vec<u64> =
            (early..unfinished).map(|_| self.core.dead.add(self.letter(DeadReason::Abandoned))).collect();
        self.with_aside(|aside| aside.owed.get_or_insert_default().letters.extend(letters));
    }

    /// A message that was taken is given up: it has a letter already if the actor was abandoned
    /// meanwhile.
    fn record_taken(&self, message: Option<M>, reason: DeadReason, error: Option<&str>, detail: Option<Arc<str>>) {
        let letter = self.with_aside(|aside| {
            let owed = aside.owed.as_mut()?;
            let letter = owed.letters.pop();
            owed.early += u64::from(letter.is_none());
            letter
        });
        match letter {
            Some(number) => self.core.dead.complete(number, message.map(stored), error.map(Arc::from), detail),
            None => self.record(message, reason, error, detail),
        }
    }

    fn settle_dead(&self, meta: Option<Box<Meta<M>>>, reason: DeadReason) {
        if let Some(ask) = meta.and_then(|meta| meta.ask) {
            ask.settle(AskEnd::Dead { actor: self.id, reason });
        }
    }

    /// Dead-letters a message that a publish or a timer could not deliver.
    pub(crate) fn bury_refused(&self, envelope: Envelope<M>, reason: DeadReason) {
        self.dead_letter(envelope, reason, None);
    }

    pub(crate) fn bury_failed(&self, message: Option<M>, meta: Option<Box<Meta<M>>>, fault: Fault, error: &str) {
        let is_owed = self.with_aside(|aside| {
            aside.dead += 1;
            aside.owed.is_some()
        });
        let ask = meta.and_then(|meta| meta.ask);
        // The letter of a passed on error is at the actor that raised the error.
        if is_owed || ask.is_none() || !is_passed_on(&*fault) {
            self.record_taken(message, DeadReason::Failed, Some(error), detail_of(&fault, error));
        }
        if let Some(ask) = ask {
            ask.settle(AskEnd::Failed(fault));
        }
    }

    pub(crate) fn dead_letter(&self, envelope: Envelope<M>, reason: DeadReason, error: Option<&str>) {
        let (message, meta) = envelope.split();
        if message.is_some() {
            self.record(message, reason, error, None);
        }
        self.settle_dead(meta, reason);
    }

    /// Dead-letters a message that its handler found to be out of date.
    pub(crate) fn bury_expired(&self, message: Option<M>, error: &str) {
        self.with_aside(|aside| aside.dead += 1);
        self.record_taken(message, DeadReason::Expired, Some(error), None);
    }

    /// A failure of a hook or a notice, which belongs to no message.
    pub(crate) fn record_failure(&self, fault: &Fault) {
        let error = fault.to_string();
        self.record(None, DeadReason::Failed, Some(&error), detail_of(fault, &error));
    }

    pub(crate) fn record(&self, message: Option<M>, reason: DeadReason, error: Option<&str>, detail: Option<Arc<str>>) {
        let (message, error) = (message.map(stored), error.map(Arc::from));
        self.core.dead.add(DeadLetter { message, error, detail, ..self.letter(reason) });
    }

    fn letter(&self, reason: DeadReason) -> DeadLetter {
        DeadLetter {
            number: 0,
            actor: self.id,
            name: self.name.clone(),
            reason,
            error: None,
            detail: None,
            at: std::time::SystemTime::now(),
            message: None,
            cell: self.core.find(self.id).map(|cell| Arc::downgrade(&cell)),
        }
    }

    pub(crate) fn count_failure(&self) {
        self.with_aside(|aside| aside.failed += 1);
    }
}

fn stored<M: Send + 'static>(message: M) -> StoredMessage {
    Arc::new(Mutex::new(Some(Box::new(message) as Box<dyn Any + Send>)))
}

/// Detail of a fault: the text that its alternate form adds.
fn detail_of(fault: &Fault, text: &str) -> Option<Arc<str>> {
    let detail = format!("{fault:#}");
    (detail != text).then(|| Arc::from(detail))
}
