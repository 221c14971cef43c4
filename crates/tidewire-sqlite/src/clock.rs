//! Clocks of the computer: a monotonic one for leases, and the system clock for people.

use std::time::{SystemTime, UNIX_EPOCH};

use tidewire_backend::sql::Now;
use tidewire_core::campaign::ledger::Clock;

/// The current time. Leases use the time since the computer was started, so that setting the clock
/// changes nothing; the epoch is that start.
pub(crate) fn now(epoch: u64) -> Now {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let utc_us = i64::try_from(passed.as_micros()).unwrap_or(i64::MAX);
    Now { clock: Clock { epoch, us: since_start(utc_us) }, utc_us }
}

/// Identifies the current start of the computer.
pub(crate) fn epoch() -> u64 {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = id.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).unwrap_or(0)
}

#[cfg(target_os = "linux")]
fn since_start(_utc_us: i64) -> u64 {
    // This clock runs while the computer sleeps, as the workers' leases must.
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
}

/// Other systems have no such clock, or no name for the start: the ledger sees when the clock is
/// set back.
#[cfg(not(target_os = "linux"))]
fn since_start(utc_us: i64) -> u64 {
    utc_us as u64
}
