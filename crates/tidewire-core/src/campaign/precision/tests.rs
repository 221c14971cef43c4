//! Quantiles and intervals beside tables.

use super::*;

#[test]
fn quantiles_are_those_of_the_tables() {
    for (p, z) in
        [(0.5, 0.0), (0.9, 1.281_551_566), (0.975, 1.959_963_985), (0.995, 2.575_829_304), (0.9999, 3.719_016_485)]
    {
        assert!((normal(p) - z).abs() < 1e-7, "{p}: {}", normal(p));
    }
    for (p, freedom, t) in [(0.975, 29.0, 2.045_23), (0.995, 99.0, 2.626_41), (0.9995, 60.0, 3.460_2)] {
        assert!((student(p, freedom) - t).abs() < 2e-4, "{p}, {freedom}: {}", student(p, freedom));
    }
}

// Promises: P15.55.
#[test]
fn looks_come_at_a_quarter_more_runs_in_whole_rounds() {
    let mut checkpoints = Checkpoints::new(PrecisionTarget { half_width: 1e-9, confidence: 0.95 }, 3);
    let mut seen = Vec::new();
    for _ in 0..4 {
        let runs = checkpoints.next();
        seen.push(runs);
        checkpoints.looked(checkpoints.judge(runs, &Moments::new(3)));
    }
    assert_eq!(seen, [300, 375, 471, 591]);
}

// Promises: P15.57.
#[test]
fn the_set_that_is_known_least_well_decides() {
    let checkpoints = Checkpoints::new(PrecisionTarget { half_width: 0.5, confidence: 0.95 }, 2);
    let mut moments = Moments::new(2);
    for run in 0..200 {
        let sign = if run / 2 % 2 == 0 { 1.0 } else { -1.0 };
        moments.add(run, if run % 2 == 0 { sign * 0.1 } else { 7.0 + sign });
    }
    let verdict = checkpoints.judge(200, &moments);
    assert_eq!((verdict.set, verdict.values, verdict.reached), (1, 100, true));
    // The first look has half of alpha: 1.0 x t(0.9875; 99) / sqrt(99).
    assert!((verdict.half_width.unwrap() - 0.228_9).abs() < 1e-3, "{verdict:?}");
    assert_eq!(Moments::from_bytes(&moments.to_bytes()), Some(moments.clone()));
    moments.add(200, f64::NAN);
    let verdict = checkpoints.judge(201, &moments);
    assert_eq!((verdict.set, verdict.half_width, verdict.reached), (0, None, false));
}
