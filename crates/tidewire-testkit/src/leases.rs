//! Lease cases: assignment of runs, returned runs, and the end of campaigns.

use tidewire_backend::{CampaignId, Claim, ErrorKind, Lease, Plan, Settings, State, WorkerId};

use crate::{
    Connection, EmptyStore, digest_of, join, lease, no_parameters, plan, refused, results_of, start, store_all,
    work_off,
};

/// Claims until a lease comes: others must expire first.
fn claim_later(store: &mut Connection, id: CampaignId, worker: WorkerId) -> Lease {
    loop {
        match store.claim(id, worker, &[]).unwrap() {
            Claim::Lease(lease) => return lease,
            Claim::Wait { hint_us, .. } => {
                store.wait(hint_us).unwrap();
            }
            ended => panic!("{ended:?}"),
        }
    }
}

pub fn a_campaign_from_draft_to_done(place: &EmptyStore) {
    let mut store = place.connect();
    let id = store.create(&plan("pi", 300), &no_parameters()).unwrap();
    let worker = join(&mut store, id);
    let waits = store.claim(id, worker, &[]).unwrap();
    assert!(matches!(waits, Claim::Wait { state: State::Draft, .. }), "{waits:?}");
    store.transition(id, State::Running, "started").unwrap();
    let mut first = lease(store.claim(id, worker, &[]).unwrap());
    assert_eq!((first.first, first.count, first.worker, first.attempt, first.pilot), (0, 1, worker.0, 1, false));
    let results = results_of(&first, 1, &[]);
    let standing = store.commit(id, &mut first, &results).unwrap();
    assert_eq!((standing.state, standing.left, first.first, first.count), (State::Running, 0, 1, 0));
    let mut second = lease(store.claim(id, worker, &[]).unwrap());
    assert_eq!((second.first, second.count), (1, 8));
    let part = results_of(&second, 3, &[]);
    let mut again = second;
    assert_eq!(store.commit(id, &mut second, &part).unwrap().left, 5);
    // The answer of the commit was lost.
    assert_eq!(store.commit(id, &mut again, &part).unwrap().left, 5);
    assert_eq!((second.first, second.count, &again), (4, 5, &second));
    let status = place.connect().status(id).unwrap();
    assert_eq!((status.summary.done, status.leased, status.rows, status.digest), (4, 5, 4, digest_of(4)));
    let shown = &status.workers[0];
    assert_eq!((shown.id, shown.runs, &shown.leased, shown.state.as_str()), (worker, 4, &vec![(4, 5)], "working"));
    assert!(shown.seen_us >= shown.joined_us && status.now_us >= shown.seen_us);
    store.give_back(id, &second).unwrap();
    store.leave(id, worker).unwrap();
    work_off(&mut store, id);
    let status = store.status(id).unwrap();
    assert_eq!((status.summary.state, status.summary.done, status.digest), (State::Done, 300, digest_of(300)));
    assert_eq!(
        status.workers.iter().map(|one| (one.id.0, one.state.as_str())).collect::<Vec<_>>(),
        [(2, "left"), (1, "left")]
    );
    assert_eq!(store.claim(id, worker, &[]).unwrap(), Claim::Ended(State::Done));
    let events = store.events(id).unwrap();
    let turns: Vec<_> = events.iter().map(|event| (event.from, event.to)).collect();
    assert_eq!(turns, [(State::Draft, State::Draft), (State::Draft, State::Running), (State::Running, State::Done)]);
    assert_eq!((events[0].reason.as_str(), events[1].reason.as_str()), ("created", "started"));
    assert!(events.is_sorted_by_key(|event| event.at_us), "{events:?}");
}

// Promises: P15.53.
pub fn states_follow_each_other_as_they_may(place: &EmptyStore) {
    for (number, from) in State::ALL.into_iter().enumerate() {
        let mut store = place.connect();
        for to in State::ALL {
            let runs = u64::from(from != State::Done);
            let id = store.create(&plan(&format!("{number} {to}"), runs), &no_parameters()).unwrap();
            if from != State::Draft {
                store.transition(id, State::Running, "").unwrap();
            }
            if !matches!(from, State::Draft | State::Running | State::Done) {
                store.transition(id, from, "as it was").unwrap();
            }
            let before = store.events(id).unwrap();
            let answer = store.transition(id, to, "because\0");
            let allowed = from.may_become(to) || from == to;
            if allowed {
                answer.unwrap();
            } else {
                refused(answer, ErrorKind::Transition, &format!("is {from} and can't become {to}"));
            }
            let status = place.connect().status(id).unwrap();
            assert_eq!(status.summary.state, if allowed { to } else { from });
            let added = store.events(id).unwrap().len() - before.len();
            assert_eq!(added, usize::from(allowed && from != to));
        }
    }
}

