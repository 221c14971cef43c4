//! Lease operations of a ledger: claims, renewals, completions, and the return of the runs of lost
//! workers.

use serde::{Deserialize, Serialize};

use super::range_sizer::Load;
use super::returned_ranges::{ReturnedRange, ReturnedRanges};
use super::{Clock, Completion, Ledger, Refusal, RunLost};
use crate::campaign::lease::{Claim, ClaimState, Lease};
use crate::campaign::state::State;

/// A run that has killed its worker so often is quarantined.
const KILLS: u32 = 2;
/// The number of workers lost in a row, with no run completed meanwhile, after which suspect runs
/// are tried first. Otherwise a campaign whose runs all kill would lose a worker for each of them.
const DEATHS: u32 = 3;

/// A lease as the ledger keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct LeaseRecord {
    pub id: u64,
    pub worker: u64,
    pub first: u64,
    pub count: u32,
    pub deadline_us: u64,
    /// How often a worker was lost with these runs before, and nobody knew in which of them.
    pub losses: u32,
}

impl LeaseRecord {
    const fn end(&self) -> u64 {
        self.first + self.count as u64
    }
}

impl Ledger {
    /// Leases a range to a worker. `lease_ids` are the leases that the worker still has: these are
    /// renewed, and its other leases are given back. Expired leases of other workers are lost.
    /// Returned runs are leased before new ones.
    pub fn claim(&mut self, now: Clock, worker: u64, lease_ids: &[u64]) -> Claim {
        self.tick(now);
        self.forget(worker, lease_ids);
        let deadline_us = self.clock.us + self.terms.lease_us;
        self.leases.iter_mut().filter(|one| one.worker == worker).for_each(|record| record.deadline_us = deadline_us);
        self.expire();
        self.settle();
        self.workers.insert(worker, self.clock.us);
        self.forget_workers();
        if self.state.ended() {
            return Claim::Ended(self.state);
        }
        if self.state != State::Running || !self.columns && !self.leases.is_empty() {
            return self.wait();
        }
        match self.lease(worker) {
            Some(lease) => Claim::Lease(lease),
            None => self.wait(),
        }
    }

    /// Makes a lease valid for its whole time again.
    ///
    /// # Errors
    ///
    /// If it was taken away.
    pub fn renew(&mut self, now: Clock, lease: &Lease) -> Result<ClaimState, Refusal> {
        self.tick(now);
        let at = self.find(lease)?;
        self.leases[at].deadline_us = self.clock.us + self.terms.lease_us;
        self.workers.insert(lease.worker, self.clock.us);
        Ok(ClaimState { state: self.state, left: self.leases[at].count })
    }

    /// Completes so many runs from the front of a lease, whose results are stored in the same
    /// transaction, and renews the rest. An overdue lease is still valid as long as nobody else has
    /// claimed anything.
    ///
    /// # Errors
    ///
    /// If it was revoked, or the completion does not fit it.
    pub fn complete(&mut self, now: Clock, lease: &Lease, part: &Completion) -> Result<ClaimState, Refusal> {
        self.tick(now);
        let at = self.find(lease)?;
        let record = &mut self.leases[at];
        if part.count == 0 || part.count > record.count || part.failed > part.count || lease.first != record.first {
            return Err(Refusal::Count);
        }
        if !self.columns && !part.columns && part.failed < part.count {
            return Err(Refusal::NoColumns);
        }
        let end = record.first + u64::from(part.count);
        record.first = end;
        record.count -= part.count;
        record.deadline_us = self.clock.us + self.terms.lease_us;
        let remaining = record.count;
        if remaining == 0 {
            self.leases.swap_remove(at);
        }
        self.suspects.retain(|run, _| *run < lease.first || *run >= end);
        self.deaths = 0;
        self.columns |= part.columns;
        self.stored.done += u64::from(part.count - part.failed);
        self.stored.failed += u64::from(part.failed);
        self.stored.rows += part.rows;
        self.stored.digest = self.stored.digest.wrapping_add(part.digest);
        self.pace.learn(part.count, part.run_us, part.overhead_us);
        self.progress.mark(self.stored.ended());
        self.workers.insert(lease.worker, self.clock.us);
        self.settle();
        Ok(ClaimState { state: self.state, left: remaining })
    }

    /// The state of a lease of which exactly these runs are completed already: the worker did not
    /// get the answer, and completes them again. None: it is another completion.
    pub fn completed(&self, lease: &Lease, count: u32) -> Option<ClaimState> {
        let record = &self.leases[self.find(lease).ok()?];
        let is_again = count > 0 && lease.first + u64::from(count) == record.first;
        is_again.then_some(ClaimState { state: self.state, left: record.count })
    }

    /// Gives the rest of a lease back. A revoked lease is no error.
    pub fn give_back(&mut self, now: Clock, lease: &Lease) {
        self.tick(now);
        if let Ok(at) = self.find(lease) {
            let record = self.leases.swap_remove(at);
            self.returned.put(record.first, record.count, record.losses);
        }
    }

    /// A worker leaves by itself: its leases are given back.
    pub fn leave(&mut self, now: Clock, worker: u64) {
        self.tick(now);
        self.forget(worker, &[]);
        self.workers.remove(&worker);
    }

    /// A worker has died, in this run if that is known; with `overtime` because the run was over
    /// its time limit.
    pub fn worker_lost(&mut self, now: Clock, worker: u64, at_run: Option<u64>, overtime: bool) {
        self.tick(now);
        self.workers.remove(&worker);
        self.deaths = self.deaths.saturating_add(1);
        self.pace.loss(self.clock.us);
        for record in self.take_leases(|record| record.worker == worker) {
            match at_run {
                Some(run) if (record.first..record.end()).contains(&run) => self.lost_in(&record, run, overtime),
                // The worker had not begun this range.
                Some(_) => self.returned.put(record.first, record.count, record.losses),
                None => self.lost(&record),
            }
        }
        self.settle();
    }

