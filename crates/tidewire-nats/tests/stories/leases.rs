//! Stories of leases: one holder at a time, and invalid leases.

use tidewire_backend::home::HomeErrorKind;

use crate::servers::{home, unique};

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
