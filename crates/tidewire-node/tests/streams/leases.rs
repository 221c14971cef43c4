//! Leases: one holder at a time, renewed while held, released on drop, lost with the storage
//! backend.

use std::time::Duration;

use tidewire_node::streams::{BucketOptions, Lease, LeaseOptions};
use tidewire_node::{ErrorCode, Node, NodeOptions};

use crate::hubs::{Away, Folder, Place};
use crate::support::in_time;

fn short() -> LeaseOptions {
    LeaseOptions::default().ttl(Duration::from_millis(300))
}

fn lost_within(lease: &Lease, wait: Duration) -> Result<(), tokio::time::error::Elapsed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(wait, lease.lost()).await })
}

#[test]
fn one_holds_it_and_the_next_has_it_when_it_is_dropped() {
    let place = Place::new();
    let ttl = Duration::from_secs(1);
    let first = in_time(place.node.lease_with("nightly", LeaseOptions::default().ttl(ttl)));
    assert!(first.is_held() && first.name() == "nightly");
    let fence = first.fence().expect("it is held");
    let within = |timeout| place.node.lease_with("nightly", LeaseOptions::default().timeout(timeout));
    for timeout in [Duration::ZERO, Duration::from_millis(1)] {
        let refused = within(timeout).wait().expect_err("it is held");
        assert!(refused.code() == ErrorCode::LeaseHeld && refused.is_retryable(), "{refused}");
    }
    let waits = place.node.lease("nightly");
    // Longer than its time: it is renewed.
    lost_within(&first, ttl * 3 / 2).expect_err("it is not lost");
    drop(first);
    let second = in_time(waits);
    let newer = second.fence().expect("it is held");
    assert!(newer > fence, "{newer} after {fence}");
    in_time(second.release());
    in_time(in_time(within(Duration::ZERO)).release());
    let third = in_time(place.node.lease("nightly"));
    assert!(third.fence().expect("it is held") > newer);
    for ttl in [Duration::ZERO, Duration::from_secs(100_000)] {
        let wrong = place.node.lease_with("x", LeaseOptions::default().ttl(ttl)).wait().expect_err("out of range");
        assert!(wrong.code() == ErrorCode::InvalidArgument && wrong.to_string().contains("ttl"), "{wrong}");
    }
}

#[test]
fn a_wait_that_is_dropped_does_not_hold_it() {
    let place = Place::new();
    let long = || LeaseOptions::default().ttl(Duration::from_secs(600)).timeout(Duration::from_secs(20));
    let first = in_time(place.node.lease_with("nightly", long()));
    drop(place.node.lease("nightly"));
    in_time(first.release());
    // The release arrives at the hub before the end of the holding stream.
    for _ in 0..50 {
        in_time(in_time(place.node.lease_with("nightly", long())).release());
    }
    // The lease is granted, and its result was never read.
    let home = in_time(place.hub.home());
    let granted = place.hub.lease_with("nightly", long());
    while home.lease_info("nightly").wait().expect("it is asked").is_none_or(|info| info.holder.is_none()) {}
    in_time(place.hub.bucket_with("later", BucketOptions::default()));
    drop(granted);
    in_time(in_time(place.node.lease_with("nightly", long())).release());
}

#[test]
fn a_holder_whose_hub_is_killed_believes_no_longer_than_its_time() {
    let folder = Folder::new();
    let (mut hub, url) = Away::rust(&folder.0, "tide://127.0.0.1:0");
    let node = Node::join(&url, NodeOptions::named("node")).wait().expect("it joins");
    let lease = in_time(node.lease_with("nightly", short()));
    hub.kill();
    lost_within(&lease, Duration::from_secs(20)).expect("it is heard of");
    assert!(!lease.is_held());
    assert_eq!(lease.fence().expect_err("it is lost").code(), ErrorCode::LeaseLost);
    let told = lease.release().wait().expect_err("it is not given back");
    assert!([ErrorCode::LeaseLost, ErrorCode::HomeUnavailable].contains(&told.code()), "{told}");
}
