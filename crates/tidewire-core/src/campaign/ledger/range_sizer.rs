//! Sizing of leased ranges: as many runs as fit the target time, fewer near the end of a campaign
//! and fewer while workers die often.

use serde::{Deserialize, Serialize};

/// How much the newest measurement counts in a moving average.
const NEWEST: f64 = 0.3;
/// A range grows at most by this factor over the widest that was completed.
const GROWTH: u32 = 8;
const RANGE_RUNS_MAX: u32 = 100_000;
/// A range is not cut to less time than this, in microseconds, however near the end is.
const TAIL_US: f64 = 5_000.0;
/// Nor to less than this because workers die.
const RISK_US: f64 = 20_000.0;

/// Measured run times and worker losses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RangeSizer {
    run_us: f64,
    /// The most runs that were completed at once; 0 before the first.
    widest: u32,
    overhead_us: f64,
    losses: u64,
    /// The time between two losses, as a moving average; 0 before the first.
    between_us: f64,
    /// When the last worker was lost, or the first lease given.
    last_loss_us: Option<u64>,
}

/// The current load: runs to lease, workers that share them, and the target time of a range.
pub(super) struct Load {
    /// Runs that may be leased now.
    pub waiting: u64,
    /// Workers that are here.
    pub workers: u64,
    /// The time that a range is meant to take.
    pub range_us: u64,
    pub now_us: u64,
}

impl RangeSizer {
    pub const fn run_us(&self) -> f64 {
        self.run_us
    }

    pub const fn losses(&self) -> u64 {
        self.losses
    }

    /// Takes in what a range took.
    pub fn learn(&mut self, count: u32, run_us: u64, overhead_us: u64) {
        let each = run_us as f64 / f64::from(count.max(1));
        self.run_us = average(self.run_us, each.max(0.001), self.widest == 0);
        if overhead_us > 0 {
            self.overhead_us = average(self.overhead_us, overhead_us as f64, self.overhead_us == 0.0);
        }
        self.widest = self.widest.max(count);
    }

    /// A worker was lost.
    pub fn loss(&mut self, now_us: u64) {
        let since = now_us.saturating_sub(self.last_loss_us.unwrap_or(now_us)) as f64;
        self.between_us = average(self.between_us, since.max(1_000.0), self.losses == 0);
        self.losses += 1;
        self.last_loss_us = Some(now_us);
    }

    /// The first lease: the time to the first loss counts from here.
    pub fn begin(&mut self, now_us: u64) {
        self.last_loss_us.get_or_insert(now_us);
    }

    /// Times of another clock mean nothing any more.
    pub fn forget_time(&mut self, now_us: u64) {
        if self.last_loss_us.is_some() {
            self.last_loss_us = Some(now_us);
        }
    }

    /// How many runs to lease.
    pub fn size(&self, load: &Load) -> u32 {
        if self.widest == 0 {
            return 1;
        }
        let in_time = |us: f64| (us / self.run_us).min(f64::from(RANGE_RUNS_MAX)) as u64;
        let share = load.waiting.div_ceil(2 * load.workers.max(1)).max(in_time(TAIL_US));
        let grown = u64::from(self.widest.saturating_mul(GROWTH));
        let size = in_time(self.aim_us(load)).min(grown).min(share).min(load.waiting);
        u32::try_from(size.max(1)).unwrap_or(RANGE_RUNS_MAX)
    }

    /// The time that a range should take: the target time, or less while workers die often. Work
    /// that is lost with a worker grows with the range, the cost of commits shrinks with it; their
    /// sum is least at sqrt(2 x cost x time between deaths) (Young 1974).
    fn aim_us(&self, load: &Load) -> f64 {
        let aim = load.range_us as f64;
        if self.losses == 0 {
            return aim;
        }
        let quiet = load.now_us.saturating_sub(self.last_loss_us.unwrap_or(load.now_us)) as f64;
        let between = self.between_us.max(quiet) * load.workers.max(1) as f64;
        let best = (2.0 * self.overhead_us.max(1_000.0) * between).sqrt();
        best.clamp(RISK_US.min(aim), aim)
    }
}

fn average(old: f64, new: f64, first: bool) -> f64 {
    if first { new } else { old + (new - old) * NEWEST }
}
