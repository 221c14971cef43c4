//! Dead letters and failures of one actor: messages that are not handled, and the reason.

use super::Cell;
use crate::dead::DeadLetter;
use crate::envelope::{Envelope, Meta};
use crate::error::{DeadReason, Fault};
use crate::reply::AskEnd;
use std::any::Any;
use std::sync::Arc;
use tidewire_sync::Mutex;

impl<M: Send + 'static> Cell<M> {
    /// Dead-letters a message that was taken and will not be handled.
    pub(crate) fn bury_taken(&self, envelope: Envelope<M>, reason: DeadReason, error: Option<&str>) {
        self.with_aside(|aside| aside.dead += 1);
        self.bury(envelope, reason, error);
    }

    /// Dead-letters a message that a publish or a timer could not deliver.
    pub(crate) fn bury_refused(&self, envelope: Envelope<M>, reason: DeadReason) {
        self.bury(envelope, reason, None);
    }

    pub(crate) fn bury_failed(&self, message: Option<M>, meta: Option<Box<Meta<M>>>, fault: Fault, error: &str) {
        self.with_aside(|aside| aside.dead += 1);
        self.record(message, DeadReason::Failed, Some(error), detail_of(&fault, error));
        if let Some(asked) = meta.and_then(|meta| meta.asked) {
            asked.settle(AskEnd::Failed(fault));
        }
    }

    pub(crate) fn bury(&self, envelope: Envelope<M>, reason: DeadReason, error: Option<&str>) {
        let (message, meta) = envelope.split();
        if message.is_some() {
            self.record_dead(message, reason, error);
        }
        if let Some(asked) = meta.and_then(|meta| meta.asked) {
            asked.settle(AskEnd::Dead { actor: self.id, reason });
        }
    }

    pub(crate) fn record_dead(&self, message: Option<M>, reason: DeadReason, error: Option<&str>) {
        self.record(message, reason, error, None);
    }

    /// A failure of a hook or a notice, which belongs to no message.
    pub(crate) fn record_failure(&self, fault: &Fault) {
        let error = fault.to_string();
        self.record(None, DeadReason::Failed, Some(&error), detail_of(fault, &error));
    }

    fn record(&self, message: Option<M>, reason: DeadReason, error: Option<&str>, detail: Option<Arc<str>>) {
        let message = message.map(|message| Arc::new(Mutex::new(Some(Box::new(message) as Box<dyn Any + Send>))));
        self.core.dead.add(DeadLetter {
            number: 0,
            actor: self.id,
            name: self.name.clone(),
            reason,
            error: error.map(Arc::from),
            detail,
            at: std::time::SystemTime::now(),
            message,
            cell: self.core.find(self.id).map(|cell| Arc::downgrade(&cell)),
        });
    }

    pub(crate) fn count_failure(&self) {
        self.with_aside(|aside| aside.failed += 1);
    }
}

/// What the alternate form of a fault says beyond its text.
fn detail_of(fault: &Fault, text: &str) -> Option<Arc<str>> {
    let detail = format!("{fault:#}");
    (detail != text).then(|| Arc::from(detail))
}
