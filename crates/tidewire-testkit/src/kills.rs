//! Crash tests: processes that die in the middle of commits, and campaigns too large to end.

use std::env;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::sync_channel;
use std::thread;

use rustix::process::{Pid, Signal, getpid, kill_process};
use tidewire_backend::{CampaignId, Claim, ErrorKind, Plan, Settings, State, WorkerId};
use tidewire_core::campaign::digest::digest;

use crate::{
    Connection, EmptyStore, Random, all_rows, digest_of, join, lease, plan, results_of, start, store_all, work_off,
};

/// The address of the store, for a process that is to be killed.
const ADDRESS: &str = "TIDEWIRE_VICTIM";
/// The task of a process: it stands still with its first lease, or works until it dies, with this
/// seed.
const STANDS: &str = "TIDEWIRE_VICTIM_STANDS";
const WORKS: &str = "TIDEWIRE_VICTIM_WORKS";
const RUNS: u64 = 60_000;
/// Runs of a commit.
const PART: u32 = 100;
/// Kills in the mean.
const KILLS: u64 = 25;

/// Kills this process in the middle of what it does next.
fn die(random: &mut Random) {
    let spins = random.below(500_000);
    thread::spawn(move || {
        (0..spins).for_each(|_| std::hint::spin_loop());
        kill_process(getpid(), Signal::KILL)
    });
}

/// Works until it dies, or there is no more to do.
pub fn victim(open: fn(&str) -> tidewire_backend::Result<Connection>) {
    let address = env::var(ADDRESS).expect("it is started by the test that kills it");
    let mut store = open(&address).unwrap();
    let id = store.find("killed").unwrap();
    let worker = join(&mut store, id);
    println!("\nworker {worker}");
    if env::var_os(STANDS).is_some() {
        let mut held = lease(store.claim(id, worker, &[]).unwrap());
        let results = results_of(&held, 1, &[]);
        println!("\nstands");
        io::stdin().read_line(&mut String::new()).unwrap();
        return crate::refused(store.commit(id, &mut held, &results), ErrorKind::Stale, "was taken away");
    }
    let mut random = Random(env::var(WORKS).expect("it has a seed").parse().unwrap());
    let mut left = random.below(2 * RUNS / KILLS / u64::from(PART));
    loop {
        match store.claim(id, worker, &[]) {
            Ok(Claim::Lease(mut lease)) => {
                // In parts, so that much of the time is spent in commits.
                while lease.count > 0 {
                    if left == 0 {
                        die(&mut random);
                    }
                    left = left.wrapping_sub(1);
                    let results = results_of(&lease, lease.count.min(PART), &[]);
                    if store.commit(id, &mut lease, &results).is_err_and(|error| error.kind() == ErrorKind::Stale) {
                        break;
                    }
                }
            }
            Ok(Claim::Wait { hint_us, .. }) => {
                store.wait(hint_us).unwrap();
            }
            Ok(Claim::Ended(_)) => return,
            Err(error) => assert!(error.retryable(), "{error}"),
        }
    }
}

struct Victim {
    process: Child,
    output: BufReader<ChildStdout>,
    worker: WorkerId,
}

impl Victim {
    fn start(place: &EmptyStore, how: &str, seed: u64) -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["kills::victim", "--exact", "--ignored", "--nocapture"])
            .env(ADDRESS, &place.address)
            .env(how, seed.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut victim = Self { process, output, worker: WorkerId(0) };
        victim.worker = WorkerId(victim.wait_for_line("worker ").parse().expect("it says its number"));
        victim
    }

    /// Waits for a line that begins so, and gives the rest of it.
    fn wait_for_line(&mut self, begin: &str) -> String {
        let mut lines = self.output.by_ref().lines().map_while(Result::ok);
        lines.find_map(|line| line.strip_prefix(begin).map(str::to_owned)).expect("it says what it does")
    }

    /// Waits for its end. Until then it can write.
    fn ended(mut self) -> (WorkerId, ExitStatus) {
        (self.worker, self.process.wait().unwrap())
    }
}

