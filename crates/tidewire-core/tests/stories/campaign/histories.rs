//! Random histories of a campaign in virtual time.

use std::collections::{BTreeMap, BTreeSet};

use tidewire_core::campaign::lease::{Claim, Lease};
use tidewire_core::campaign::ledger::{Clock, Completion, Ledger, Refusal, Terms};
use tidewire_core::campaign::precision::{Moments, PrecisionTarget};
use tidewire_core::campaign::state::State;
use tidewire_testkit::seeds::seeds;

use crate::link::support::Random;

const WORKERS: usize = 20;

/// Numbers of 64 bits below a bound.
struct Dice(Random);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.next() % bound
    }
}

/// A worker process as the world knows it.
struct Worker {
    id: u64,
    /// Leases by its own account, and how many runs of the first one it has done.
    leases: Vec<Lease>,
    done: u32,
    stalled: bool,
}

/// Counts of events by name, so that a test can check that every kind of event occurs.
type Happened = BTreeMap<&'static str, u64>;

struct History {
    number: u64,
    random: Dice,
    now: Clock,
    ledger: Ledger,
    workers: Vec<Worker>,
    last_worker: u64,
    /// Runs that have stored results.
    stored: BTreeSet<u64>,
    failed: BTreeSet<u64>,
    ended_alone: BTreeSet<u64>,
    /// How often a worker was lost that held a run.
    held_when_lost: BTreeMap<u64, u32>,
    killers: BTreeSet<u64>,
    broken: BTreeSet<u64>,
    endless: BTreeSet<u64>,
    run_us: u64,
    until: bool,
    looked_to: u64,
    moments: Moments,
    happened: Happened,
}

