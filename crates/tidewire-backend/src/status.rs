//! Progress of a campaign: counters, workers, events.

use crate::{CampaignId, Stages, State};

/// The number of a worker process in a campaign, from 1. 0 stands for the store itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display)]
#[display("{_0}")]
pub struct WorkerId(pub u64);

/// A worker process that joins a campaign.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerInfo {
    /// The name of the worker, for people.
    pub name: String,
    /// Its machine.
    pub host: String,
    /// Its process.
    pub process: u32,
    /// Its code, as JSON, as in [`Plan::code`](crate::Plan::code).
    pub code: String,
}

/// One line of the list of campaigns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Its number.
    pub id: CampaignId,
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: State,
    /// How many runs are planned.
    pub runs: u64,
    /// How many runs have stored results.
    pub done: u64,
    /// How many runs have failed.
    pub failed: u64,
    /// How many runs have killed their workers.
    pub quarantined: u64,
    /// When it was created, in microseconds since 1970 by the store's clock.
    pub created_us: i64,
}

/// Counters, workers and pace of a campaign.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Number, name, state and counters.
    pub summary: Summary,
    /// Why it is in this state; empty if nothing was said.
    pub reason: String,
    /// How many runs are leased to workers.
    pub leased: u64,
    /// How many rows are stored.
    pub rows: u64,
    /// The sum of the digests of the stored runs.
    pub digest: u128,
    /// The running time, in microseconds: from its first lease to its last commit, or to now while
    /// ranges are leased. Times in which it was paused or had no worker do not count.
    pub active_us: u64,
    /// How long a run takes, in microseconds, as a moving average; 0 if nothing is known.
    pub run_us: f64,
    /// Runs that ended per second of `active_us` lately; 0 if nothing is known.
    pub rate: f64,
    /// Points of time (microseconds of `active_us`) and runs that had ended by then: at most 64.
    pub timeline: Vec<(u64, u64)>,
    /// Workers that died or let a lease expire.
    pub losses: u64,
    /// The last look at the precision, if the campaign ends by it.
    pub look: Option<PrecisionSample>,
    /// Its workers, newest first: those that are here, and at most 1,000 that have left.
    pub workers: Vec<WorkerStatus>,
    /// The store's clock: microseconds since 1970.
    pub now_us: i64,
}

/// How precisely the mean is known, at the last index at which it was looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct PrecisionSample {
    /// Runs before this one were looked at.
    pub runs: u64,
    /// The mean of the parameter set that is known least well.
    pub mean: f64,
    /// Half the width of its interval at the confidence that is left for this look.
    pub half_width: f64,
    /// Which parameter set that is.
    pub set: u64,
    /// True if all are known well enough.
    pub reached: bool,
}

/// A worker of a campaign.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerStatus {
    /// Its number.
    pub id: WorkerId,
    /// Description of the worker process.
    pub info: WorkerInfo,
    /// `working`, `left` or `lost`.
    pub state: String,
    /// When it joined, in microseconds since 1970 by the store's clock.
    pub joined_us: i64,
    /// When it last claimed or committed, by the same clock.
    pub seen_us: i64,
    /// How many runs it has stored, those that failed included.
    pub runs: u64,
    /// Where its time went.
    pub stages: Stages,
    /// The runs that it holds: first and count, over its leases.
    pub leased: Vec<(u64, u32)>,
}

/// An event of the whole campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in microseconds since 1970 by the store's clock.
    pub at_us: i64,
    /// The state before and after; the same for a note.
    pub from: State,
    /// See `from`.
    pub to: State,
    /// The reason, or the note.
    pub reason: String,
}
