//! The ledger of a campaign: a state machine of leased, finished and waiting runs.
//!
//! A store saves it as one record, and every operation is one transaction: load, call one method,
//! save. It holds a cursor over the runs that were never leased, the leases, and the returned
//! ranges. Its size depends on the workers and their ranges, never on the number of runs.
//!
//! ```
//! use tidewire_core::campaign::lease::Claim;
//! use tidewire_core::campaign::ledger::{Clock, Completion, Ledger, Terms};
//! use tidewire_core::campaign::state::State;
//!
//! let mut ledger = Ledger::new(Terms { runs: 1, ..Terms::default() });
//! let now = Clock { epoch: 0, us: 0 };
//! ledger.transition(now, State::Running, "started").unwrap();
//! let Claim::Lease(lease) = ledger.claim(now, 1, &[]) else { panic!("there is a run") };
//! ledger.complete(now, &lease, &Completion { count: 1, rows: 1, digest: 7, ..Completion::default() }).unwrap();
//! assert_eq!((ledger.state(), ledger.done(), ledger.digest()), (State::Done, 1, 7));
//! ```

mod leases;
mod progress;
mod range_sizer;
mod returned_ranges;
mod terms;

use std::collections::BTreeMap;
use std::mem;

use serde::{Deserialize, Serialize};

use super::precision::{Checkpoints, Verdict};
use super::state::State;
use leases::LeaseRecord;
use progress::Progress;
use range_sizer::RangeSizer;
use returned_ranges::ReturnedRanges;

pub use terms::{Clock, Completion, Refusal, RunLost, StateChange, Stored, Terms};

/// The ledger of one campaign. See the [module](self).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    terms: Terms,
    state: State,
    reason: String,
    /// The first run that nobody has had.
    next: u64,
    last_lease: u64,
    leases: Vec<LeaseRecord>,
    returned: ReturnedRanges,
    /// Runs whose worker has died in them, and how often.
    suspects: BTreeMap<u64, u32>,
    /// Workers that were here lately, and when.
    workers: BTreeMap<u64, u64>,
    /// How many workers were lost since runs were last completed.
    deaths: u32,
    /// True if the columns are known, so that more than one run may be out.
    columns: bool,
    checkpoints: Option<Checkpoints>,
    stored: Stored,
    pace: RangeSizer,
    progress: Progress,
    clock: Clock,
    #[serde(skip)]
    turns: Vec<StateChange>,
    #[serde(skip)]
    losses: Vec<RunLost>,
}

impl Ledger {
    /// The ledger of a draft.
    pub fn new(terms: Terms) -> Self {
        let checkpoints = terms.until.map(|aim| Checkpoints::new(aim, terms.sets));
        Self {
            columns: terms.columns,
            checkpoints,
            state: State::Draft,
            reason: String::new(),
            next: 0,
            last_lease: 0,
            leases: Vec::new(),
            returned: ReturnedRanges::default(),
            suspects: BTreeMap::new(),
            workers: BTreeMap::new(),
            deaths: 0,
            stored: Stored::default(),
            pace: RangeSizer::default(),
            progress: Progress::default(),
            clock: Clock::default(),
            turns: Vec::new(),
            losses: Vec::new(),
            terms,
        }
    }

    /// Its state.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Why it is in this state.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The terms that the campaign was planned with.
    pub const fn terms(&self) -> &Terms {
        &self.terms
    }

    /// How many runs are planned.
    pub const fn runs(&self) -> u64 {
        self.terms.runs
    }

    /// How many runs have stored results.
    pub const fn done(&self) -> u64 {
        self.stored.done
    }

    /// Counts of the stored results.
    pub const fn stored(&self) -> &Stored {
        &self.stored
    }

    /// The sum of the digests of all stored runs.
    pub const fn digest(&self) -> u128 {
        self.stored.digest
    }

    /// Workers that died, or let a lease expire.
    pub const fn lost_workers(&self) -> u64 {
        self.pace.losses()
    }

    /// How long a run takes, in microseconds, lately; 0 if nothing is known.
    pub const fn run_us(&self) -> f64 {
        self.pace.run_us()
    }

    /// The time in which it was at work, by the clock of its store, and runs that had ended at
    /// points of that time.
    pub fn timeline(&self) -> (u64, &[(u64, u64)]) {
        (self.progress.active_us(), self.progress.points())
    }

    /// Runs that ended per second, lately.
    pub fn rate(&self) -> f64 {
        self.progress.rate(self.stored.ended())
    }

