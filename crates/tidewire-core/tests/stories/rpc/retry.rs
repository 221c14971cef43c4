//! Retries of calls: at another instance, or again after a lost link.

use proptest::prelude::*;
use tidewire_core::rpc::retry::Retry;

#[test]
fn waits_for_somebody_grow_and_begin_anew_after_a_loss() {
    let mut retry = Retry::new(None, 2, 5);
    assert!(retry.lost(0, 0));
    let waits_us: Vec<_> = (0..10).map_while(|_| retry.nobody(0)).collect();
    for (wait_us, full_us) in waits_us.iter().zip([20_000, 40_000, 80_000, 160_000, 320_000, 500_000, 500_000]) {
        assert!((full_us / 2..=full_us).contains(wait_us), "{waits_us:?}");
    }
    assert_eq!(waits_us.len(), 10, "no number of them is too many");
    assert!(retry.lost(0, 0));
    assert!(retry.nobody(0).is_some_and(|wait_us| wait_us <= 20_000));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Refused,
    Lost,
    Nobody,
}

proptest! {
    /// However losses and refusals follow each other: never more attempts than allowed, none that
    /// begins after the end, and none at an instance that was tried since the last wait.
    #[test]
    fn attempts_end(
        until_us in proptest::option::of(0_u64..5_000_000),
        left in 0_u32..6,
        seed in any::<u64>(),
        steps in proptest::collection::vec(prop_oneof![Just(Step::Refused), Just(Step::Lost), Just(Step::Nobody)], 0..60),
    ) {
        let mut retry = Retry::new(until_us, left, seed);
        let (mut now_us, mut losses, mut since_wait) = (0, 0, Vec::new());
        for (at, step) in steps.into_iter().enumerate() {
            match step {
                Step::Refused => {
                    retry.refused(at);
                    since_wait.push(at);
                }
                Step::Lost => {
                    if !retry.lost(at, now_us) {
                        prop_assert!(losses == left || until_us.is_some_and(|until_us| now_us >= until_us));
                        break;
                    }
                    losses += 1;
                    since_wait.push(at);
                }
                Step::Nobody => {
                    let Some(wait_us) = retry.nobody(now_us) else {
                        prop_assert!(losses == 0 || until_us.is_some_and(|until_us| now_us + 500_000 >= until_us));
                        break;
                    };
                    prop_assert!(losses > 0 && wait_us <= 500_000);
                    now_us += wait_us;
                    prop_assert!(until_us.is_none_or(|until_us| now_us < until_us));
                    since_wait.clear();
                }
            }
            prop_assert_eq!(retry.tried(), &since_wait[..]);
        }
        prop_assert!(losses <= left);
    }
}
