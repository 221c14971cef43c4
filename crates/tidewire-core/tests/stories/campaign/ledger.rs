//! The ledger of a campaign: sizes of ranges, assignment to workers, and runs that kill their
//! workers.

use tidewire_core::campaign::lease::{Claim, Lease};
use tidewire_core::campaign::ledger::{Clock, Completion, Ledger, Terms};
use tidewire_core::campaign::state::State;

const S: u64 = 1_000_000;

fn at(us: u64) -> Clock {
    Clock { epoch: 0, us }
}

fn running(terms: Terms) -> Ledger {
    let mut ledger = Ledger::new(terms);
    ledger.transition(at(0), State::Running, "").unwrap();
    ledger
}

fn lease(claim: Claim) -> Lease {
    match claim {
        Claim::Lease(lease) => lease,
        other => panic!("no lease: {other:?}"),
    }
}

fn whole(lease: &Lease, run_us: u64) -> Completion {
    let count = lease.count;
    Completion {
        count,
        run_us: u64::from(count) * run_us,
        rows: u64::from(count),
        overhead_us: 3_000,
        ..Completion::default()
    }
}

#[test]
fn a_gap_after_the_last_lease_is_no_work() {
    let mut ledger = running(Terms { runs: 2, ..Terms::default() });
    lease(ledger.claim(at(0), 1, &[]));
    // The worker and its program were killed at once, and the campaign goes on an hour later.
    let other = lease(ledger.claim(at(3_600 * S), 2, &[]));
    assert_eq!(ledger.timeline().0, 5 * S, "the lease");
    ledger.complete(at(3_602 * S), &other, &whole(&other, 20)).unwrap();
    assert_eq!(ledger.timeline().0, 7 * S);
}

/// Runs a campaign on one worker at a time, one of whose runs kills it. Returns how many workers it
/// took.
fn with_a_killer(runs: u64, killer: u64, known: bool) -> (Ledger, u32) {
    let mut ledger = running(Terms { runs, ..Terms::default() });
    let (mut worker, mut now) = (1, 0);
    while !ledger.state().ended() {
        now += S;
        match ledger.claim(at(now), worker, &[]) {
            Claim::Lease(lease) if (lease.first..lease.end()).contains(&killer) => {
                ledger.worker_lost(at(now), worker, known.then_some(killer), false);
                worker += 1;
            }
            Claim::Lease(lease) => drop(ledger.complete(at(now), &lease, &whole(&lease, 20)).unwrap()),
            Claim::Wait { .. } => (),
            Claim::Ended(_) => break,
        }
    }
    (ledger, worker as u32 - 1)
}

// Promises: P15.13.
#[test]
fn a_campaign_whose_runs_all_kill_ends_by_its_limit_after_twice_as_many_workers() {
    for known in [true, false] {
        let mut ledger = running(Terms { runs: 1_000, failed_max: Some(2), columns: true, ..Terms::default() });
        let mut deaths = 0;
        while let Claim::Lease(lease) = ledger.claim(at(deaths * S), deaths, &[]) {
            assert_eq!(lease.count, 1);
            ledger.worker_lost(at(deaths * S), deaths, known.then_some(lease.first), false);
            deaths += 1;
        }
        assert_eq!((ledger.state(), ledger.stored().quarantined, deaths), (State::Failed, 3, 6), "{known}");
    }
}

// Promises: P15.34.
#[test]
fn without_news_of_it_halves_find_the_run_that_kills() {
    for killer in [0, 1, 40_000, 99_999] {
        let (mut ledger, deaths) = with_a_killer(100_000, killer, false);
        let stored = ledger.stored();
        assert_eq!((ledger.state(), stored.done, stored.quarantined), (State::Done, 99_999, 1), "{killer}");
        assert!(deaths <= 17, "{killer}: {deaths} workers");
        assert_eq!(ledger.take_losses().iter().map(|lost| lost.run).collect::<Vec<_>>(), [killer]);
    }
}

#[test]
fn ranges_are_shorter_while_workers_die_often_and_long_again_afterwards() {
    let mut ledger = running(Terms { runs: 100_000_000, ..Terms::default() });
    let mut now = 0;
    let mut go = |ledger: &mut Ledger, dies: bool| {
        let lease = lease(ledger.claim(at(now), 1, &[]));
        let took = u64::from(lease.count) * 20;
        now += took.min(300_000);
        if dies {
            ledger.worker_lost(at(now), 1, Some(lease.first), false);
        } else {
            ledger.complete(at(now), &lease, &whole(&lease, 20)).unwrap();
        }
        took
    };
    let mut usual = 0;
    for _ in 0..10 {
        usual = go(&mut ledger, false);
    }
    assert_eq!(usual, 200_000);
    // A death every 300 ms: sqrt(2 x 3 ms x 300 ms) is 42 ms.
    let mut since = 0;
    for _ in 0..100 {
        let dies = since > 300_000;
        since = if dies { 0 } else { since };
        usual = go(&mut ledger, dies);
        since += usual;
    }
    assert!((35_000..55_000).contains(&go(&mut ledger, false)), "{usual}");
    for _ in 0..400 {
        usual = go(&mut ledger, false);
    }
    assert_eq!(usual, 200_000);
}

// Promises: P15.41.
#[test]
fn a_clock_that_is_set_back_makes_no_lease_longer_and_a_new_boot_ends_them_all() {
    let mut ledger = running(Terms { runs: 1, ..Terms::default() });
    let hour = 3_600 * S;
    let _dead = lease(ledger.claim(at(2 * hour), 1, &[]));
    assert!(matches!(ledger.claim(at(hour), 2, &[]), Claim::Wait { hint_us, .. } if hint_us == 5 * S));
    let _dead = lease(ledger.claim(at(hour + 5 * S), 2, &[]));
    let anew = lease(ledger.claim(Clock { epoch: 9, us: 3 }, 3, &[]));
    assert_eq!((anew.first, anew.attempt), (0, 2));
}

// Promises: P15.44.
#[test]
fn a_trillion_runs_cost_what_a_hundred_thousand_do() {
    let size = |runs: u64| {
        let mut ledger = running(Terms { runs, ..Terms::default() });
        for _ in 0..20 {
            let lease = lease(ledger.claim(at(0), 1, &[]));
            ledger.complete(at(0), &lease, &whole(&lease, 2_000)).unwrap();
        }
        serde_json::to_string(&ledger).unwrap().len()
    };
    let (few, many) = (size(100_000), size(1 << 40));
    assert!(many < few + 40, "{few} bytes, {many} bytes");
}
