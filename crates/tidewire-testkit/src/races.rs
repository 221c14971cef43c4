//! Races: connections in several threads do random things with two campaigns, and every run is
//! stored once.
//!
//! `TIDEWIRE_RACES=n` sets their number. A race is replayed as far as its threads take the same
//! turns.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::thread;

use tidewire_backend::{CampaignId, Claim, ErrorKind, Lease, Plan, Settings, State, WorkerId};
use tidewire_core::campaign::digest::digest;

use crate::{Connection, EmptyStore, Random, all_rows, join, no_parameters, outcome, plan, results_of, work_off};

const RACES: u64 = 3;
const THREADS: u64 = 3;
const STEPS: u64 = 150;

/// Acknowledged commits: the runs whose commit was answered, by campaign.
#[derive(Default)]
struct AnsweredCommits {
    stored: BTreeSet<(u64, u64)>,
    failed: BTreeSet<(u64, u64)>,
}

struct Racer<'a> {
    place: &'a EmptyStore,
    store: Connection,
    random: Random,
    answered: &'a Mutex<AnsweredCommits>,
    campaign: CampaignId,
    worker: WorkerId,
    leases: Vec<Lease>,
}

impl Racer<'_> {
    fn step(&mut self) {
        match self.random.below(24) {
            0 => self.die(),
            1 => {
                self.store.leave(self.campaign, self.worker).unwrap();
                self.join();
            }
            2 => {
                let worker = self.worker;
                let at = self.leases.first().map(|lease| lease.first + self.random.below(u64::from(lease.count)));
                // At a run that is not its own: its leases come back, and no run is suspected.
                let at = at.map(|_| u64::MAX);
                self.store.worker_lost(self.campaign, worker, at, false).unwrap();
                self.join();
            }
            3 => {
                if let Some(lease) = self.leases.pop() {
                    self.store.give_back(self.campaign, &lease).unwrap();
                }
            }
            4 => {
                if let Some(lease) = self.leases.first().copied() {
                    let renewed = self.store.renew(self.campaign, &lease).map(|standing| standing.left);
                    match renewed {
                        Ok(left) => assert_eq!(left, lease.count),
                        Err(error) => self.stale(error.kind(), lease),
                    }
                }
            }
            5 => {
                let to = if self.random.below(4) == 0 { State::Paused } else { State::Running };
                let answer = self.store.transition(self.campaign, to, "race");
                assert!(answer.is_ok() || answer.unwrap_err().kind() == ErrorKind::Transition);
            }
            6 => self.look(),
            7 if self.random.below(4) == 0 => self.store = self.place.connect(),
            8..16 => self.claim(),
            _ => self.commit(),
        }
    }

    fn join(&mut self) {
        self.leases.clear();
        self.campaign = CampaignId(1 + self.random.below(2));
        self.worker = join(&mut self.store, self.campaign);
    }

    /// Ends without a notice: its leases expire.
    fn die(&mut self) {
        self.join();
    }

    fn claim(&mut self) {
        if self.leases.len() < 2 {
            match self.store.claim(self.campaign, self.worker, &self.leases).unwrap() {
                Claim::Lease(lease) => self.leases.push(lease),
                Claim::Wait { hint_us, .. } => assert!(hint_us > 0),
                Claim::Ended(_) => self.join(),
            }
        }
    }

    fn commit(&mut self) {
        let Some(mut lease) = self.leases.first().copied() else { return self.claim() };
        let count = 1 + self.random.below(u64::from(lease.count)) as u32;
        let failed: Vec<u64> = (lease.first..lease.first + u64::from(count)).filter(|run| run % 50 == 17).collect();
        let results = results_of(&lease, count, &failed);
        match self.store.commit(self.campaign, &mut lease, &results) {
            Ok(standing) => {
                self.leases[0] = lease;
                if standing.left == 0 {
                    self.leases.remove(0);
                }
                let mut answered = self.answered.lock().unwrap();
                for run in &results.rows.runs {
                    assert!(answered.stored.insert((self.campaign.0, *run)), "run {run} was stored twice");
                }
                for run in failed {
                    assert!(answered.failed.insert((self.campaign.0, run)), "run {run} failed twice");
                }
            }
            Err(error) => self.stale(error.kind(), lease),
        }
    }

    fn stale(&mut self, kind: ErrorKind, lease: Lease) {
        assert_eq!(kind, ErrorKind::Stale);
        self.leases.retain(|held| held.id != lease.id);
    }

    /// Checks that everything read at any moment is consistent.
    fn look(&mut self) {
        let status = self.store.status(self.campaign).unwrap();
        assert_eq!(status.rows, status.summary.done);
        assert!(status.summary.done + status.summary.failed + status.leased <= status.summary.runs);
        let rows = self.store.read_rows(self.campaign, self.random.below(500), 50).unwrap();
        for (at, run) in rows.runs.iter().enumerate() {
            assert_eq!([rows.columns[0].at(at), rows.columns[1].at(at)], outcome(*run));
        }
    }
}

