//! Settling a delivery: ack, nak, term, working, release.

use super::{Change, Consumer, Dead, Stage};

/// The possible results of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// The event was handled, and is never delivered again.
    Ack,
    /// The handler failed: deliver the event again after a delay (`None`: as `backoff_us` says).
    /// After the last delivery the event becomes a dead letter.
    Nak {
        /// Instead of what `backoff_us` says.
        delay_us: Option<u64>,
        /// The error of the handler.
        fault: Option<Fault>,
    },
    /// The event can't be handled: it becomes a dead letter at once.
    Term {
        /// Why, in words.
        reason: String,
        /// The error of the handler.
        fault: Option<Fault>,
    },
    /// The handler is still working: the ack wait begins anew.
    Working,
    /// Nobody has begun with the event: deliver it again at once. The delivery does not count. A
    /// storage backend without the capability `Release` counts it as one that failed.
    Release,
}

/// An error that a handler raised.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// In one line.
    pub error: String,
    /// The traceback; may be empty.
    pub traceback: String,
}

impl Fault {
    /// An error without a traceback.
    pub fn new(error: impl Into<String>) -> Self {
        Self { error: error.into(), traceback: String::new() }
    }
}

/// The delivery was settled before, or its event was given to another since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale;

impl Consumer {
    /// Settles a delivery.
    ///
    /// # Errors
    ///
    /// [`Stale`] if it is not out. A late ack or term counts as long as the event was not
    /// redelivered.
    pub fn settle(&mut self, sequence: u64, ticket: u64, how: Settlement, now_us: u64) -> Result<(), Stale> {
        let pending = self.pending.get(&sequence).filter(|pending| pending.ticket == ticket && ticket > 0);
        let stage = pending.ok_or(Stale)?.stage;
        let out = matches!(stage, Stage::Out { .. });
        match how {
            Settlement::Ack => self.finish(sequence, now_us),
            Settlement::Term { reason, fault } => self.bury(sequence, &reason, fault.unwrap_or_default(), now_us),
            Settlement::Nak { delay_us, fault } if out => self.fail(sequence, delay_us, fault, now_us),
            Settlement::Working if out => {
                let until_us = now_us.saturating_add(self.options.ack_wait_us);
                self.enter(sequence, Stage::Out { until_us }, now_us);
            }
            Settlement::Release if out => self.release(sequence, now_us),
            Settlement::Nak { .. } | Settlement::Working | Settlement::Release => return Err(Stale),
        }
        Ok(())
    }

    /// A delivery that nobody has begun with does not count.
    fn release(&mut self, sequence: u64, now_us: u64) {
        let pending = self.pending.get_mut(&sequence).expect("the event is pending");
        pending.ticket = 0;
        pending.deliveries -= 1;
        let deliveries = pending.deliveries;
        self.tell(Change::tried(sequence, deliveries, 0));
        self.enter(sequence, Stage::Ready, now_us);
    }

    /// A delivery has failed: the next one comes after a delay, or it was the last.
    pub(super) fn fail(&mut self, sequence: u64, delay_us: Option<u64>, fault: Option<Fault>, now_us: u64) {
        let deliveries = self.pending[&sequence].deliveries;
        if self.options.max_deliver > 0 && deliveries >= self.options.max_deliver {
            let no_ack = || Fault::new(format!("no ack within {} s", self.options.ack_wait_us as f64 / 1_000_000.0));
            self.bury(sequence, "max_deliver", fault.unwrap_or_else(no_ack), now_us);
            return;
        }
        let due_us = now_us.saturating_add(delay_us.unwrap_or_else(|| self.backoff_us(deliveries)));
        self.tell(Change::tried(sequence, deliveries, due_us));
        let stage = if due_us > now_us { Stage::Waiting { due_us } } else { Stage::Ready };
        self.enter(sequence, stage, now_us);
    }

    fn backoff_us(&self, deliveries: u32) -> u64 {
        let delays = &self.options.backoff_us;
        let index = (deliveries.max(1) as usize - 1).min(delays.len().saturating_sub(1));
        delays.get(index).copied().unwrap_or(0)
    }

    /// Turns an event into a dead letter.
    pub(super) fn bury(&mut self, sequence: u64, reason: &str, fault: Fault, now_us: u64) {
        let deliveries = self.pending[&sequence].deliveries;
        let reason = reason.to_owned();
        let dead = Dead { sequence, deliveries, dead_at_us: now_us, reason, fault };
        self.lay_down(dead.clone());
        self.tell(Change::Dead(Box::new(dead)));
        self.finish(sequence, now_us);
    }

    pub(super) fn lay_down(&mut self, dead: Dead) {
        self.dead.insert(dead.sequence, dead);
        while self.dead.len() > self.options.dead_max {
            self.dead.pop_first();
        }
    }
}
