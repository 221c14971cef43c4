//! The port of campaign stores: plans, leases of ranges, results and status queries.

use crate::{
    Campaign, CampaignId, Claim, ClaimState, Event, Lease, Plan, RangeResults, Result, Rows, State, Status,
    StoredFailure, Summary, WorkerId, WorkerInfo,
};

/// The action on a missing store when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Make its file, if it is one, and its tables.
    Create,
    /// Fail with [`Unreachable`](crate::ErrorKind::Unreachable).
    Fail,
}

/// A connection to a store of campaigns. Each call is one transaction: it happens whole or not at
/// all, even if a process dies.
///
/// A connection belongs to one thread at a time. Processes share a store by opening it each for
/// itself; a connection must not be used in a forked child.
///
/// # Errors
///
/// Every call fails with [`Unreachable`](crate::ErrorKind::Unreachable) when the store is away, and
/// with [`Locked`](crate::ErrorKind::Locked) when another process has held it for too long. Both
/// are worth a retry. For an unknown id, a call fails with
/// [`NoSuchCampaign`](crate::ErrorKind::NoSuchCampaign). A call that writes fails with
/// [`ReadOnly`](crate::ErrorKind::ReadOnly), [`Full`](crate::ErrorKind::Full) or
/// [`Denied`](crate::ErrorKind::Denied). Further errors are listed at each call.
pub trait Campaigns: Send {
    /// Stores a plan and its parameter sets, as a draft. Run i has parameter set `i % sets`;
    /// without a sweep there is one set. Each is a JSON object.
    ///
    /// # Errors
    ///
    /// [`NameTaken`](crate::ErrorKind::NameTaken), and [`Invalid`](crate::ErrorKind::Invalid) for
    /// what can't be stored, such as a column named `run`.
    fn create(&mut self, plan: &Plan, parameters: &[String]) -> Result<CampaignId>;

    /// Every campaign of the store, or those in one state, newest first.
    fn list(&mut self, state: Option<State>) -> Result<Vec<Summary>>;

    /// The campaign of this name, or, if there is none, of this number.
    fn find(&mut self, name_or_id: &str) -> Result<CampaignId>;

    /// The plan as it was stored, with the columns if they are known by now.
    fn campaign(&mut self, campaign: CampaignId) -> Result<Campaign>;

    /// Parameter sets from `first` on, at most `most` and at least one. Each is a JSON object.
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ErrorKind::Invalid) if there is no `first`.
    fn parameters(&mut self, campaign: CampaignId, first: u64, most: u32) -> Result<Vec<String>>;

    /// Counters, workers, leases and pace, read from the ledger at a cost that does not depend on
    /// the number of runs.
    fn status(&mut self, campaign: CampaignId) -> Result<Status>;

    /// Events of the whole campaign, oldest first: its states with time and reason, and notes.
    fn events(&mut self, campaign: CampaignId) -> Result<Vec<Event>>;

    /// Moves a campaign to another state. Cancelling or failing it revokes all leases; results of
    /// leases in a paused campaign are still stored.
    ///
    /// # Errors
    ///
    /// [`Transition`](crate::ErrorKind::Transition) if `to` may not follow the present state. A
    /// transition to the present state is no error.
    fn transition(&mut self, campaign: CampaignId, to: State, reason: &str) -> Result<()>;

    /// Adds `more` runs behind the last one. One that was done runs again; its stored runs stay as
    /// they are.
    ///
    /// # Errors
    ///
    /// [`Transition`](crate::ErrorKind::Transition) if it was cancelled or has failed,
    /// [`Invalid`](crate::ErrorKind::Invalid) if that would be too many runs.
    fn extend(&mut self, campaign: CampaignId, more: u64) -> Result<()>;

    /// Writes a note into the events, such as that a worker runs other code than the plan's.
    fn note(&mut self, campaign: CampaignId, note: &str) -> Result<()>;

    /// Registers a worker process.
    fn join(&mut self, campaign: CampaignId, worker: &WorkerInfo) -> Result<WorkerId>;

    /// The end of a worker that leaves by itself: its leases are given back. Its row stays.
    fn leave(&mut self, campaign: CampaignId, worker: WorkerId) -> Result<()>;

    /// Leases a range to a worker. `leases` are those that the worker has: any other that
    /// the store knows of is given back, as the worker never learned of it.
    ///
    /// A campaign that is a draft leases nothing: `transition` it to `Running` first.
    fn claim(&mut self, campaign: CampaignId, worker: WorkerId, leases: &[Lease]) -> Result<Claim>;

    /// Makes a lease valid for its whole time again.
    ///
    /// # Errors
    ///
    /// [`Stale`](crate::ErrorKind::Stale) if the lease was taken away: it expired, or the campaign
    /// ended.
    fn renew(&mut self, campaign: CampaignId, lease: &Lease) -> Result<ClaimState>;

    /// Stores the results of `results.count` runs from the front of a lease, and completes that
    /// part of it, in one transaction. When the call returns, they are on disk. `lease` is advanced
    /// by so many runs.
    ///
    /// # Errors
    ///
    /// [`Stale`](crate::ErrorKind::Stale) if the lease was taken away: nothing was stored, and the
    /// results must be dropped. [`Invalid`](crate::ErrorKind::Invalid) if the results don't fit the
    /// lease or the columns.
    fn commit(&mut self, campaign: CampaignId, lease: &mut Lease, results: &RangeResults) -> Result<ClaimState>;

    /// Gives the rest of a lease back, for the next worker that asks. A revoked lease is no error.
    fn give_back(&mut self, campaign: CampaignId, lease: &Lease) -> Result<()>;

    /// Reports that a worker process has died, and its current run, if its progress mark is known.
    /// Its leases go to others at once. A run that has killed its worker twice is quarantined.
    ///
    /// With `overtime`, the worker was killed because that run was over its time limit. The run is
    /// stored as failed with that failure once it has had its `attempts`. Runs before it are run
    /// again.
    fn worker_lost(
        &mut self,
        campaign: CampaignId,
        worker: WorkerId,
        at_run: Option<u64>,
        overtime: bool,
    ) -> Result<()>;

    /// Waits until something may have changed in a campaign that another connection did, or the
    /// time is over. True if something may have changed. PostgreSQL notifies; SQLite looks at its
    /// data version, every few milliseconds at first and less often as it waits.
    ///
    /// Changes from the end of the last `wait` on are seen; the first call of a connection returns
    /// at once.
    fn wait(&mut self, timeout_us: u64) -> Result<bool>;

    /// Stored results of whole runs in order of run, from `from_run` on: at most `rows_max` rows,
    /// but at least one run. Nothing is returned when there are no more. The next part begins after
    /// the last run returned.
    fn read_rows(&mut self, campaign: CampaignId, from_run: u64, rows_max: u32) -> Result<Rows>;

    /// Failed and quarantined runs in order of run, from `from_run` on.
    fn errors(&mut self, campaign: CampaignId, from_run: u64, max: u32) -> Result<Vec<StoredFailure>>;
}
