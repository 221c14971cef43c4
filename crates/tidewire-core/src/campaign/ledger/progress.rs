//! Progress of a campaign: the time in which it was running, and the number of ended runs at points
//! of this time.

use serde::{Deserialize, Serialize};

/// The most points that are stored.
const POINTS: usize = 64;
/// The first distance between two points, in microseconds. It doubles when there are too many.
const STEP_US: u64 = 50_000;
/// A pause between a commit and the next claim that still counts as work, in microseconds.
const PAUSE_US: u64 = 1_000_000;
/// The rate is that of this last time, in microseconds, or a little more.
const RATE_US: u64 = 2_000_000;

/// Time at work, and runs over it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Progress {
    active_us: u64,
    begun: bool,
    step_us: u64,
    points: Vec<(u64, u64)>,
}

impl Default for Progress {
    fn default() -> Self {
        Self { active_us: 0, begun: false, step_us: STEP_US, points: Vec::new() }
    }
}

impl Progress {
    pub const fn active_us(&self) -> u64 {
        self.active_us
    }

    pub fn points(&self) -> &[(u64, u64)] {
        &self.points
    }

    /// The first lease.
    pub fn begin(&mut self) {
        self.begun = true;
    }

    /// Time has passed, in which ranges were out or not.
    pub fn pass(&mut self, us: u64, leased: bool) {
        if self.begun && (leased || us < PAUSE_US) {
            self.active_us += us;
        }
    }

    /// Records the number of runs that have ended by now.
    pub fn mark(&mut self, ended: u64) {
        if self.points.last().is_some_and(|(at, _)| self.active_us < at + self.step_us) {
            return;
        }
        self.points.push((self.active_us, ended));
        if self.points.len() > POINTS {
            let mut index = 0;
            self.points.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.step_us *= 2;
        }
    }

    /// Runs per second lately.
    pub fn rate(&self, ended: u64) -> f64 {
        let since = self.points.iter().rev().find(|(at, _)| at + RATE_US <= self.active_us);
        let (at, before) = since.copied().unwrap_or((0, 0));
        let us = self.active_us - at;
        if us == 0 { 0.0 } else { ended.saturating_sub(before) as f64 * 1e6 / us as f64 }
    }
}
