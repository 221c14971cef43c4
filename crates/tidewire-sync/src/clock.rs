//! Clock of deadlines: the monotonic clock of the system. Tests set it ahead, so that deadlines
//! come without a wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use crate::locks::Mutex;
use crate::process::PerProcess;

/// How far deadlines are ahead of the monotonic clock, and times of day of the system clock, in
/// nanoseconds.
static AHEAD: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
static SLEEPERS: PerProcess<Mutex<Vec<Weak<dyn Sleeper>>>> = PerProcess::new();

/// A thread that sleeps until deadlines of this clock.
pub trait Sleeper: Send + Sync {
    /// When it wakes. None: it is awake, has ended, or has no deadline.
    fn sleeps_until(&self) -> Option<Instant>;

    /// Has it look at the clock again.
    fn wake(&self);
}

/// The time of deadlines.
#[inline]
pub fn now() -> Instant {
    Instant::now() + ahead(0)
}

/// The time since a moment of this clock.
pub fn since(moment: Instant) -> Duration {
    now().saturating_duration_since(moment)
}

/// The time of day.
pub fn system_time() -> SystemTime {
    SystemTime::now() + ahead(1)
}

/// Lets [`advance`] wake a thread for as long as it exists.
pub fn register<S: Sleeper + 'static>(sleeper: &Arc<S>) {
    let mut sleepers = SLEEPERS.get().lock();
    sleepers.retain(|known| known.strong_count() > 0);
    let sleeper: Weak<S> = Arc::downgrade(sleeper);
    sleepers.push(sleeper);
}

/// The deadlines until which threads sleep.
pub fn deadlines() -> Vec<Instant> {
    sleepers().iter().filter_map(|sleeper| sleeper.sleeps_until()).collect()
}

/// Sets this clock and the time of day ahead, and wakes all threads.
pub fn advance(by: Duration) {
    let nanos = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
    AHEAD.iter().for_each(|ahead| _ = ahead.fetch_add(nanos, Ordering::Relaxed));
    sleepers().iter().for_each(|sleeper| sleeper.wake());
}

/// Sets the time of day to that of the system. Deadlines stay ahead: their clock never goes back.
pub fn restore_system_time() {
    AHEAD[1].store(0, Ordering::Relaxed);
}

fn ahead(clock: usize) -> Duration {
    Duration::from_nanos(AHEAD[clock].load(Ordering::Relaxed))
}

fn sleepers() -> Vec<Arc<dyn Sleeper>> {
    SLEEPERS.get().lock().iter().filter_map(Weak::upgrade).collect()
}
