//! The cost of claims and commits: `python tools/servers.py postgres --durable -- cargo bench -p
//! tidewire-stores`.
//!
//! Prints the median, the minimum and the maximum of each, for SQLite in a temporary folder. The
//! server of `TIDEWIRE_TEST_POSTGRES` is measured, too, if there is one. Figures of different runs
//! are not comparable: disks differ.

use std::env;
use std::time::Instant;

use tidewire_backend::{Campaigns, Lease, Plan, Settings, State};
use tidewire_stores::{Missing, open};
use tidewire_testkit::{join, lease, plan, results_of, start};

const ROUNDS: usize = 40;

type Store = Box<dyn Campaigns>;

fn main() {
    let folder = env::temp_dir().join(format!("tidewire-commits-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let mut urls = vec![("SQLite", format!("sqlite:///{}", folder.join("farm.db").display()))];
    urls.extend(env::var("TIDEWIRE_TEST_POSTGRES").ok().map(|url| ("PostgreSQL", url)));
    println!("{:<11} {:<32} {:>10} {:>10} {:>10}", "store", "microseconds", "median", "min", "max");
    let mut stores: Vec<(&str, Store)> = Vec::new();
    for (name, url) in &urls {
        stores.push((name, open(url, Missing::Create).expect("a store")));
    }
    for rows in [1, 100, 10_000] {
        let mut taken: Vec<Vec<f64>> = vec![Vec::new(); stores.len()];
        let mut held: Vec<_> = stores.iter_mut().map(|(_, store)| grown(store, &format!("{rows} rows"))).collect();
        // In turns, so that other load on the computer affects all of them.
        for _ in 0..ROUNDS {
            for (at, (_, store)) in stores.iter_mut().enumerate() {
                let (id, worker, lease) = &mut held[at];
                if lease.count < rows {
                    *lease = self::lease(store.claim(*id, *worker, &[]).expect("a claim"));
                }
                let results = results_of(lease, rows.min(lease.count), &[]);
                taken[at].push(time(|| store.commit(*id, lease, &results)));
            }
        }
        for (at, (name, _)) in stores.iter().enumerate() {
            say(name, &format!("commit of {rows} rows"), &mut taken[at]);
        }
    }
    for runs in [1_000, 1_000_000_000] {
        for (name, store) in &mut stores {
            let id = start(store, &plan(&format!("{name} {runs}"), runs));
            let worker = join(store, id);
            let mut claims: Vec<_> = (0..ROUNDS).map(|_| time(|| store.claim(id, worker, &[]))).collect();
            say(name, &format!("claim, {runs} runs planned"), &mut claims);
            let mut looks: Vec<_> = (0..ROUNDS).map(|_| time(|| store.status(id))).collect();
            say(name, &format!("status, {runs} runs planned"), &mut looks);
            let mut turns = Vec::new();
            for turn in 0..ROUNDS {
                let to = if turn % 2 == 0 { State::Paused } else { State::Running };
                turns.push(time(|| store.transition(id, to, "")));
            }
            say(name, &format!("pause, {runs} runs planned"), &mut turns);
        }
    }
    drop(stores);
    std::fs::remove_dir_all(&folder).expect("the folder goes");
}

/// A campaign whose ranges have grown to 100,000 runs.
fn grown(store: &mut Store, name: &str) -> (tidewire_backend::CampaignId, tidewire_backend::WorkerId, Lease) {
    let settings = Settings { lease_us: 600_000_000, range_us: 60_000_000, ..Settings::default() };
    let id = start(store, &Plan { settings, ..plan(name, 1 << 40) });
    let worker = join(store, id);
    loop {
        let mut held = lease(store.claim(id, worker, &[]).expect("a claim"));
        if held.count == 100_000 {
            return (id, worker, held);
        }
        let results = results_of(&held, held.count, &[]);
        store.commit(id, &mut held, &results).expect("a commit");
    }
}

fn time<T, E: std::fmt::Debug>(what: impl FnOnce() -> Result<T, E>) -> f64 {
    let began = Instant::now();
    what().expect("it succeeds");
    began.elapsed().as_secs_f64() * 1e6
}

fn say(store: &str, what: &str, taken: &mut [f64]) {
    taken.sort_by(f64::total_cmp);
    let (least, most, middle) = (taken[0], taken[taken.len() - 1], taken[taken.len() / 2]);
    println!("{store:<11} {what:<32} {middle:>10.0} {least:>10.0} {most:>10.0}");
}
