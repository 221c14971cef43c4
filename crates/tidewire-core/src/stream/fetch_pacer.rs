//! The fetch size of a reader: how many events it fetches at once.
//!
//! The ack wait of fetched events runs while they wait for their handler. So batches grow while
//! they are handled quickly, and are of one event while they are not. Times are microseconds of any
//! clock that does not jump.

/// A batch that was handled within this time was too small.
const QUICK_US: u64 = 100_000;
const GROWTH: u32 = 4;

/// The size of the next batch.
///
/// ```
/// use tidewire_core::stream::fetch_pacer::FetchPacer;
///
/// let mut pace = FetchPacer::new(10);
/// assert_eq!((pace.next(0), pace.next(10)), (4, 10), "each was handled at once");
/// pace.fetched(10, 20);
/// assert_eq!(pace.next(1_000_000), 2, "that took a second");
/// pace.fetched(0, 1_000_000);
/// assert_eq!(pace.next(1_000_000), 4, "nothing was there: it begins anew");
/// ```
#[derive(Clone, Debug)]
pub struct FetchPacer {
    batch: u32,
    most: u32,
    fetched_us: u64,
}

impl FetchPacer {
    /// A reader that has fetched nothing yet, and fetches at most so many events at once.
    pub fn new(most: u32) -> Self {
        Self { batch: 1, most: most.max(1), fetched_us: 0 }
    }

    /// How many to fetch now.
    pub fn next(&mut self, now_us: u64) -> u32 {
        let quick = now_us.saturating_sub(self.fetched_us) < QUICK_US;
        let batch = if quick { self.batch.saturating_mul(GROWTH) } else { (self.batch / GROWTH).max(1) };
        self.batch = batch.min(self.most);
        self.batch
    }

    /// A fetch has ended with so many events.
    pub fn fetched(&mut self, count: usize, now_us: u64) {
        self.fetched_us = now_us;
        if count == 0 {
            self.batch = 1;
        }
    }
}
