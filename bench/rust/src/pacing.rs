//! Clocks, paced senders and memory readings that every contender shares.

use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// Messages in one burst of A9.
pub const BURST: u64 = 500;

/// Nanoseconds since the first call: a time that fits into a message of one word.
#[inline]
pub fn now_ns() -> u64 {
    static BASE: OnceLock<Instant> = OnceLock::new();
    BASE.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Sends the time `count` times, sleeping 1 ms before each.
pub fn after_idle(count: u64, mut send: impl FnMut(u64)) {
    now_ns();
    for _ in 0..count {
        thread::sleep(Duration::from_millis(1));
        send(now_ns());
    }
}

/// Sends `count` bursts, one every 2 ms; every message of a burst holds the time at which the burst
/// began.
pub fn in_bursts(count: u64, mut send: impl FnMut(u64)) {
    now_ns();
    let start = Instant::now();
    for burst in 0..count {
        let due = Duration::from_millis(2) * burst as u32;
        thread::sleep(due.saturating_sub(start.elapsed()));
        let began = now_ns();
        for _ in 0..BURST {
            send(began);
        }
    }
}

/// Resident memory of this process in bytes.
pub fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    pages * page_bytes()
}

fn page_bytes() -> u64 {
    // SAFETY: sysconf reads a constant of the system and has no preconditions.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}