fn hash(run: u64) -> u128 {
    u128::from(run + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
}

impl History {
    fn new(number: u64) -> Self {
        let mut random = Dice(Random(number));
        let run_us = [20, 1_000, 300_000][random.below(3) as usize];
        let runs = [0, 1, 7, 90, 400, 3_000][random.below(6) as usize].min(60_000_000 / run_us);
        let until = random.below(4) == 0;
        let columns = random.below(2) == 0;
        let sets = 1 + random.below(3);
        let aim = PrecisionTarget { half_width: [0.02, 0.5][random.below(2) as usize], confidence: 0.95 };
        let terms = Terms {
            runs,
            sets,
            attempts: 2,
            lease_us: 5_000_000,
            range_us: 200_000,
            columns,
            until: until.then_some(aim),
            failed_max: None,
        };
        let mut some =
            |most: u64| -> BTreeSet<u64> { (0..random.below(most + 1)).map(|_| random.below(runs.max(1))).collect() };
        let (killers, broken, endless) = (some(2), some(3), some(1));
        let now = Clock { epoch: 1, us: 1_000_000_000_000 };
        Self {
            number,
            now,
            ledger: Ledger::new(terms),
            workers: Vec::new(),
            last_worker: 0,
            stored: BTreeSet::new(),
            failed: BTreeSet::new(),
            ended_alone: BTreeSet::new(),
            held_when_lost: BTreeMap::new(),
            killers,
            broken,
            endless,
            run_us,
            until,
            looked_to: 0,
            moments: Moments::new(sets),
            happened: Happened::new(),
            random,
        }
    }

    fn run(mut self) -> Happened {
        self.ledger.transition(self.now, State::Running, "started").unwrap();
        self.settle();
        for _ in 0..self.random.below(600) {
            self.step();
            if self.ledger.state() == State::Cancelled {
                self.check();
                return self.happened;
            }
        }
        self.calm();
        self.check();
        self.happened
    }

    fn saw(&mut self, what: &'static str) {
        *self.happened.entry(what).or_default() += 1;
    }

    /// Handles every decision of the ledger after a call, as a store does. At random, reloads the
    /// ledger from its record.
    fn settle(&mut self) {
        for lost in self.ledger.take_losses() {
            assert!(self.ended_alone.insert(lost.run), "history {}: run {} ended twice", self.number, lost.run);
            if lost.overtime {
                self.saw("overtime");
                assert!(self.endless.contains(&lost.run));
            } else {
                self.saw("quarantined");
                let seen = self.held_when_lost.get(&lost.run).copied().unwrap_or(0);
                assert!(seen >= 2, "history {}: run {} was in {seen} losses", self.number, lost.run);
            }
        }
        if let Some((from, to)) = self.ledger.look_due() {
            assert_eq!(from, self.looked_to, "history {}: looks follow each other", self.number);
            assert!(self.stored.len() + self.failed.len() + self.ended_alone.len() == to as usize);
            for run in from..to {
                if self.stored.contains(&run) {
                    self.moments.add(run, (run % 7) as f64);
                }
            }
            self.looked_to = to;
            let verdict = self.ledger.checkpoints().unwrap().judge(to, &self.moments);
            self.ledger.looked(verdict);
            self.saw("look");
        }
        let turns = self.ledger.take_turns();
        assert!(turns.iter().all(|turn| turn.from != turn.to));
        if self.random.below(16) > 0 {
            return;
        }
        let json = serde_json::to_string(&self.ledger).unwrap();
        let kept: Ledger = serde_json::from_str(&json).unwrap();
        assert_eq!(kept, self.ledger, "history {}: {json}", self.number);
        assert!(json.len() < 40_000, "history {}: a ledger of {} bytes", self.number, json.len());
        self.ledger = kept;
    }

    fn pass(&mut self, us: u64) {
        self.now.us += us;
    }

    fn step(&mut self) {
        let (pause, most) = (self.random.below(1_000_000), self.workers.len());
        match self.random.below(100) {
            0..8 if most < WORKERS => self.join(),
            8 => self.pass(6_000_000),
            9 => {
                self.now.us -= 3_600_000_000.min(self.now.us / 2);
                self.saw("clock set back");
            }
            10 if self.random.below(10) == 0 => {
                self.now = Clock { epoch: self.now.epoch + 1, us: pause };
                self.saw("machine started anew");
                self.workers.clear();
                self.settle_after(|_, _| ());
            }
            11 => self.switch(),
            12 if self.random.below(8) == 0 => self.extend(),
            13 if self.random.below(60) == 0 => {
                self.saw("cancelled");
                if !self.ledger.state().ended() {
                    self.settle_after(|ledger, now| ledger.transition(now, State::Cancelled, "enough").unwrap());
                }
            }
            _ if most > 0 => {
                let which = self.random.below(most as u64) as usize;
                self.work(which);
            }
            _ => self.join(),
        }
    }

    fn settle_after(&mut self, what: impl FnOnce(&mut Ledger, Clock)) {
        what(&mut self.ledger, self.now);
        self.settle();
    }

    fn join(&mut self) {
        self.last_worker += 1;
        self.workers.push(Worker { id: self.last_worker, leases: Vec::new(), done: 0, stalled: false });
        self.saw("joined");
    }

    fn switch(&mut self) {
        let to = if self.ledger.state() == State::Paused { State::Running } else { State::Paused };
        if !self.ledger.state().ended() {
            self.saw(to.name());
            self.settle_after(|ledger, now| ledger.transition(now, to, "").unwrap());
        } else if to == State::Paused {
            assert!(matches!(self.ledger.transition(self.now, to, ""), Err(Refusal::Transition { .. })));
        }
    }

    fn extend(&mut self) {
        let more = self.random.below(200);
        let was = self.ledger.state();
        self.settle_after(|ledger, now| ledger.extend(now, more).unwrap());
        if was == State::Done && more > 0 {
            self.saw("went on");
        }
    }

    fn work(&mut self, which: usize) {
        let worker = &mut self.workers[which];
        if worker.stalled {
            worker.stalled = self.random.below(3) > 0;
            return;
        }
        match self.random.below(20) {
            0 => {
                worker.stalled = true;
                self.saw("stalled");
            }
            1 => self.die(which, false),
            2 => {
                let id = self.workers.remove(which).id;
                self.saw("left");
                self.settle_after(|ledger, now| ledger.leave(now, id));
            }
            3 => {
                let leases = worker.leases.clone();
                for lease in leases {
                    let renewed = self.ledger.renew(self.now, &lease);
                    self.settle();
                    self.heard(which, &lease, renewed.map(|standing| standing.left));
                }
            }
            4 if !worker.leases.is_empty() => {
                let lease = worker.leases.pop().unwrap();
                worker.done = if worker.leases.is_empty() { 0 } else { worker.done };
                self.saw("gave back");
                self.settle_after(|ledger, now| ledger.give_back(now, &lease));
            }
            5 => self.claim(which, true),
            6..10 if worker.leases.len() < 2 => self.claim(which, false),
            _ if worker.leases.is_empty() => self.claim(which, false),
            10..12 => self.commit(which),
            _ => self.go(which),
        }
    }

    /// Runs some runs of the first lease, and commits what is whole.
    fn go(&mut self, which: usize) {
        let worker = &mut self.workers[which];
        let lease = worker.leases[0];
        let left = lease.count - worker.done;
        let some = if self.random.below(2) == 0 { left } else { self.random.below(u64::from(left) + 1) as u32 };
        for _ in 0..some {
            let run = lease.first + u64::from(self.workers[which].done);
            let (killer, endless) = (self.killers.contains(&run), self.endless.contains(&run));
            if killer || endless {
                self.saw("killer");
                return self.die_in(which, Some(run), endless);
            }
            self.workers[which].done += 1;
            self.now.us += self.run_us;
        }
        if self.workers[which].done == lease.count {
            self.commit(which);
        }
    }

    fn claim(&mut self, which: usize, deaf: bool) {
        let (id, holding) = {
            let worker = &self.workers[which];
            (worker.id, worker.leases.iter().map(|lease| lease.id).collect::<Vec<_>>())
        };
        let before: Vec<_> = self.ledger.leased().filter(|(worker, ..)| *worker != id).collect();
        let claim = self.ledger.claim(self.now, id, &holding);
        let after: BTreeSet<_> = self.ledger.leased().collect();
        self.count_lost(&before.into_iter().filter(|lease| !after.contains(lease)).collect::<Vec<_>>());
        self.settle();
        match claim {
            // The answer was lost on its way.
            Claim::Lease(_) if deaf => self.saw("answer lost"),
            Claim::Lease(lease) => {
                assert!(lease.count > 0 && (lease.count == 1 || !lease.pilot));
                self.workers[which].leases.push(lease);
            }
            Claim::Wait { hint_us, .. } => assert!((1_000..=5_000_000).contains(&hint_us)),
            Claim::Ended(state) => assert!(state.ended()),
        }
    }

    fn count_lost(&mut self, leases: &[(u64, u64, u32)]) {
        for (_, first, count) in leases {
            for run in *first..first + u64::from(*count) {
                *self.held_when_lost.entry(run).or_default() += 1;
            }
        }
    }

    fn commit(&mut self, which: usize) {
        let worker = &self.workers[which];
        let Some(&lease) = worker.leases.first() else { return };
        if worker.done == 0 {
            return;
        }
        let runs = lease.first..lease.first + u64::from(worker.done);
        let failed: Vec<u64> = runs.clone().filter(|run| self.broken.contains(run)).collect();
        let good = || runs.clone().filter(|run| !self.broken.contains(run));
        let part = Completion {
            count: worker.done,
            failed: failed.len() as u32,
            rows: good().count() as u64,
            digest: good().fold(0, |sum: u128, run| sum.wrapping_add(hash(run))),
            columns: good().count() > 0,
            run_us: u64::from(worker.done) * self.run_us,
            overhead_us: 3_000,
        };
        let good: Vec<u64> = good().collect();
        let answer = self.ledger.complete(self.now, &lease, &part);
        if answer.is_ok() {
            for run in good {
                assert!(self.stored.insert(run), "history {}: run {run} was stored twice", self.number);
            }
            for run in failed {
                assert!(self.failed.insert(run), "history {}: run {run} failed twice", self.number);
            }
            let held = &mut self.workers[which];
            held.leases[0].first = runs.end;
            held.leases[0].count -= part.count;
            held.done = 0;
        }
        self.settle();
        self.heard(which, &lease, answer.map(|standing| standing.left));
    }

    /// A worker handles the state of a lease.
    fn heard(&mut self, which: usize, lease: &Lease, left: Result<u32, Refusal>) {
        match left {
            Ok(0) => self.workers[which].leases.retain(|held| held.id != lease.id),
            Ok(_) => (),
            Err(Refusal::Stale) => {
                self.saw("stale");
                let worker = &mut self.workers[which];
                if worker.leases[0].id == lease.id {
                    worker.done = 0;
                }
                worker.leases.retain(|held| held.id != lease.id);
            }
            Err(other) => panic!("history {}: {other}", self.number),
        }
    }

    fn die(&mut self, which: usize, endless: bool) {
        let worker = &self.workers[which];
        let at = worker.leases.first().map(|lease| lease.first + u64::from(worker.done));
        let at = at.filter(|at| *at < worker.leases[0].end());
        self.die_in(which, at, endless);
    }

    /// A worker dies. Its supervisor may know in which run, or only that it did, or be dead, too.
    fn die_in(&mut self, which: usize, at: Option<u64>, overtime: bool) {
        self.saw("died");
        let worker = self.workers.remove(which);
        // A worker that was killed for its time was killed by a supervisor, which lives.
        let known = if overtime { 0 } else { self.random.below(3) };
        let held: Vec<_> = self.ledger.leased().filter(|(held, ..)| known < 2 && *held == worker.id).collect();
        self.count_lost(&held);
        match known {
            0 => self.settle_after(|ledger, now| ledger.worker_lost(now, worker.id, at, overtime)),
            1 => self.settle_after(|ledger, now| ledger.worker_lost(now, worker.id, None, false)),
            _ => (),
        }
    }

    /// Nothing unusual happens any more but what runs do themselves: the campaign ends.
    fn calm(&mut self) {
        if self.ledger.state() == State::Paused {
            self.switch();
        }
        for _ in 0..2_000 {
            if self.ledger.state().ended() {
                return;
            }
            if self.workers.len() < 2 {
                self.join();
            }
            for which in (0..2.min(self.workers.len())).rev() {
                self.workers[which].stalled = false;
                if self.workers[which].leases.is_empty() {
                    self.claim(which, false);
                }
                if !self.workers[which].leases.is_empty() {
                    self.go(which);
                }
            }
            self.pass(100_000);
        }
        panic!("history {} does not end: {}", self.number, serde_json::to_string(&self.ledger).unwrap());
    }

    fn check(&self) {
        let number = self.number;
        let stored = self.ledger.stored();
        let digest = self.stored.iter().fold(0, |sum: u128, run| sum.wrapping_add(hash(*run)));
        assert_eq!(stored.digest, digest, "history {number}");
        assert_eq!(
            (stored.done, stored.rows),
            (self.stored.len() as u64, self.stored.len() as u64),
            "history {number}"
        );
        let ended = self.failed.len() + self.ended_alone.len();
        assert_eq!(stored.failed + stored.quarantined, ended as u64, "history {number}");
        assert!(self.stored.is_disjoint(&self.failed) && self.stored.is_disjoint(&self.ended_alone));
        if self.ledger.state() == State::Done {
            let end = self.stored.len() as u64 + ended as u64;
            assert!(end == self.ledger.runs() || self.until && end < self.ledger.runs(), "history {number}: {end}");
            let all: BTreeSet<u64> = self.stored.iter().chain(&self.failed).chain(&self.ended_alone).copied().collect();
            assert_eq!(all.into_iter().collect::<Vec<_>>(), (0..end).collect::<Vec<_>>(), "history {number}");
        }
        assert!(self.killers.iter().all(|run| !self.stored.contains(run)));
    }
}

// Promises: P15.5, P15.6.
#[test]
fn every_run_is_stored_once_in_every_history() {
    let mut happened = Happened::new();
    let is_whole = seeds("histories of a campaign", 300, |seed| {
        for (name, count) in History::new(seed).run() {
            *happened.entry(name).or_default() += count;
        }
    });
    println!("{happened:?}");
    if is_whole {
        assert_eq!(happened.len(), 17, "everything has happened: {happened:?}");
        assert!(happened.values().all(|&count| count >= 5), "{happened:?}");
    }
}
