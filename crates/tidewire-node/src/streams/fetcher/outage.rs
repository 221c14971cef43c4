//! Outages of a storage backend: a reader waits them out and notifies, or reports their errors.

use std::sync::{Arc, Weak};
use std::task::Context;

use tidewire_backend::home::HomeError;

use super::Reads;
use crate::delay::{Delay, RetryPause};
use crate::pending::WakerEntry;

/// Notified of an outage: with its error when the wait begins, and with None when it is over.
pub type OnOutage = Arc<dyn Fn(Option<&HomeError>) + Send + Sync>;

/// The outages that one reader meets.
pub(crate) struct Outage {
    pub reads: Reads,
    /// True for an error that is waited out.
    waits: fn(&HomeError) -> bool,
    retries: RetryPause,
    pause: Option<Delay>,
    /// True if there was no link to the hub at the last look.
    was_lost: bool,
    rejoin: WakerEntry,
}

impl Outage {
    pub fn new(reads: Reads, waits: fn(&HomeError) -> bool) -> Self {
        Self {
            reads,
            waits,
            retries: RetryPause::default(),
            pause: None,
            was_lost: false,
            rejoin: WakerEntry::default(),
        }
    }

    /// True from the first failed attempt until one succeeds.
    pub fn has_begun(&self) -> bool {
        !self.retries.is_first()
    }

    /// True once the next attempt is due. A restored link to the hub ends the pause.
    pub fn is_due(&mut self, context: &Context<'_>) -> bool {
        if let Some(core) = self.reads.node.as_ref().and_then(Weak::upgrade) {
            core.rejoined.keep(&mut self.rejoin, context.waker());
            let is_joined = core.link.joined().is_some();
            if std::mem::replace(&mut self.was_lost, !is_joined) && is_joined {
                self.pause = None;
            }
        }
        self.pause.take_if(|pause| pause.is_over(context));
        self.pause.is_none()
    }

    /// An attempt has failed. False: its error is reported.
    pub fn outlasts(&mut self, error: &HomeError) -> bool {
        let Some(notify) = self.reads.on_outage.as_ref().filter(|_| (self.waits)(error)) else { return false };
        if self.retries.is_first() {
            notify(Some(error));
        }
        self.pause = Some(self.retries.begin(&self.reads.runner));
        true
    }

    /// An attempt has succeeded.
    pub fn end(&mut self) {
        let is_over = !std::mem::take(&mut self.retries).is_first();
        self.reads.on_outage.iter().filter(|_| is_over).for_each(|notify| notify(None));
    }
}
