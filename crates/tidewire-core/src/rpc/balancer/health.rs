//! Health of an instance: its failures, its ejection, and the slow start of a new one.

/// Weight of the last call in the share of failures.
const WEIGHT: f64 = 0.2;
/// Failures in a row that eject an instance.
const FAILURES: u32 = 5;
/// Length of the first ejection. Each one in a row is twice as long, to the maximum.
const EJECTION_US: u64 = 1_000_000;
const EJECTION_MAX_US: u64 = 60_000_000;
/// Pause before an unused instance is tried, doubled as long as it stays slow.
const RETRY_US: u64 = 500_000;
const DOUBLINGS_MAX: u32 = 4;
/// A new instance runs one call at a time at first, and one more with each of these answers.
const ANSWERS: u64 = 15;

/// The health of one instance, as its caller sees it.
#[derive(Clone, Debug, Default)]
pub(super) struct Health {
    /// Decayed share of failed calls.
    pub failures: f64,
    in_row: u32,
    ejections: u32,
    /// When the ejection ends; 0: it is not ejected.
    ejected_until_us: u64,
    /// When the instance may get a probe.
    pub probe_us: u64,
    /// Doublings of the pause, and answers of a new instance.
    doublings: u32,
    answers: u64,
}

impl Health {
    /// The rest of the ejection; 0: the instance is not ejected.
    pub fn ejected_us(&self, now_us: u64) -> u64 {
        self.ejected_until_us.saturating_sub(now_us)
    }

    /// True if the last call ended long ago, or half of the ejection is over.
    pub fn wants_probe(&self, now_us: u64) -> bool {
        now_us >= self.probe_us
    }

    /// True if a new instance has as many calls in progress as it may have.
    pub fn is_full(&self, outstanding: u64) -> bool {
        self.answers < ANSWERS && outstanding > self.answers
    }

    /// Factor for the risk that a call fails and is made again.
    pub fn risk(&self) -> f64 {
        (1.0 - self.failures.min(0.9)).powi(-2)
    }

    pub fn answered(&mut self, now_us: u64, is_slow: bool) {
        self.failures *= 1.0 - WEIGHT;
        (self.in_row, self.ejected_until_us) = (0, 0);
        self.ejections = if self.failures < 0.05 { 0 } else { self.ejections };
        self.answers += 1;
        if !is_slow {
            self.doublings = 0;
        } else if self.wants_probe(now_us) {
            self.doublings = (self.doublings + 1).min(DOUBLINGS_MAX);
        }
        self.probe_us = now_us + (RETRY_US << self.doublings);
    }

    /// Notes a failure; `others` is the share of failures at the other instances. True: the
    /// instance is to be ejected, unless too many are.
    pub fn failed(&mut self, now_us: u64, others: f64) -> bool {
        self.failures += WEIGHT * (1.0 - self.failures);
        self.in_row += 1;
        self.probe_us = now_us + (RETRY_US << self.doublings);
        let is_outlier = self.failures > 0.5 && others < self.failures / 2.0;
        is_outlier && (self.in_row >= FAILURES || self.ejections > 0)
    }

    pub fn eject(&mut self, now_us: u64) {
        let length_us = (EJECTION_US << self.ejections.min(6)).min(EJECTION_MAX_US);
        (self.ejected_until_us, self.probe_us) = (now_us + length_us, now_us + length_us / 2);
        (self.ejections, self.answers) = (self.ejections + 1, 0);
    }
}
