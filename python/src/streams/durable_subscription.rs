//! `Subscription` of a stream for Python: the state machine of a handler's deliveries, on a
//! monotonic clock.

use std::time::{Duration, Instant};

use pyo3::prelude::*;
use tidewire_core::stream::subscription::{Delivery, Options, Outcome, Subscription, Verdict};
use tidewire_proto::subject::Pattern;

use crate::errors::error;

/// The deliveries of one handler. Used by one event loop.
#[pyclass(module = "tidewire._tidewire")]
pub struct DurableSubscriptionCore {
    machine: Subscription,
    since: Instant,
}

impl DurableSubscriptionCore {
    fn now_us(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

#[pymethods]
impl DurableSubscriptionCore {
    #[new]
    fn new(concurrency: u32, batch_max: u32, ack_wait_us: u64, hold_us: u64) -> Self {
        let machine = Subscription::new(Options { concurrency, batch_max, ack_wait_us, hold_us });
        Self { machine, since: Instant::now() }
    }

    /// Number of deliveries to fetch now.
    fn credit(&mut self) -> u32 {
        self.machine.credit(self.now_us())
    }

    /// A fetch has ended. Returns the deliveries to give back at once.
    #[expect(clippy::needless_pass_by_value, reason = "Python gives a list")]
    fn fetched(&mut self, deliveries: Vec<Delivery>) -> Vec<Delivery> {
        self.machine.fetched(&deliveries, self.now_us())
    }

    /// The delivery that is handled next.
    fn begin(&mut self) -> Option<Delivery> {
        self.machine.begin(self.now_us())
    }

    /// A handler has ended: "returned", "raised", "interrupted" or "settled". Gives "ack", "nak",
    /// "back" or "".
    fn ended(&mut self, delivery: Delivery, outcome: &str) -> &'static str {
        let outcome = match outcome {
            "returned" => Outcome::Returned,
            "raised" => Outcome::Raised,
            "interrupted" => Outcome::Interrupted,
            _ => Outcome::Settled,
        };
        match self.machine.ended(delivery, outcome) {
            Verdict::Ack => "ack",
            Verdict::Fail => "nak",
            Verdict::GiveBack => "back",
            Verdict::Nothing => "",
        }
    }

    /// The deliveries whose ack wait is to begin anew.
    fn extend(&mut self) -> Vec<Delivery> {
        self.machine.extend(self.now_us())
    }

    /// In how many seconds to call `extend`; None if there is nothing to extend.
    fn extend_in(&self) -> Option<f64> {
        let due_us = self.machine.next_deadline_us()?;
        Some(Duration::from_micros(due_us.saturating_sub(self.now_us())).as_secs_f64())
    }

    /// Fetches nothing more.
    fn drain(&mut self) {
        self.machine.drain();
    }

    /// Begins nothing more, either. Gives what is to be given back.
    fn cut(&mut self) -> Vec<Delivery> {
        self.machine.cut()
    }

    /// True for a draining subscription with nothing left.
    fn is_over(&self) -> bool {
        self.machine.is_over()
    }

    /// Numbers of queued and of begun deliveries.
    fn counts(&self) -> (usize, u32) {
        self.machine.counts()
    }
}

/// True if at least one subject matches both patterns.
#[pyfunction]
pub fn patterns_overlap(py: Python<'_>, left: &str, right: &str) -> PyResult<bool> {
    let pattern = |text: &str| Pattern::new(text).map_err(|wrong| error(py, "InvalidSubject", &wrong.to_string(), &[]));
    Ok(pattern(left)?.overlaps(&pattern(right)?))
}