// Promises: P15.6.
pub fn random_programs_store_every_run_once(place: &EmptyStore) {
    let races = std::env::var("TIDEWIRE_RACES").ok().and_then(|text| text.parse().ok()).unwrap_or(RACES);
    for race in 0..races {
        // The campaigns of a race are those with the numbers 1 and 2.
        let fresh = place.another();
        one_race(&fresh, race);
    }
}

fn one_race(place: &EmptyStore, race: u64) {
    let mut store = place.connect();
    let settings = Settings { lease_us: 30_000, ..Settings::default() };
    for name in ["one", "two"] {
        let plan = Plan { settings: settings.clone(), ..plan(name, 3_000) };
        let id = store.create(&plan, &no_parameters()).unwrap();
        store.transition(id, State::Running, "").unwrap();
    }
    let answered = Mutex::new(AnsweredCommits::default());
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let answered = &answered;
            scope.spawn(move || {
                let campaign = CampaignId(1 + thread % 2);
                let mut store = place.connect();
                let worker = join(&mut store, campaign);
                let random = Random(race * THREADS + thread + 1);
                let mut racer = Racer { place, store, random, answered, campaign, worker, leases: Vec::new() };
                (0..STEPS).for_each(|_| racer.step());
            });
        }
    });
    let answered = answered.into_inner().unwrap();
    for number in [1, 2] {
        let id = CampaignId(number);
        let status = store.status(id).unwrap();
        let count_answered =
            |set: &BTreeSet<(u64, u64)>| set.iter().filter(|(campaign, _)| *campaign == number).count() as u64;
        assert_eq!(status.summary.done, count_answered(&answered.stored), "race {race}");
        assert_eq!(status.summary.failed, count_answered(&answered.failed), "race {race}");
        if !status.summary.state.ended() {
            store.transition(id, State::Running, "").unwrap();
        }
        work_off(&mut store, id);
        let status = store.status(id).unwrap();
        let summary = &status.summary;
        assert_eq!(
            (summary.state, summary.done + summary.failed + summary.quarantined),
            (State::Done, 3_000),
            "race {race}"
        );
        let parts = all_rows(&mut store, id, 700);
        let runs: Vec<u64> = parts.iter().flat_map(|part| part.runs.clone()).collect();
        assert!(runs.is_sorted_by(|one, next| one < next), "race {race}");
        assert_eq!(runs.len() as u64, summary.done, "race {race}");
        let errors = store.errors(id, 0, u32::MAX).unwrap();
        assert_eq!(errors.len() as u64, summary.failed + summary.quarantined, "race {race}");
        let sum = parts.iter().fold(0, |sum: u128, part| sum.wrapping_add(digest(part)));
        assert_eq!(sum, status.digest, "race {race}");
    }
}