    /// The current leases: worker, first run, count.
    pub fn leased(&self) -> impl Iterator<Item = (u64, u64, u32)> + '_ {
        self.leases.iter().map(|record| (record.worker, record.first, record.count))
    }

    /// The looks at the precision, if the campaign ends by it.
    pub const fn checkpoints(&self) -> Option<&Checkpoints> {
        self.checkpoints.as_ref()
    }

    /// Changes of state since the last call, for the table of events.
    pub fn take_turns(&mut self) -> Vec<StateChange> {
        mem::take(&mut self.turns)
    }

    /// Runs that ended without a worker since the last call: quarantined, or over their time limit
    /// too often.
    pub fn take_losses(&mut self) -> Vec<RunLost> {
        mem::take(&mut self.losses)
    }

    /// Moves to another state.
    ///
    /// # Errors
    ///
    /// If `to` may not follow the state that it has. The state that it has already is no error.
    pub fn transition(&mut self, now: Clock, to: State, reason: &str) -> Result<(), Refusal> {
        self.tick(now);
        if self.state == to {
            return Ok(());
        }
        if !self.state.may_become(to) {
            return Err(Refusal::Transition { from: self.state, to });
        }
        self.turn(to, reason);
        self.settle();
        Ok(())
    }

    /// Adds runs behind the last one, or behind the last that ran if it ended early. One that was
    /// done runs again.
    ///
    /// # Errors
    ///
    /// If it was cancelled or has failed, or there would be more than [`Terms::RUNS_MAX`].
    pub fn extend(&mut self, now: Clock, more: u64) -> Result<(), Refusal> {
        self.tick(now);
        if matches!(self.state, State::Cancelled | State::Failed) {
            return Err(Refusal::Transition { from: self.state, to: State::Running });
        }
        let base = if self.state == State::Done { self.next } else { self.terms.runs };
        let runs = base.checked_add(more).filter(|runs| *runs <= Terms::RUNS_MAX).ok_or(Refusal::TooManyRuns)?;
        self.terms.runs = runs;
        if self.state == State::Done && more > 0 {
            if let Some(checkpoints) = &mut self.checkpoints {
                checkpoints.go_on_to(runs);
            }
            self.turn(State::Running, &format!("{more} more runs"));
        }
        self.settle();
        Ok(())
    }

    /// The runs whose results must be examined now, from the first to one past the last. All runs
    /// before that end have finished. The caller reports the verdict with [`Ledger::looked`] in the
    /// same transaction.
    pub fn look_due(&self) -> Option<(u64, u64)> {
        let checkpoints = self.checkpoints.as_ref()?;
        let open = matches!(self.state, State::Running | State::Paused);
        let due = open && self.all_ended() && checkpoints.seen() < self.next;
        due.then(|| (checkpoints.seen(), self.next))
    }

    /// Records the verdict of a look. The campaign ends if its means are known precisely enough.
    pub fn looked(&mut self, verdict: Verdict) {
        let reached = verdict.reached;
        let next = self.next;
        if let Some(checkpoints) = &mut self.checkpoints {
            checkpoints.looked(verdict);
        }
        if reached {
            self.turn(State::Done, &format!("precise enough after {next} of {} runs", self.terms.runs));
        }
        self.settle();
    }

    /// True if no run before `next` waits or is out, and none may be leased.
    fn all_ended(&self) -> bool {
        self.next == self.limit() && self.leases.is_empty() && self.returned.is_empty()
    }

    /// No run from here on may be leased now.
    fn limit(&self) -> u64 {
        let checkpoint = self.checkpoints.as_ref().map_or(u64::MAX, Checkpoints::next);
        checkpoint.min(self.terms.runs).max(self.next)
    }

    /// Ends the campaign if too many runs have failed, or none is left.
    fn settle(&mut self) {
        if self.state.ended() || self.state == State::Draft {
            return;
        }
        let bad = self.stored.failed + self.stored.quarantined;
        if let Some(most) = self.terms.failed_max.filter(|most| bad > *most) {
            self.turn(State::Failed, &format!("{bad} runs have failed or are quarantined, and failed_max is {most}"));
        } else if self.next >= self.terms.runs && self.all_ended() && self.look_due().is_none() {
            self.turn(State::Done, "every run has ended");
        }
    }

    fn turn(&mut self, to: State, reason: &str) {
        self.turns.push(StateChange { from: self.state, to, reason: reason.to_owned() });
        self.state = to;
        reason.clone_into(&mut self.reason);
        if to.ended() {
            self.leases.clear();
            self.returned = ReturnedRanges::default();
            self.suspects.clear();
        }
    }

    /// Takes the time of the store, as each call does that changes something. Another epoch (a
    /// machine that has started anew) has no workers of the old one; a clock that was set back
    /// takes all deadlines with it.
    pub fn tick(&mut self, now: Clock) {
        if now.epoch != self.clock.epoch {
            for record in mem::take(&mut self.leases) {
                self.returned.put(record.first, record.count, record.losses);
            }
            self.workers.clear();
            self.pace.forget_time(now.us);
            self.clock = now;
            return;
        }
        if now.us + Clock::BACK_US < self.clock.us {
            let back = self.clock.us - now.us;
            self.leases.iter_mut().for_each(|record| record.deadline_us = record.deadline_us.saturating_sub(back));
            self.workers.values_mut().for_each(|seen_us| *seen_us = seen_us.saturating_sub(back));
            self.pace.forget_time(now.us);
            self.clock = now;
            return;
        }
        let passed = now.us.saturating_sub(self.clock.us);
        if self.state == State::Running {
            // A lease that nobody renews counts as work until its deadline alone.
            let until = self.leases.iter().map(|record| record.deadline_us).max().unwrap_or_default();
            let leased = until.saturating_sub(self.clock.us).min(passed);
            self.progress.pass(leased, true);
            self.progress.pass(passed - leased, false);
        }
        self.clock.us = self.clock.us.max(now.us);
    }
}
