//! The retry policy of a call: how often it is made again after its link was lost, after which waits, and until when.

use crate::backoff::Backoff;

/// The wait before the first attempt that finds nobody, and the longest one.
const WAIT_US: (u64, u64) = (20_000, 500_000);

/// The attempts of one call. Times are microseconds on one clock.
///
/// A call that nobody has taken is made again only if its link was lost before: then its instances may still be on their way back.
///
/// ```
/// use tidewire_core::rpc::retry::Retry;
///
/// let mut retry = Retry::new(Some(1_000_000), 1, 7);
/// assert!(retry.while_nobody(0).is_none(), "nothing was lost");
/// assert!(retry.after_loss(0).is_some_and(|wait_us| wait_us <= 20_000));
/// assert!(retry.while_nobody(100_000).is_some());
/// assert!(retry.while_nobody(999_999).is_none(), "its time is up");
/// assert!(retry.after_loss(0).is_none(), "once is enough");
/// ```
#[derive(Clone, Debug)]
pub struct Retry {
    until_us: Option<u64>,
    left: u32,
    was_lost: bool,
    backoff: Backoff,
}

impl Retry {
    /// A call that ends at the latest at a time, if there is one, and is made again at most so often. `seed` decides the waits.
    pub fn new(until_us: Option<u64>, left: u32, seed: u64) -> Self {
        Self { until_us, left, was_lost: false, backoff: Backoff::new(WAIT_US.0, WAIT_US.1, seed) }
    }

    /// It was sent, and its link was lost: the wait before it is made again, if that is not possible earlier; None: it is not.
    pub fn after_loss(&mut self, now_us: u64) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        self.was_lost = true;
        self.backoff.reset();
        self.next(now_us)
    }

    /// It could not be sent, or nobody has taken it: the wait before the next attempt, if that is not possible earlier; None: it is given up.
    pub fn while_nobody(&mut self, now_us: u64) -> Option<u64> {
        if self.was_lost { self.next(now_us) } else { None }
    }

    fn next(&mut self, now_us: u64) -> Option<u64> {
        let wait_us = self.backoff.next_delay_us();
        self.until_us.is_none_or(|until_us| now_us.saturating_add(wait_us) < until_us).then_some(wait_us)
    }
}