// Promises: P15.17, P15.39.
pub fn a_lease_that_expired_goes_to_another_and_its_results_are_refused(place: &EmptyStore) {
    let (mut store, mut other) = (place.connect(), place.connect());
    let settings = Settings { lease_us: 50_000, ..Settings::default() };
    let id = start(&mut store, &Plan { settings, ..plan("pi", 1) });
    let (slow, quick) = (join(&mut store, id), join(&mut other, id));
    let mut stale = lease(store.claim(id, slow, &[]).unwrap());
    assert_eq!(stale.valid_us, 50_000);
    let mut taken = claim_later(&mut other, id, quick);
    assert_eq!((taken.first, taken.count), (0, 1));
    let results = results_of(&stale, 1, &[]);
    refused(store.commit(id, &mut stale, &results), ErrorKind::Stale, "forget its results");
    refused(store.renew(id, &stale), ErrorKind::Stale, "was taken away");
    store.give_back(id, &stale).unwrap();
    assert_eq!((stale.first, stale.count), (0, 1), "a lease that is refused stays as it is");
    assert_eq!(other.status(id).unwrap().rows, 0);
    assert_eq!(other.renew(id, &taken).unwrap().left, 1);
    let results = results_of(&taken, 1, &[]);
    other.commit(id, &mut taken, &results).unwrap();
    let mut again = Lease { first: 0, count: 1, ..taken };
    refused(other.commit(id, &mut again, &results), ErrorKind::Stale, "lease");
    let status = store.status(id).unwrap();
    assert_eq!((status.summary.state, status.rows, status.losses, status.digest), (State::Done, 1, 1, digest_of(1)));
}

// Promises: P15.32.
pub fn a_claim_gives_back_what_its_worker_never_learned_of(place: &EmptyStore) {
    let mut store = place.connect();
    let id = start(&mut store, &plan("pi", 50));
    let worker = join(&mut store, id);
    let lost = lease(store.claim(id, worker, &[]).unwrap());
    let again = lease(store.claim(id, worker, &[]).unwrap());
    assert_eq!((again.first, again.count), (lost.first, lost.count), "the answer was lost, and the runs are not");
    store_all(&mut store, id, again);
    let first = lease(store.claim(id, worker, &[]).unwrap());
    let second = lease(store.claim(id, worker, &[first]).unwrap());
    assert_eq!(second.first, first.end());
    store_all(&mut store, id, second);
    store_all(&mut store, id, first);
    refused(store.claim(id, WorkerId(9), &[]), ErrorKind::Invalid, "no worker 9: join it first");
    work_off(&mut store, id);
    assert_eq!(store.status(id).unwrap().digest, digest_of(50));
}

// Promises: P15.49, P15.51.
pub fn paused_takes_what_is_out_and_cancelled_does_not(place: &EmptyStore) {
    let mut store = place.connect();
    let id = start(&mut store, &plan("pi", 100));
    let worker = join(&mut store, id);
    let mut first = lease(store.claim(id, worker, &[]).unwrap());
    store.transition(id, State::Paused, "lunch").unwrap();
    assert_eq!(store.status(id).unwrap().reason, "lunch");
    assert_eq!(store.renew(id, &first).unwrap().state, State::Paused);
    let results = results_of(&first, 1, &[]);
    assert_eq!(store.commit(id, &mut first, &results).unwrap().state, State::Paused);
    let waits = store.claim(id, worker, &[]).unwrap();
    assert!(matches!(waits, Claim::Wait { state: State::Paused, .. }), "{waits:?}");
    store.transition(id, State::Running, "").unwrap();
    let mut second = lease(store.claim(id, worker, &[]).unwrap());
    place.connect().transition(id, State::Cancelled, "enough").unwrap();
    let results = results_of(&second, second.count, &[]);
    refused(store.commit(id, &mut second, &results), ErrorKind::Stale, "the campaign ended");
    assert_eq!(store.claim(id, worker, &[]).unwrap(), Claim::Ended(State::Cancelled));
    let status = store.status(id).unwrap();
    assert_eq!((status.summary.done, status.rows, status.leased), (1, 1, 0));
    refused(store.extend(id, 1), ErrorKind::Transition, "is cancelled");
}

