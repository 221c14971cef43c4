//! Inputs and outputs of a ledger: terms, time, completions, refusals and changes.

use serde::{Deserialize, Serialize};

use crate::campaign::digest;
use crate::campaign::precision::PrecisionTarget;
use crate::campaign::state::State;

/// The part of a campaign's plan that its ledger needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// How many runs.
    pub runs: u64,
    /// How many parameter sets: run i has set i modulo this.
    pub sets: u64,
    /// How often a run that is over its time limit is tried.
    pub attempts: u32,
    /// The campaign fails when more runs than this have failed or are quarantined.
    pub failed_max: Option<u64>,
    /// How long a lease is valid that is not renewed, in microseconds.
    pub lease_us: u64,
    /// The time that a range should take, in microseconds.
    pub range_us: u64,
    /// True if the columns of the results are known before the first run.
    pub columns: bool,
    /// How well means must be known for it to end early.
    pub until: Option<PrecisionTarget>,
}

impl Terms {
    /// The most runs of a campaign.
    pub const RUNS_MAX: u64 = 1 << 48;
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            runs: 0,
            sets: 1,
            attempts: 3,
            failed_max: None,
            lease_us: 5_000_000,
            range_us: 200_000,
            columns: true,
            until: None,
        }
    }
}

/// The time of a store, in microseconds. Times of two epochs can't be compared: the machine was
/// started in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// Which start of the machine the time counts from.
    pub epoch: u64,
    /// The time.
    pub us: u64,
}

impl Clock {
    /// A clock that goes back by no more than this was read late, and was not set back.
    pub const BACK_US: u64 = 1_000_000;
}

/// Progress of a worker in one lease: the number of runs done from its front.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// How many runs.
    pub count: u32,
    /// How many of them have failed.
    pub failed: u32,
    /// How many rows the others gave.
    pub rows: u64,
    /// The sum of the digests of those rows.
    pub digest: u128,
    /// True if the results say which columns there are.
    pub columns: bool,
    /// How long the runs took together, in microseconds.
    pub run_us: u64,
    /// How long claim and commit of the range before took together, in microseconds; 0 if there was
    /// none.
    pub overhead_us: u64,
}

/// Counts of the results that a campaign has stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// Runs with results.
    pub done: u64,
    /// Runs that failed all their attempts.
    pub failed: u64,
    /// Runs that killed their workers.
    pub quarantined: u64,
    /// Rows.
    pub rows: u64,
    /// The sum of the digests of the rows.
    #[serde(with = "hexadecimal")]
    pub digest: u128,
}

impl Stored {
    /// Runs that have ended: done, failed or quarantined.
    pub const fn ended(&self) -> u64 {
        self.done + self.failed + self.quarantined
    }
}

/// A change of state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateChange {
    /// The state before.
    pub from: State,
    /// The state after.
    pub to: State,
    /// Why.
    pub reason: String,
}

/// A run that ended without a worker that could tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunLost {
    /// The run.
    pub run: u64,
    /// The worker that had it last.
    pub worker: u64,
    /// How often it was tried.
    pub attempts: u32,
    /// True if it was over its time limit, false if it killed its workers.
    pub overtime: bool,
}

/// Why a ledger refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, derive_more::Display)]
pub enum Refusal {
    /// The lease was taken away.
    #[display("the lease was taken away")]
    Stale,
    /// The transition between the two states is not allowed.
    #[display("a campaign that is {from} can't become {to}")]
    Transition {
        /// The state that it has.
        from: State,
        /// The state that it should get.
        to: State,
    },
    /// The completion is of more runs than the lease has, or of none, or of other runs.
    #[display("the completion is of other runs than the lease")]
    Count,
    /// There are results, and nothing says which columns they have.
    #[display("the columns of the results are not known")]
    NoColumns,
    /// More than [`Terms::RUNS_MAX`] runs.
    #[display("a campaign has at most {} runs", Terms::RUNS_MAX)]
    TooManyRuns,
}

mod hexadecimal {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::digest;

    pub fn serialize<S: Serializer>(value: &u128, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&digest::written(*value))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<u128, D::Error> {
        let written = String::deserialize(input)?;
        digest::read(&written).ok_or_else(|| D::Error::custom("a digest of 32 hexadecimal digits"))
    }
}
