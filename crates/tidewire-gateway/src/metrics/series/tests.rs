//! Labels of series: escapes, and the most of them.

use super::{COMBINATIONS_MAX, Samples, Series};

#[test]
fn labels_are_escaped_and_bounded() {
    let (lag, age) = (Series("lag", "gauge", "Lag.", &["of"]), Series("age_seconds", "gauge", "Age.", &["of"]));
    let mut samples = Samples::default();
    samples.add(lag, &["a\"\\\n"], 1.0);
    for number in 0..COMBINATIONS_MAX + 2 {
        samples.add(lag, &[&format!("s{number}")], 2.0);
        samples.add(age, &[&format!("s{number}")], number as f64);
    }
    let text = samples.text();
    assert!(text.contains("lag{of=\"a\\\"\\\\\\n\"} 1\n"));
    assert!(text.contains("lag{of=\"other\"} 6\n"), "what is over the limit is added up");
    assert!(text.contains("age_seconds{of=\"other\"} 1001\n"), "the longest stays");
    assert_eq!(text.lines().count(), 4 + 2 * (COMBINATIONS_MAX + 1));
}
