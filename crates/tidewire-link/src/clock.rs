//! Monotonic clock of links: microseconds since its first use in the process.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

/// Microseconds since the first look at this clock.
pub fn now_us() -> u64 {
    start().elapsed().as_micros() as u64
}

/// The instant of a time on this clock.
pub fn instant(us: u64) -> Instant {
    // A time beyond the range of the clock becomes one day from now: the caller then looks again.
    start().checked_add(Duration::from_micros(us)).unwrap_or_else(|| Instant::now() + Duration::from_secs(86_400))
}
