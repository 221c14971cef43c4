//! Conformance cases of leases.

use tidewire_backend::home::{Home, HomeErrorKind};

use super::{SECOND_US, good, refused};

// Promises: P17.37.
pub fn one_holds_it_and_the_next_gets_it(home: &dyn Home) {
    let first = good(home.acquire("orders.matching", "one", 30 * SECOND_US, 0));
    let text = refused(home.acquire("orders.matching", "two", 30 * SECOND_US, 0), HomeErrorKind::LeaseHeld);
    assert!(text.contains("orders.matching"), "{text}");
    assert_eq!(good(home.renew("orders.matching", first.fence)).fence, first.fence);
    let waits = home.acquire("orders.matching", "three", 30 * SECOND_US, 15 * SECOND_US);
    let info = good(home.lease_info("orders.matching")).expect("it is held");
    assert_eq!((info.holder.as_deref(), info.fence), (Some("one"), first.fence));
    assert!(info.remaining_us <= 30 * SECOND_US, "{info:?}");
    assert!(good(home.list_leases()).iter().any(|info| info.name == "orders.matching"));
    assert!(good(home.release("orders.matching", first.fence)));
    let third = good(waits);
    assert!(third.fence > first.fence);
    assert!(!good(home.release("orders.matching", first.fence)), "it is another's");
    refused(home.renew("orders.matching", first.fence), HomeErrorKind::LeaseLost);
    assert!(good(home.release("orders.matching", third.fence)));
    assert_eq!(good(home.lease_info("never")), None);
}

pub fn a_lease_that_is_not_renewed_is_lost(home: &dyn Home) {
    let first = good(home.acquire("a.b", "one", SECOND_US, 0));
    let second = good(home.acquire("a.b", "two", 30 * SECOND_US, 15 * SECOND_US));
    assert!(second.fence > first.fence);
    refused(home.renew("a.b", first.fence), HomeErrorKind::LeaseLost);
}

// Promises: P17.38.
pub fn fences_only_grow(home: &dyn Home) {
    let mut last = 0;
    for _ in 0..10 {
        let grant = good(home.acquire("a", "one", 30 * SECOND_US, 5 * SECOND_US));
        assert!(grant.fence > last);
        last = grant.fence;
        assert!(good(home.release("a", last)));
    }
}
