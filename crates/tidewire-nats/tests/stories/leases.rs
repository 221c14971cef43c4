//! Stories of leases: one holder at a time, growing fences, and hand-over to the next waiter.

use std::time::Instant;

use tidewire_backend::home::HomeErrorKind;

use crate::servers::{home, unique};

#[test]
fn one_holds_a_lease_whose_name_has_dots() {
    let Some(home) = home() else { return };
    let name = unique("orders.matching.");
    assert_eq!(home.lease_info(&name).wait().unwrap(), None);
    let first = home.acquire(&name, "a", 5_000_000, 0).wait().unwrap();
    let error = home.acquire(&name, "b", 5_000_000, 0).wait().unwrap_err();
    assert_eq!(error.kind(), HomeErrorKind::LeaseHeld);
    assert!(error.message().contains(": a holds it for ") && error.message().contains(" ms still"), "{error}");
    assert_eq!(home.renew(&name, first.fence).wait().unwrap(), first);
    let info = home.lease_info(&name).wait().unwrap().unwrap();
    assert_eq!((info.holder.as_deref(), info.fence), (Some("a"), first.fence));
    assert!(info.remaining_us > 4_000_000, "{info:?}");
    assert!(home.list_leases().wait().unwrap().iter().any(|info| info.name == name));
    assert!(home.release(&name, first.fence).wait().unwrap());
    assert!(!home.release(&name, first.fence).wait().unwrap());
    let second = home.acquire(&name, "b", 5_000_000, 0).wait().unwrap();
    assert!(second.fence > first.fence);
    assert_eq!(home.renew(&name, first.fence).wait().unwrap_err().kind(), HomeErrorKind::LeaseLost);
}

#[test]
fn a_lease_that_is_given_back_goes_to_who_waits_at_once() {
    let Some(home) = home() else { return };
    let other = tidewire_nats::open(&home.place().replace("NATS at ", "nats://")).unwrap();
    let name = unique("handed.");
    let first = home.acquire(&name, "a", 60_000_000, 0).wait().unwrap();
    let waiting = other.acquire(&name, "b", 60_000_000, 20_000_000);
    let still = home.acquire(&name, "c", 60_000_000, 100_000).wait().unwrap_err();
    assert_eq!(still.kind(), HomeErrorKind::LeaseHeld);
    let begun = Instant::now();
    assert!(home.release(&name, first.fence).wait().unwrap());
    assert!(waiting.wait().unwrap().fence > first.fence);
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
}

// Promises: P17.37.
#[test]
fn of_many_who_want_a_lease_one_at_a_time_has_it() {
    let Some(home) = home() else { return };
    let place = home.place().replace("NATS at ", "nats://");
    let name = unique("many.");
    let threads: Vec<_> = (0..4)
        .map(|who| {
            let (name, place) = (name.clone(), place.clone());
            std::thread::spawn(move || {
                let home = tidewire_nats::open(&place).unwrap();
                let mut fences = Vec::new();
                for _ in 0..10 {
                    let grant = home.acquire(&name, &format!("thread {who}"), 10_000_000, 60_000_000).wait().unwrap();
                    let info = home.lease_info(&name).wait().unwrap().unwrap();
                    assert_eq!((info.fence, info.holder), (grant.fence, Some(format!("thread {who}"))), "two hold it");
                    fences.push(grant.fence);
                    assert!(home.release(&name, grant.fence).wait().unwrap());
                }
                fences
            })
        })
        .collect();
    let mut fences: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    fences.sort_unstable();
    fences.dedup();
    assert_eq!(fences.len(), 40, "each grant has a fence of its own");
}

#[test]
fn an_invalid_lease_is_refused() {
    let Some(home) = home() else { return };
    for (name, ttl_us, field) in [("a b", 1_000_000, "lease: "), ("a$", 1_000_000, "lease: "), ("a", 1, "ttl: ")] {
        let error = home.acquire(name, "x", ttl_us, 0).wait().unwrap_err();
        assert!(error.kind() == HomeErrorKind::Invalid && error.message().contains(field), "{name} {error}");
    }
}
