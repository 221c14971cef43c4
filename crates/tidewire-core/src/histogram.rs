//! Histograms of times, stored in a few hundred bytes with a bounded relative error.

use std::iter;

/// Bits of a value that are stored below its highest one.
const PRECISION: u32 = 4;
/// Buckets for each doubling of the value.
const STEPS: usize = 1 << PRECISION;

/// Counts of values (nanoseconds, or any other unit) in buckets whose width is at most 1/16 of what
/// they hold.
///
/// Values below 32 are stored exactly. A larger value is reported at most 1/16 too high. An empty
/// histogram has no storage; it grows to cover the values that come, 8 bytes for a bucket and 16
/// buckets for each doubling, at most 976 buckets in all.
///
/// ```
/// use tidewire_core::histogram::Histogram;
///
/// let mut times = Histogram::new();
/// for nanos in 1..=1_000 {
///     times.record(nanos);
/// }
/// assert_eq!((times.count(), times.max()), (1_000, 1_000));
/// let p99 = times.percentile(99.0);
/// assert!((990..=990 + 990 / 16).contains(&p99));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// The bucket that `counts[0]` is for.
    first: usize,
    counts: Vec<u64>,
    count: u64,
    max: u64,
}

impl Histogram {
    /// A histogram without values.
    pub const fn new() -> Self {
        Self { first: 0, counts: Vec::new(), count: 0, max: 0 }
    }

    /// Counts one value.
    pub fn record(&mut self, value: u64) {
        let bucket = bucket_of(value);
        self.cover(bucket, bucket);
        self.counts[bucket - self.first] += 1;
        self.count += 1;
        self.max = self.max.max(value);
    }

    /// Counts all values of another histogram, as if each had been recorded here.
    ///
    /// ```
    /// use tidewire_core::histogram::Histogram;
    ///
    /// let (mut all, mut some) = (Histogram::new(), Histogram::new());
    /// all.record(3);
    /// some.record(8);
    /// all.merge(&some);
    /// assert_eq!((all.count(), all.max()), (2, 8));
    /// ```
    pub fn merge(&mut self, other: &Self) {
        if other.counts.is_empty() {
            return;
        }
        self.cover(other.first, other.first + other.counts.len() - 1);
        let ours = &mut self.counts[other.first - self.first..];
        for (ours, theirs) in ours.iter_mut().zip(&other.counts) {
            *ours += theirs;
        }
        self.count += other.count;
        self.max = self.max.max(other.max);
    }

    /// The value that `percent` of the values do not exceed, rounded up to the end of its bucket
    /// but not above the largest; 0 without values. Percents outside of 0 to 100 count as the
    /// nearer end, and one that is no number as 0.
    ///
    /// Percent 0 means the smallest value, 50 the median, 100 the largest.
    pub fn percentile(&self, percent: f64) -> u64 {
        let rank = self.rank(percent);
        let mut cumulative = 0;
        for (index, count) in self.counts.iter().enumerate() {
            cumulative += count;
            if cumulative >= rank {
                return last_of(self.first + index).min(self.max);
            }
        }
        self.max
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The largest value, exactly; 0 without values.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Which of the sorted values, from 1, a percentile names.
    fn rank(&self, percent: f64) -> u64 {
        let rank = (percent.clamp(0.0, 100.0) / 100.0 * self.count as f64).ceil() as u64;
        // With no values the rank is 1 and nothing reaches it.
        rank.min(self.count).max(1)
    }

    /// Grows the storage so that it holds these buckets and those in between.
    fn cover(&mut self, low: usize, high: usize) {
        if self.counts.is_empty() {
            self.first = low;
        } else if low < self.first {
            let missing = self.first - low;
            self.counts.splice(0..0, iter::repeat_n(0, missing));
            self.first = low;
        }
        let buckets = high - self.first + 1;
        if buckets > self.counts.len() {
            // Exactly as many as needed: there are few growths, and many histograms.
            self.counts.reserve_exact(buckets - self.counts.len());
            self.counts.resize(buckets, 0);
        }
    }
}

/// The bucket of a value: its highest bits, after the number of those that are left out.
fn bucket_of(value: u64) -> usize {
    let shift = (63 - (value | 1).leading_zeros()).saturating_sub(PRECISION);
    shift as usize * STEPS + (value >> shift) as usize
}

/// The largest value of a bucket.
fn last_of(bucket: usize) -> u64 {
    let shift = (bucket / STEPS).saturating_sub(1);
    let high_bits = (bucket - shift * STEPS) as u64;
    (high_bits << shift) | ((1 << shift) - 1)
}

/// Ends of the buckets of [`Durations`], in milliseconds: those of OpenTelemetry's conventions.
pub const DURATION_ENDS_MS: [u64; 14] = [5, 10, 25, 50, 75, 100, 250, 500, 750, 1_000, 2_500, 5_000, 7_500, 10_000];

/// Counts of durations in fixed buckets, the last one without an end, and their sum.
///
/// ```
/// use tidewire_core::histogram::Durations;
///
/// let mut times = Durations::default();
/// [5_000, 5_001, 20_000_000].map(|us| times.record(us));
/// assert_eq!((times.buckets[0], times.buckets[1], times.buckets[14], times.sum_us), (1, 1, 1, 20_010_001));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// How many durations are in each bucket.
    pub buckets: [u64; DURATION_ENDS_MS.len() + 1],
    /// Sum of all durations, in microseconds.
    pub sum_us: u64,
}

impl Durations {
    /// Counts one duration in microseconds.
    pub fn record(&mut self, us: u64) {
        self.buckets[DURATION_ENDS_MS.partition_point(|end| us > end * 1_000)] += 1;
        self.sum_us = self.sum_us.saturating_add(us);
    }

    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gap() {
        let mut next = 0_u128;
        for bucket in 0..=bucket_of(u64::MAX) {
            let last = last_of(bucket);
            assert_eq!(bucket_of(next as u64), bucket, "value {next}");
            assert_eq!(bucket_of(last), bucket, "value {last}");
            assert!(u128::from(last) - next <= next / 16, "bucket {bucket} is too wide");
            next = u128::from(last) + 1;
        }
        assert_eq!(next, 1 << 64);
        assert_eq!(bucket_of(u64::MAX) + 1, 976);
    }

    #[test]
    fn storage_covers_what_was_recorded_and_no_more() {
        let mut histogram = Histogram::new();
        for value in [2_000_000, 1_000, 1_500, 1_000_000] {
            histogram.record(value);
        }
        assert_eq!(histogram.counts.len(), bucket_of(2_000_000) - bucket_of(1_000) + 1);
        assert!(histogram.counts.len() < 12 * STEPS);
    }
}
