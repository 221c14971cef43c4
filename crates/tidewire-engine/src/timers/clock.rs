//! Moments as numbers, so that an atomic holds one: nanoseconds since this process first asked.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tidewire_sync::clock;

/// No moment: later than all of them.
pub(crate) const NEVER: u64 = u64::MAX;

/// More than anybody waits, and an instant that far away can be counted with.
const FOR_EVER: Duration = Duration::from_secs(86_400 * 365 * 10);

fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(clock::now)
}

/// This moment.
pub(crate) fn now() -> u64 {
    nanos(clock::since(start()))
}

/// The moment that comes after so long a time.
pub(crate) fn after(span: Duration) -> u64 {
    match nanos(span) {
        NEVER => NEVER,
        nanos => now().saturating_add(nanos),
    }
}

/// A moment as the system counts it; ten years from now if that is too far.
pub(crate) fn instant(moment: u64) -> Instant {
    let at = (moment != NEVER).then(|| start().checked_add(Duration::from_nanos(moment))).flatten();
    at.unwrap_or_else(|| clock::now() + FOR_EVER)
}

/// A span as a number, where `NEVER` stands for what is longer than can be said.
pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(NEVER)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{NEVER, after, instant, now};

    #[test]
    fn a_moment_after_a_time_is_neither_early_nor_late() {
        let span = Duration::from_millis(7);
        let (before, at, behind) = (Instant::now(), instant(after(span)), Instant::now());
        assert!((before + span..=behind + span).contains(&at));
    }

    #[test]
    fn a_timer_too_far_away_never_fires() {
        assert_eq!(after(Duration::MAX), NEVER);
        assert!(instant(NEVER) > Instant::now() + Duration::from_secs(86_400));
        assert!(after(Duration::from_nanos(NEVER - 1)) > now());
    }
}
