//! Stories of a durable subscription.

use super::{Delivery, Options, Outcome, Subscription, Verdict};

const OPTIONS: Options = Options { concurrency: 2, batch_max: 100, ack_wait_us: 30_000_000 };

fn some(range: std::ops::Range<u64>) -> Vec<Delivery> {
    range.map(|sequence| (sequence, 1)).collect()
}

#[test]
fn batches_grow_while_they_are_handled_quickly_and_shrink_when_not() {
    let mut subscription = Subscription::new(OPTIONS);
    let (mut now_us, mut next, mut credits) = (0, 1, Vec::new());
    for pause_us in [10, 10, 10, 10, 1_000_000, 1_000_000, 1_000_000] {
        let credit = subscription.credit(now_us);
        credits.push(credit);
        assert_eq!(subscription.credit(now_us), 0, "one fetch at a time");
        assert!(subscription.fetched(&some(next..next + u64::from(credit)), now_us).is_empty());
        next += u64::from(credit);
        while let Some(delivery) = subscription.begin() {
            assert_eq!(subscription.ended(delivery, Outcome::Returned), Verdict::Ack);
        }
        now_us += pause_us;
    }
    assert_eq!(credits, [4, 16, 64, 100, 100, 25, 6]);
}

#[test]
fn waiting_deliveries_are_extended_and_begun_ones_are_not() {
    let mut subscription = Subscription::new(Options { concurrency: 1, ..OPTIONS });
    subscription.credit(0);
    subscription.fetched(&some(1..3), 0);
    subscription.begin();
    assert_eq!(subscription.next_deadline_us(), Some(10_000_000));
    assert!(subscription.extend(9_999_999).is_empty());
    assert_eq!(subscription.extend(10_000_000), [(2, 1)]);
    assert_eq!(subscription.next_deadline_us(), Some(20_000_000));
}

#[test]
fn an_event_that_comes_again_while_its_handler_runs_is_another_delivery() {
    let mut subscription = Subscription::new(OPTIONS);
    subscription.credit(0);
    subscription.fetched(&[(1, 1)], 0);
    assert_eq!(subscription.begin(), Some((1, 1)));
    subscription.credit(40_000_000);
    subscription.fetched(&[(1, 2)], 40_000_000);
    assert_eq!(subscription.ended((1, 1), Outcome::Returned), Verdict::Ack);
    assert_eq!(subscription.extend(50_000_000), [(1, 2)], "the end of the first does not end the second");
    assert_eq!(subscription.begin(), Some((1, 2)));
    assert_eq!(subscription.ended((1, 2), Outcome::Returned), Verdict::Ack);
    assert_eq!(subscription.counts(), (0, 0));
}
