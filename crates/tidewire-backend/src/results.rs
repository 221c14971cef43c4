//! The results of a range, as a worker commits them.

use crate::{Rows, Schema, WorkerId};

/// The results of consecutive runs from the front of a lease.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RangeResults {
    /// The first run: that of the lease.
    pub first: u64,
    /// How many runs: from 1 to the count of the lease. Each is in `rows` or in `failures`, none in
    /// both.
    pub count: u32,
    /// The columns, if the campaign did not know them when the lease was made: a pilot whose run
    /// succeeded says them.
    pub schema: Option<Schema>,
    /// The results of runs that succeeded, in order of run.
    pub rows: Rows,
    /// The runs that failed all their attempts, in order of run.
    pub failures: Vec<Failure>,
    /// The sum of the digests of the runs in `rows`.
    pub digest: u128,
    /// How long the runs took together, in microseconds; all attempts.
    pub run_us: u64,
    /// How long the last claim and commit of this worker took together, in microseconds; 0 if there
    /// was none.
    pub overhead_us: u64,
    /// Where the worker's time went since it has joined.
    pub stages: Stages,
}

/// A run that failed all its attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// The run.
    pub run: u64,
    /// Why: `error`, `timeout` or `quarantined`.
    pub kind: String,
    /// The class of the error, or empty.
    pub error: String,
    /// Its message, cut after 2,000 characters.
    pub message: String,
    /// The end of its traceback, at most 8,000 characters.
    pub traceback: String,
    /// How often it was tried.
    pub attempts: u32,
}

/// A failed or quarantined run, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFailure {
    /// The failure, as the worker or the store reported it.
    pub failure: Failure,
    /// The worker that ran it.
    pub worker: WorkerId,
    /// When it was stored, in microseconds since 1970 by the store's clock.
    pub at_us: i64,
}

/// Where the time of a worker went since it has joined, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    /// Claims, and opening the store.
    pub lease_us: u64,
    /// The start of the process, imports, and the first run.
    pub warm_up_us: u64,
    /// The user's function.
    pub run_us: u64,
    /// Results to columns, and their digest.
    pub encode_us: u64,
    /// Commits.
    pub persist_us: u64,
    /// Waiting for other workers to finish their leases, or for a paused campaign.
    pub wait_us: u64,
    /// Waiting for a campaign to serve.
    pub idle_us: u64,
}
