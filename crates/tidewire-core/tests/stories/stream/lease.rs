//! Holders of a lease over time.

use tidewire_core::stream::lease::{Granted, Leases, Outcome};

fn fence(outcome: Option<Outcome>) -> u64 {
    match outcome {
        Some(Outcome::Granted(_, granted)) => granted.fence,
        other => panic!("not granted: {other:?}"),
    }
}

#[test]
fn one_holds_it_and_the_others_get_it_in_their_order() {
    let mut leases = Leases::default();
    let first = fence(leases.acquire("a.b", "one", (100, 0), 1, 0));
    assert_eq!(leases.acquire("a.b", "two", (100, 0), 2, 50), Some(Outcome::TimedOut(2, "a.b".to_owned())));
    assert_eq!(leases.acquire("a.b", "three", (100, 1_000), 3, 50), None);
    assert_eq!(leases.acquire("a.b", "four", (100, 20), 4, 50), None);
    assert_eq!(leases.next_deadline_us(), Some(70));
    assert_eq!(leases.tick(70), [Outcome::TimedOut(4, "a.b".to_owned())]);
    assert_eq!(leases.renew("a.b", first, 90), Some(100));
    assert_eq!(leases.tick(189), []);
    let Outcome::Granted(3, granted) = leases.tick(190).remove(0) else { panic!("three waits") };
    assert!(granted.fence > first);
    assert_eq!(leases.renew("a.b", first, 191), None, "its time was over");
    assert!(!leases.release("a.b", first, 191), "it is another's");
    assert!(leases.release("a.b", granted.fence, 191));
    assert!(fence(leases.acquire("a.b", "five", (100, 0), 5, 192)) > granted.fence);
}

// Promises: P17.38, P17.39.
#[test]
fn after_a_restart_a_lease_runs_its_whole_time_again_and_fences_go_on() {
    let mut leases = Leases::default();
    leases.restore(Granted { name: "a".to_owned(), fence: 7, holder: "one".to_owned(), ttl_us: 100 }, 1_000);
    leases.restore_released("b", 9);
    assert_eq!(leases.acquire("a", "two", (100, 0), 1, 1_099), Some(Outcome::TimedOut(1, "a".to_owned())));
    assert_eq!(fence(leases.acquire("a", "two", (100, 0), 2, 1_100)), 8);
    assert_eq!(fence(leases.acquire("b", "two", (100, 0), 3, 1_000)), 10);
}
