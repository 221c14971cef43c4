//! Calls that are made again after their link was lost.

use proptest::prelude::*;
use tidewire_core::rpc::retry::Retry;

#[test]
fn a_call_is_made_again_so_often_and_not_beyond_its_end() {
    let mut retry = Retry::new(Some(10_000_000), 3, 1);
    assert!((0..3).all(|_| retry.after_loss(0).is_some_and(|wait_us| (10_000..=20_000).contains(&wait_us))));
    assert_eq!(retry.after_loss(0), None);
    assert_eq!(Retry::new(Some(10_000_000), 3, 1).after_loss(9_999_000), None);
    assert_eq!(Retry::new(None, 0, 1).after_loss(0), None);
}

#[test]
fn waits_for_somebody_grow_and_begin_anew_after_a_loss() {
    let mut retry = Retry::new(None, 2, 5);
    assert!(retry.after_loss(0).is_some());
    let waits_us: Vec<_> = (0..10).map_while(|_| retry.while_nobody(0)).collect();
    for (wait_us, full_us) in waits_us.iter().zip([40_000, 80_000, 160_000, 320_000, 500_000, 500_000]) {
        assert!((full_us / 2..=full_us).contains(wait_us), "{waits_us:?}");
    }
    assert_eq!(waits_us.len(), 10, "no number of them is too many");
    assert!(retry.after_loss(0).is_some_and(|wait_us| wait_us <= 20_000));
}

#[test]
fn a_call_that_was_never_lost_does_not_wait_for_anybody() {
    assert_eq!(Retry::new(None, 1_000, 1).while_nobody(0), None);
}

proptest! {
    /// However losses and refusals follow each other: never more attempts than allowed, and none that begins after the end.
    #[test]
    fn attempts_end(until_us in proptest::option::of(0_u64..5_000_000), left in 0_u32..6, seed in any::<u64>(), losses in proptest::collection::vec(any::<bool>(), 0..60)) {
        let mut retry = Retry::new(until_us, left, seed);
        let (mut now_us, mut made) = (0, 0);
        for is_loss in losses {
            let wait_us = if is_loss { retry.after_loss(now_us) } else { retry.while_nobody(now_us) };
            let Some(wait_us) = wait_us else { continue };
            prop_assert!(wait_us <= 500_000);
            now_us += wait_us;
            prop_assert!(until_us.is_none_or(|until_us| now_us < until_us));
            made += u32::from(is_loss);
            prop_assert!(made > 0, "nothing was lost before");
        }
        prop_assert!(made <= left);
    }
}
