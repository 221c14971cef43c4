//! Settling a delivery: ack, nak, term, working, release.

use super::{Change, Consumer, Dead, Stage};

/// The result of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// The event was handled.
    Ack,
    /// The handler failed.
    Nak {
        /// Instead of the backoff.
        delay_us: Option<u64>,
        /// The error in a line, and its traceback.
        fault: Option<(String, String)>,
    },
    /// The event can't be handled.
    Term {
        /// Why.
        reason: String,
        /// The error in a line, and its traceback.
        fault: Option<(String, String)>,
    },
    /// The handler is still working.
    Working,
    /// The delivery was not begun: the event is ready again, and the delivery does not count.
    Release,
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
            Settlement::Term { reason, fault } => {
                let (error, traceback) = fault.unwrap_or_default();
                self.bury(sequence, &reason, error, traceback, now_us);
            }
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
    pub(super) fn fail(&mut self, sequence: u64, delay_us: Option<u64>, fault: Option<(String, String)>, now_us: u64) {
        let deliveries = self.pending[&sequence].deliveries;
        if self.options.max_deliver > 0 && deliveries >= self.options.max_deliver {
            let (error, traceback) = fault.unwrap_or_else(|| {
                (format!("no ack within {} s", self.options.ack_wait_us as f64 / 1_000_000.0), String::new())
            });
            self.bury(sequence, "max_deliver", error, traceback, now_us);
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
    pub(super) fn bury(&mut self, sequence: u64, reason: &str, error: String, traceback: String, now_us: u64) {
        let deliveries = self.pending[&sequence].deliveries;
        let reason = reason.to_owned();
        let dead = Dead { sequence, deliveries, dead_at_us: now_us, reason, error, traceback };
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