// Promises: P15.6, P15.14, P15.37.
pub fn processes_that_are_killed_in_commits_lose_and_double_nothing(place: &EmptyStore) {
    let mut store = place.connect();
    let id = start(&mut store, &plan("killed", RUNS));
    let mut random = Random(4);
    let (send, ends) = sync_channel(2);
    let mut start_victim = || {
        let (victim, send) = (Victim::start(place, WORKS, random.below(u64::MAX)), send.clone());
        thread::spawn(move || send.send(victim.ended()));
    };
    start_victim();
    start_victim();
    let (mut killed, mut running) = (0, 2);
    while running > 0 {
        let (worker, status) = ends.recv().unwrap();
        store.worker_lost(id, worker, Some(u64::MAX), false).unwrap();
        match status.signal() {
            Some(_) => {
                killed += 1;
                start_victim();
            }
            None => {
                assert!(status.success(), "{status}");
                running -= 1;
            }
        }
    }
    assert!(killed >= KILLS / 2, "{killed} were killed before it was done");
    work_off(&mut store, id);
    let status = store.status(id).unwrap();
    assert_eq!((status.summary.state, status.summary.done, status.digest), (State::Done, RUNS, digest_of(RUNS)));
    let parts = all_rows(&mut store, id, 10_000);
    assert_eq!(
        parts.iter().flat_map(|part| part.runs.iter().copied()).collect::<Vec<_>>(),
        (0..RUNS).collect::<Vec<_>>()
    );
    assert_eq!(parts.iter().fold(0, |sum: u128, part| sum.wrapping_add(digest(part))), status.digest);
}

/// SIGSTOP between claim and commit, until its lease has expired and another has done its runs;
/// then SIGCONT.
pub fn a_process_that_stands_still_beyond_its_lease_stores_nothing_late(place: &EmptyStore) {
    let mut store = place.connect();
    let settings = Settings { lease_us: 100_000, ..Settings::default() };
    let id = start(&mut store, &Plan { settings, ..plan("killed", 500) });
    let mut victim = Victim::start(place, STANDS, 0);
    victim.wait_for_line("stands");
    kill_process(Pid::from_child(&victim.process), Signal::STOP).unwrap();
    let worker = join(&mut store, id);
    while store.status(id).unwrap().losses == 0 {
        match store.claim(id, worker, &[]).unwrap() {
            Claim::Lease(lease) => store_all(&mut store, id, lease),
            Claim::Wait { hint_us, .. } => {
                store.wait(hint_us).unwrap();
            }
            Claim::Ended(state) => panic!("{state} without the runs of the other"),
        }
    }
    work_off(&mut store, id);
    kill_process(Pid::from_child(&victim.process), Signal::CONT).unwrap();
    drop(victim.process.stdin.take());
    assert!(victim.process.wait().unwrap().success(), "it is refused");
    let status = store.status(id).unwrap();
    assert_eq!((status.summary.state, status.rows, status.digest), (State::Done, 500, digest_of(500)));
}

// Promises: P15.44.
/// No row exists for a run before its result does: neither tables nor the ledger know how many runs
/// are planned.
pub fn a_thousand_million_runs_are_planned_at_once(place: &EmptyStore) {
    let mut store = place.connect();
    let small = start(&mut store, &plan("small", 1_000));
    let large = start(&mut store, &plan("large", 1_000_000_000));
    let most = start(&mut store, &Plan { ..plan("most", 1 << 48) });
    for id in [small, large, most] {
        let worker = join(&mut store, id);
        for expected in [0, 1, 9] {
            let lease = lease(store.claim(id, worker, &[]).unwrap());
            assert_eq!(lease.first, expected);
            store_all(&mut store, id, lease);
        }
        let summary = store.status(id).unwrap().summary;
        assert_eq!(summary.done, 73);
        store.transition(id, State::Paused, "").unwrap();
        assert_eq!(store.read_rows(id, 0, 1_000).unwrap().len(), 73);
    }
    refused_beyond(&mut store, most);
}

fn refused_beyond(store: &mut Connection, id: CampaignId) {
    crate::refused(store.extend(id, 1), ErrorKind::Invalid, "at most");
}