    fn find(&self, lease: &Lease) -> Result<usize, Refusal> {
        let same = |record: &LeaseRecord| record.id == lease.id && record.worker == lease.worker;
        self.leases.iter().position(same).ok_or(Refusal::Stale)
    }

    fn lease(&mut self, worker: u64) -> Option<Lease> {
        let limit = self.limit();
        let load = Load {
            waiting: (limit - self.next) + self.returned.runs(),
            workers: self.workers.len() as u64,
            range_us: self.terms.range_us,
            now_us: self.clock.us,
        };
        let most = if self.columns { self.pace.size(&load) } else { 1 };
        let ReturnedRange { first, count, losses } = self.next_piece(most, limit)?;
        self.last_lease += 1;
        let valid_us = self.terms.lease_us;
        let id = self.last_lease;
        self.leases.push(LeaseRecord { id, worker, first, count, deadline_us: self.clock.us + valid_us, losses });
        self.pace.begin(self.clock.us);
        self.progress.begin();
        let attempt = 1 + self.suspects.get(&first).copied().unwrap_or(0);
        Some(Lease { id, worker, first, count, attempt, pilot: !self.columns, valid_us })
    }

    /// The runs to lease next. Runs that were leased to a lost worker come last. Otherwise a
    /// program that kills workers as they begin would hit the same run twice, and the ledger would
    /// quarantine a good run.
    fn next_piece(&mut self, most: u32, limit: u64) -> Option<ReturnedRange> {
        if self.deaths >= DEATHS
            && let Some(piece) = self.returned.take_suspect(most)
        {
            return Some(piece);
        }
        if let Some(piece) = self.returned.take_calm(most) {
            return Some(piece);
        }
        let count = u64::from(most).min(limit - self.next);
        if count == 0 {
            return self.returned.take(most);
        }
        let first = self.next;
        self.next += count;
        Some(ReturnedRange { first, count: count as u32, losses: 0 })
    }

    fn wait(&self) -> Claim {
        let next = self.leases.iter().map(|record| record.deadline_us).min().filter(|_| self.state == State::Running);
        let hint_us = next.map_or(self.terms.lease_us, |deadline| deadline.saturating_sub(self.clock.us).max(1_000));
        Claim::Wait { state: self.state, hint_us: hint_us.min(self.terms.lease_us) }
    }

    /// Gives back the leases of a worker, except those in `lease_ids`.
    fn forget(&mut self, worker: u64, lease_ids: &[u64]) {
        for record in self.take_leases(|record| record.worker == worker && !lease_ids.contains(&record.id)) {
            self.returned.put(record.first, record.count, record.losses);
        }
    }

    fn expire(&mut self) {
        let now = self.clock.us;
        let expired = self.take_leases(|record| record.deadline_us <= now);
        for record in &expired {
            if self.workers.remove(&record.worker).is_some() {
                self.deaths = self.deaths.saturating_add(1);
                self.pace.loss(now);
            }
            self.lost(record);
        }
    }

    /// Workers that have not been seen for two leases count no more, unless they hold one.
    fn forget_workers(&mut self) {
        let since = self.clock.us.saturating_sub(2 * self.terms.lease_us);
        let leases = &self.leases;
        self.workers.retain(|worker, at_us| *at_us >= since || leases.iter().any(|record| record.worker == *worker));
    }

    fn take_leases(&mut self, which: impl Fn(&LeaseRecord) -> bool) -> Vec<LeaseRecord> {
        let (released, remaining) = std::mem::take(&mut self.leases).into_iter().partition(|record| which(record));
        self.leases = remaining;
        released
    }

    /// A worker was lost with these runs, and nobody knows in which. The second time they are cut
    /// in halves, until the one that does it is alone.
    fn lost(&mut self, record: &LeaseRecord) {
        let losses = record.losses + 1;
        if record.count == 1 {
            let kills = losses.max(self.suspects.get(&record.first).map_or(0, |kills| kills + 1));
            if kills >= KILLS {
                return self.end_run(record.first, record.worker, kills, false);
            }
            self.suspects.insert(record.first, kills);
        }
        if losses < KILLS || record.count == 1 || self.returned.len() >= ReturnedRanges::MANY {
            return self.returned.put(record.first, record.count, losses);
        }
        let half = record.count / 2;
        self.returned.put(record.first, half, losses - 1);
        self.returned.put(record.first + u64::from(half), record.count - half, losses - 1);
    }

    /// A worker was lost in a run that is known: it waits alone from now on.
    fn lost_in(&mut self, record: &LeaseRecord, run: u64, overtime: bool) {
        let kills = 1 + self.suspects.get(&run).copied().unwrap_or(0);
        self.returned.put(record.first, (run - record.first) as u32, 0);
        self.returned.put(run + 1, (record.end() - run - 1) as u32, record.losses);
        let most = if overtime { self.terms.attempts } else { KILLS };
        if kills >= most {
            self.end_run(run, record.worker, kills, overtime);
        } else {
            self.suspects.insert(run, kills);
            self.returned.put(run, 1, kills);
        }
    }

    fn end_run(&mut self, run: u64, worker: u64, attempts: u32, overtime: bool) {
        self.suspects.remove(&run);
        if overtime {
            self.stored.failed += 1;
        } else {
            self.stored.quarantined += 1;
        }
        self.progress.mark(self.stored.ended());
        self.losses.push(RunLost { run, worker, attempts, overtime });
    }
}
