//! Conformance suites: the required behaviour of every backend of a port, as tests that each
//! backend runs.
//!
//! A store of campaigns calls [`conformance!`] in its integration tests, with a function that makes
//! an empty store, and one that opens a store:
//!
//! ```ignore
//! tidewire_testkit::conformance!(crate::place, crate::connect);
//! ```

#![forbid(unsafe_code)]
// A suite fails by panics, as all tests do.
#![allow(clippy::missing_panics_doc, missing_docs)]

use std::any::Any;

use tidewire_backend::{
    CampaignId, Campaigns, Claim, Column, ColumnType, ErrorKind, Failure, Lease, Plan, RangeResults, Result, Rows,
    Schema, Seed, Settings, State, WorkerId, WorkerInfo,
};
use tidewire_core::campaign::digest::digest;
use tidewire_core::campaign::rows::Value;

pub mod homes;
pub mod kills;
pub mod leases;
pub mod looks;
pub mod plans;
pub mod races;
pub mod results;
pub mod routing;
pub mod seeds;
pub mod wakeups;

/// A connection to the store under test.
pub type Connection = Box<dyn Campaigns>;

/// An empty store, for one test.
pub struct EmptyStore {
    /// Where it is, for a process that connects to it.
    pub address: String,
    /// Makes a connection to an address.
    pub open: fn(&str) -> Result<Connection>,
    /// Makes another empty store.
    pub fresh: fn() -> Option<EmptyStore>,
    /// Removes the store when it is dropped.
    pub keep: Box<dyn Any + Send + Sync>,
}

impl EmptyStore {
    /// Another empty store.
    pub fn another(&self) -> Self {
        (self.fresh)().expect("there was one before")
    }

    /// A new connection.
    pub fn connect(&self) -> Connection {
        (self.open)(&self.address).unwrap_or_else(|error| panic!("{}: {error}", self.address))
    }
}

