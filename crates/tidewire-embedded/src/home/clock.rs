//! Clock of a storage backend: starts at the system time or the newest stored time, and continues
//! monotonically.

use std::time::{Instant, UNIX_EPOCH};

use tidewire_sync::clock;

/// Microseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    wall_us: u64,
    began: Instant,
}

impl Clock {
    /// A clock that shows the time of the wall.
    pub fn now() -> Self {
        Self { wall_us: Self::wall_us(), began: clock::now() }
    }

    /// The same clock, set forward to a time if it shows less.
    pub fn not_before(self, time_us: u64) -> Self {
        Self { wall_us: self.wall_us + time_us.saturating_sub(self.now_us()), ..self }
    }

    /// Time of the system clock, which may have been set.
    pub fn wall_us() -> u64 {
        let wall = clock::system_time().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(wall.as_micros()).unwrap_or(0)
    }

    /// Time of this clock.
    pub fn now_us(&self) -> u64 {
        self.wall_us + u64::try_from(clock::since(self.began).as_micros()).unwrap_or(0)
    }
}
