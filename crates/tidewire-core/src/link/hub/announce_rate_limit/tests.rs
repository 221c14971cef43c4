//! Extreme values of the rate limit.

use super::*;

#[test]
fn no_numbers_are_too_large() {
    let mut pace = AnnounceRateLimit::default();
    pace.announced(usize::MAX, 0, u64::MAX);
    assert_eq!(pace.paused_until_us(), u64::MAX - RESTORED_US);
}