/// Tests of a store of campaigns: each case is a `#[test]` of its own. Takes the paths of two
/// functions: one makes a [`EmptyStore`], or None where that is not possible, and says why; the
/// other connects to an address.
#[macro_export]
macro_rules! conformance {
    ($place:path, $open:path) => {
        $crate::cases! { $place, $open;
            plans: [
                a_plan_is_kept_as_it_was_given,
                plans_that_no_store_keeps_are_refused,
                a_name_is_taken_once,
                campaigns_are_found_by_name_and_then_by_number,
                ten_thousand_parameter_sets,
            ],
            leases: [
                a_campaign_from_draft_to_done,
                states_follow_each_other_as_they_may,
                a_lease_that_expired_goes_to_another_and_its_results_are_refused,
                a_claim_gives_back_what_its_worker_never_learned_of,
                paused_takes_what_is_out_and_cancelled_does_not,
                a_campaign_that_is_done_goes_on,
                a_run_that_kills_twice_is_quarantined,
                a_run_over_its_time_fails_after_its_attempts,
                too_many_failures_end_a_campaign,
                no_runs_are_done_at_once,
            ],
            results: [
                every_value_comes_back,
                the_pilot_brings_the_columns,
                results_that_do_not_fit_are_refused_whole,
                rows_are_read_by_whole_runs,
                failures_are_kept_within_bounds,
                parameter_sets_are_columns,
                reads_beside_writers_are_whole,
            ],
            looks: [
                a_mean_that_is_known_well_enough_ends_at_the_same_run,
                a_figure_that_is_not_finite_is_never_known,
                one_that_goes_on_looks_again,
                a_pilot_without_the_column_is_refused,
            ],
            wakeups: [
                changes_of_others_end_a_wait,
                a_wait_is_woken_by_each_change,
                notes_are_events,
            ],
            races: [
                random_programs_store_every_run_once,
            ],
            kills: [
                processes_that_are_killed_in_commits_lose_and_double_nothing,
                a_process_that_stands_still_beyond_its_lease_stores_nothing_late,
                a_thousand_million_runs_are_planned_at_once,
            ],
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! cases {
    ($place:path, $open:path; $($module:ident: [$($case:ident),* $(,)?]),* $(,)?) => {
        $(mod $module {
            $(#[test]
            fn $case() {
                if let Some(place) = $place() {
                    $crate::$module::$case(&place);
                }
            })*

            $crate::victim!($module, $open);
        })*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! victim {
    (kills, $open:path) => {
        #[test]
        #[ignore = "is started by the test that kills it"]
        fn victim() {
            $crate::kills::victim($open);
        }
    };
    ($other:ident, $open:path) => {};
}

/// Random numbers (splitmix64).
pub struct Random(pub u64);

impl Random {
    /// A number below a bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % bound
    }
}

/// A plan of some runs that give an integer and a float.
pub fn plan(name: &str, runs: u64) -> Plan {
    let columns = vec![Column::new("hits", ColumnType::Integer), Column::new("area", ColumnType::Float)];
    Plan {
        name: name.to_owned(),
        runs,
        seed: Seed::from(7),
        function: "farm:simulate".to_owned(),
        pickled: None,
        code: "{}".to_owned(),
        schema: Some(Schema { columns, many: false }),
        settings: Settings::default(),
    }
}

/// The one parameter set of a campaign without a sweep.
pub fn no_parameters() -> Vec<String> {
    vec!["{}".to_owned()]
}

/// Creates a campaign and starts it.
pub fn start(store: &mut Connection, plan: &Plan) -> CampaignId {
    let id = store.create(plan, &no_parameters()).unwrap();
    store.transition(id, State::Running, "started").unwrap();
    id
}

/// Joins a worker.
pub fn join(store: &mut Connection, id: CampaignId) -> WorkerId {
    let info = WorkerInfo { name: "w".to_owned(), host: "here".to_owned(), process: 1, code: "{}".to_owned() };
    store.join(id, &info).unwrap()
}

/// The lease of a claim.
pub fn lease(claim: Claim) -> Lease {
    match claim {
        Claim::Lease(lease) => lease,
        other => panic!("no lease: {other:?}"),
    }
}

/// The result of a run of [`plan`].
pub fn outcome(run: u64) -> [Value<'static>; 2] {
    [Value::Integer((run % 83) as i64), Value::Float(run as f64 / 7.0)]
}

/// The results of so many runs from the front of a lease; those in `failed` have failed.
pub fn results_of(lease: &Lease, count: u32, failed: &[u64]) -> RangeResults {
    let columns = plan("", 0).schema.unwrap().columns;
    let mut results =
        RangeResults { first: lease.first, count, run_us: u64::from(count) * 20, ..RangeResults::default() };
    results.rows = Rows::new(&columns);
    for run in lease.first..lease.first + u64::from(count) {
        if failed.contains(&run) {
            results.failures.push(failure(run));
        } else {
            results.rows.push(run, 0, &outcome(run)).unwrap();
        }
    }
    results.digest = digest(&results.rows);
    results
}

/// A failure of a run.
pub fn failure(run: u64) -> Failure {
    Failure {
        run,
        kind: "error".to_owned(),
        error: "ValueError".to_owned(),
        message: format!("run {run}"),
        traceback: "here".to_owned(),
        attempts: 3,
    }
}

/// Stores the results of a whole lease.
pub fn store_all(store: &mut Connection, id: CampaignId, mut lease: Lease) {
    let results = results_of(&lease, lease.count, &[]);
    store.commit(id, &mut lease, &results).unwrap();
}

/// A single worker does all runs, and leaves.
pub fn work_off(store: &mut Connection, id: CampaignId) {
    let worker = join(store, id);
    loop {
        match store.claim(id, worker, &[]).unwrap() {
            Claim::Lease(lease) => store_all(store, id, lease),
            Claim::Wait { hint_us, .. } => {
                store.wait(hint_us).unwrap();
            }
            Claim::Ended(_) => break,
        }
    }
    store.leave(id, worker).unwrap();
}

/// The digest of the first runs of [`plan`].
pub fn digest_of(runs: u64) -> u128 {
    let mut rows = Rows::new(&plan("", 0).schema.unwrap().columns);
    (0..runs).for_each(|run| rows.push(run, 0, &outcome(run)).unwrap());
    digest(&rows)
}

/// All stored rows, read in parts.
pub fn all_rows(store: &mut Connection, id: CampaignId, rows_max: u32) -> Vec<Rows> {
    let (mut parts, mut from) = (Vec::new(), 0);
    loop {
        let rows = store.read_rows(id, from, rows_max).unwrap();
        let Some(last) = rows.runs.last() else { return parts };
        from = last + 1;
        parts.push(rows);
    }
}

/// The kind of an error, and a part of its message.
pub fn refused<T: std::fmt::Debug>(result: Result<T>, kind: ErrorKind, text: &str) {
    let error = result.expect_err("it was not refused");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.message().contains(text), "{text:?} is not in: {error}");
}