// Promises: P15.50.
pub fn a_campaign_that_is_done_goes_on(place: &EmptyStore) {
    let mut store = place.connect();
    let id = start(&mut store, &plan("pi", 20));
    work_off(&mut store, id);
    let before = store.read_rows(id, 0, 100).unwrap();
    store.extend(id, 30).unwrap();
    let status = store.status(id).unwrap();
    assert_eq!((status.summary.state, status.summary.runs, status.summary.done), (State::Running, 50, 20));
    work_off(&mut store, id);
    assert_eq!(store.status(id).unwrap().digest, digest_of(50));
    let mut after = store.read_rows(id, 0, 100).unwrap();
    assert_eq!(store.campaign(id).unwrap().plan.runs, 50);
    after.truncate(20);
    assert_eq!(after, before);
    refused(store.extend(id, u64::MAX), ErrorKind::Invalid, "at most 281474976710656 runs");
}

// Promises: P15.12.
pub fn a_run_that_kills_twice_is_quarantined(place: &EmptyStore) {
    let mut store = place.connect();
    let id = start(&mut store, &plan("pi", 9));
    let calm = join(&mut store, id);
    let first = lease(store.claim(id, calm, &[]).unwrap());
    store_all(&mut store, id, first);
    let held = lease(store.claim(id, calm, &[]).unwrap());
    assert_eq!((held.first, held.count), (1, 8));
    store.worker_lost(id, calm, Some(4), false).unwrap();
    refused(store.worker_lost(id, WorkerId(5), None, false), ErrorKind::Invalid, "no worker 5");
    for _ in 0..8 {
        let worker = join(&mut store, id);
        let Claim::Lease(lease) = store.claim(id, worker, &[]).unwrap() else { break };
        if (lease.first..lease.end()).contains(&4) {
            assert_eq!((lease.first, lease.count, lease.attempt), (4, 1, 2), "a suspect is alone");
            store.worker_lost(id, worker, None, false).unwrap();
        } else {
            store_all(&mut store, id, lease);
        }
    }
    let status = store.status(id).unwrap();
    let summary = &status.summary;
    assert_eq!((summary.state, summary.done, summary.quarantined, summary.failed), (State::Done, 8, 1, 0));
    assert_eq!(status.losses, 2);
    assert_eq!(status.workers.iter().filter(|worker| worker.state == "lost").count(), 2);
    let errors = store.errors(id, 0, 10).unwrap();
    assert_eq!(errors.len(), 1);
    assert_eq!(
        (errors[0].failure.run, errors[0].failure.kind.as_str(), errors[0].failure.attempts),
        (4, "quarantined", 2)
    );
    assert_eq!(errors[0].failure.message, "the run killed its worker 2 times");
}

// Promises: P15.11.
pub fn a_run_over_its_time_fails_after_its_attempts(place: &EmptyStore) {
    let mut store = place.connect();
    let settings = Settings { attempts: 2, timeout_us: Some(1_000), ..Settings::default() };
    let id = start(&mut store, &Plan { settings, ..plan("pi", 1) });
    for attempt in 1..=2 {
        let worker = join(&mut store, id);
        assert_eq!(lease(store.claim(id, worker, &[]).unwrap()).attempt, attempt);
        store.worker_lost(id, worker, Some(0), true).unwrap();
    }
    let summary = store.status(id).unwrap().summary;
    assert_eq!((summary.state, summary.failed, summary.quarantined), (State::Done, 1, 0));
    let errors = store.errors(id, 0, 10).unwrap();
    assert_eq!((errors[0].failure.kind.as_str(), errors[0].failure.attempts, errors[0].worker.0), ("timeout", 2, 2));
}

pub fn too_many_failures_end_a_campaign(place: &EmptyStore) {
    let mut store = place.connect();
    let settings = Settings { failed_max: Some(2), ..Settings::default() };
    let id = start(&mut store, &Plan { settings, ..plan("pi", 100) });
    let worker = join(&mut store, id);
    let first = lease(store.claim(id, worker, &[]).unwrap());
    store_all(&mut store, id, first);
    let mut bad = lease(store.claim(id, worker, &[]).unwrap());
    let results = results_of(&bad, 4, &[1, 2, 4]);
    let standing = store.commit(id, &mut bad, &results).unwrap();
    assert_eq!(standing.state, State::Failed);
    let status = store.status(id).unwrap();
    assert_eq!((status.summary.done, status.summary.failed, status.rows), (2, 3, 2));
    assert!(status.reason.contains("failed_max is 2"), "{}", status.reason);
}

pub fn no_runs_are_done_at_once(place: &EmptyStore) {
    let mut store = place.connect();
    let id = start(&mut store, &plan("none", 0));
    assert_eq!(store.status(id).unwrap().summary.state, State::Done);
    assert!(store.read_rows(id, 0, 10).unwrap().is_empty());
}
