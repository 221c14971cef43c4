//! The watchdog: handlers that do not begin.

use proptest::prelude::*;
use tidewire_core::rpc::watchdog::{Blocked, Watchdog};

proptest! {
    /// It says for how long the first has waited of those that are ready, if none has begun since.
    #[test]
    fn it_counts_from_the_first_that_is_ready(steps in proptest::collection::vec((0_u8..3, 0_u64..200_000), 0..60)) {
        let watchdog = Watchdog::default();
        let (mut now_us, mut since_us, mut is_told) = (0, None::<u64>, false);
        for (step, after_us) in steps {
            now_us += after_us;
            match step {
                0 => {
                    prop_assert_eq!(watchdog.ready(now_us), since_us.is_none());
                    since_us.get_or_insert(now_us);
                }
                1 => {
                    watchdog.begun();
                    (since_us, is_told) = (None, false);
                }
                _ => {
                    let waited_us = since_us.map(|since_us| now_us - since_us).filter(|waited_us| *waited_us >= 100_000);
                    let blocked = waited_us.map(|waited_us| Blocked { ms: (waited_us / 1_000) as u32, is_new: !is_told });
                    prop_assert_eq!(watchdog.blocked(now_us), blocked);
                    is_told |= blocked.is_some();
                }
            }
        }
    }
}
