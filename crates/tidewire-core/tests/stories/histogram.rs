//! Histograms against the sorted values that they stand for.

use proptest::prelude::*;
use tidewire_core::histogram::Histogram;

fn histogram(values: &[u64]) -> Histogram {
    let mut histogram = Histogram::new();
    values.iter().for_each(|&value| histogram.record(value));
    histogram
}

#[test]
fn an_empty_histogram_answers_zero() {
    let empty = Histogram::new();
    assert_eq!((empty.count(), empty.max()), (0, 0));
    assert_eq!(empty.percentile(50.0), 0);
}

/// Values of every size.
fn values() -> impl Strategy<Value = Vec<u64>> {
    let value = (0_u32..64, any::<u64>()).prop_map(|(bits, noise)| noise >> bits);
    prop::collection::vec(value, 1..200)
}

proptest! {
    // Promises: P10.2.
    #[test]
    fn percentiles_are_at_most_a_sixteenth_above(mut values in values(), percent in 0.0_f64..=100.0) {
        let told = histogram(&values).percentile(percent);
        values.sort_unstable();
        let rank = (percent / 100.0 * values.len() as f64).ceil() as usize;
        let true_value = values[rank.max(1) - 1];
        prop_assert!(told >= true_value && told - true_value <= true_value / 16, "{} for {}", told, true_value);
    }

    #[test]
    fn merging_is_recording_together(one in values(), other in values()) {
        let mut merged = histogram(&one);
        merged.merge(&histogram(&other));
        merged.merge(&Histogram::new());
        prop_assert_eq!(&merged, &histogram(&[one.clone(), other.clone()].concat()));
        let mut from_empty = Histogram::new();
        from_empty.merge(&merged);
        prop_assert_eq!(from_empty, merged);
    }

    #[test]
    fn count_and_largest_are_exact(values in values()) {
        let histogram = histogram(&values);
        prop_assert_eq!(histogram.count(), values.len() as u64);
        prop_assert_eq!(Some(histogram.max()), values.iter().copied().max());
    }
}
