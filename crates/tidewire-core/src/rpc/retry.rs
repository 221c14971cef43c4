//! The retry policy of a call: tried instances, retries after a lost link, backoff and deadline.

use crate::backoff::Backoff;

/// The wait before the first attempt that finds nobody, and the longest one.
const WAIT_US: (u64, u64) = (20_000, 500_000);

/// Attempts that find no capacity, of a call whose instances the hub chooses.
const OVERLOADS_MAX: u32 = 16;

/// The attempts of one call at instances `I`. Times are microseconds on one clock.
///
/// A call that an instance refuses goes to another instance at once. So does a call whose link was
/// lost, if it may be repeated. After a lost link, the instances may be about to return: if none is
/// left to try, the call waits for them. A call that finds no capacity at its own hub may go to
/// another hub.
///
/// ```
/// use tidewire_core::rpc::retry::Retry;
///
/// let mut retry = Retry::new(Some(1_000_000), 1, 7);
/// retry.refused("a");
/// assert_eq!(retry.tried(), ["a"]);
/// assert!(retry.nobody(0).is_none(), "nothing was lost");
/// assert!(retry.lost("b", 0), "another instance may have it at once");
/// assert!(retry.nobody(0).is_some_and(|wait_us| wait_us <= 20_000));
/// assert!(retry.tried().is_empty(), "after the wait all may have it");
/// assert!(retry.nobody(999_999).is_none(), "its time is up");
/// assert!(!retry.lost("a", 0), "once is enough");
/// ```
#[derive(Clone, Debug)]
pub struct Retry<I> {
    until_us: Option<u64>,
    retries_left: u32,
    was_lost: bool,
    overloads: u32,
    tried: Vec<I>,
    backoff: Backoff,
}

impl<I> Retry<I> {
    /// A call that ends at the latest at a time, if there is one, and is made again at most so
    /// often after losses. `seed` decides the waits.
    pub fn new(until_us: Option<u64>, retries_left: u32, seed: u64) -> Self {
        let backoff = Backoff::new(WAIT_US.0, WAIT_US.1, seed);
        Self { until_us, retries_left, was_lost: false, overloads: 0, tried: Vec::new(), backoff }
    }

    /// The instances that are not tried now.
    pub fn tried(&self) -> &[I] {
        &self.tried
    }

    /// True if its link was lost after it was sent.
    pub fn was_lost(&self) -> bool {
        self.was_lost
    }

    /// An instance has not taken it.
    pub fn refused(&mut self, at: impl Into<Option<I>>) {
        self.tried.extend(at.into());
    }

    /// An instance, or the one that the hub has chosen, has no capacity for it. Returns true if the
    /// hub may choose once more.
    pub fn overloaded(&mut self, at: impl Into<Option<I>>) -> bool {
        self.tried.extend(at.into());
        self.overloads += 1;
        self.overloads < OVERLOADS_MAX
    }

    /// True if an instance had no capacity for it.
    pub fn is_overloaded(&self) -> bool {
        self.overloads > 0
    }

    /// Records that the link was lost after the call was sent. Returns true if the call is retried,
    /// at another instance if there is one.
    pub fn lost(&mut self, at: impl Into<Option<I>>, now_us: u64) -> bool {
        let may = self.retries_left > 0 && self.until_us.is_none_or(|until_us| now_us < until_us);
        if may {
            self.retries_left -= 1;
            self.was_lost = true;
            self.backoff.reset();
            self.tried.extend(at.into());
        }
        may
    }

    /// No instance is left to try, or none can be reached: the wait before all may be tried again,
    /// if that is not possible earlier; None: it is given up.
    pub fn nobody(&mut self, now_us: u64) -> Option<u64> {
        if !self.was_lost {
            return None;
        }
        self.tried.clear();
        self.overloads = 0;
        let wait_us = self.backoff.next_delay_us();
        self.until_us.is_none_or(|until_us| now_us.saturating_add(wait_us) < until_us).then_some(wait_us)
    }
}
