//! Delays and restart windows against their definitions.

use proptest::prelude::*;
use tidewire_core::backoff::Backoff;
use tidewire_core::restart::RestartWindow;

fn delays(initial_us: u64, max_us: u64, seed: u64) -> Vec<u64> {
    let mut backoff = Backoff::new(initial_us, max_us, seed);
    (0..20).map(|_| backoff.next_delay_us()).collect()
}

#[test]
fn a_seed_decides_all_delays() {
    assert_eq!(delays(1_000, 1_000_000, 7), delays(1_000, 1_000_000, 7));
    assert_ne!(delays(1_000, 1_000_000, 7), delays(1_000, 1_000_000, 8));
}

#[test]
fn neighbouring_seeds_spread_over_the_half() {
    let first: Vec<u64> = (0..1_000).map(|seed| Backoff::new(1_000_000, 1_000_000, seed).next_delay_us()).collect();
    for tenth in 0..10 {
        let low = 500_000 + tenth * 50_000;
        let inside = first.iter().filter(|&&delay| (low..low + 50_000).contains(&delay)).count();
        assert!((60..=140).contains(&inside), "{inside} of 1,000 in the tenth from {low}");
    }
}

#[test]
fn a_reset_begins_anew() {
    let mut backoff = Backoff::new(10, 1_000, 1);
    (0..10).for_each(|_| drop(backoff.next_delay_us().to_string()));
    assert_eq!(backoff.attempts(), 10);
    backoff.reset();
    assert_eq!(backoff.attempts(), 0);
    assert!(backoff.next_delay_us() <= 10);
}

#[test]
fn the_ends_of_the_range_hold() {
    assert_eq!(delays(0, 0, 3), [0; 20]);
    assert_eq!(delays(0, 100, 3), [0; 20]);
    assert!(delays(u64::MAX, u64::MAX, 3).iter().all(|&delay| delay >= u64::MAX / 2));
}

#[test]
fn a_reset_window_allows_all_again() {
    let mut window = RestartWindow::new(1, 1_000);
    assert!(window.allow(0) && !window.allow(1));
    window.reset();
    assert!(window.allow(2));
}

proptest! {
    #[test]
    fn delays_lie_in_the_upper_half_of_a_doubling_span(
        initial in 0_u64..1 << 40, max in 0_u64..1 << 41, seed: u64,
    ) {
        let mut full = initial.min(max);
        for delay in delays(initial, max, seed) {
            prop_assert!(delay <= full && delay >= full / 2, "{} of {}", delay, full);
            full = (full * 2).min(max);
        }
    }

    #[test]
    fn a_window_never_holds_more_than_it_allows(
        most in 0_u32..5, window in 0_u64..50, steps in prop::collection::vec(0_u64..30, 0..100),
    ) {
        let mut limiter = RestartWindow::new(most, window);
        let (mut now, mut allowed) = (0, Vec::<u64>::new());
        for step in steps {
            now += step;
            let recent = allowed.iter().filter(|&&at| now - at < window).count();
            prop_assert_eq!(limiter.count(now), recent);
            prop_assert_eq!(limiter.allow(now), recent < most as usize);
            if recent < most as usize {
                allowed.push(now);
            }
        }
    }
}
