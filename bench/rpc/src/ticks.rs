//! A clock that ticks more finely than the runtime's timers, which are good to a millisecond.

use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::usage::clock_ns;

/// Clock that all processes of a host share.
pub fn now_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// `count` ticks, the first one interval after `start_ns`; each is the time at which it was due.
pub fn ticks(start_ns: u64, interval_ns: u64, count: usize) -> mpsc::UnboundedReceiver<u64> {
    let (sender, receiver) = mpsc::unbounded_channel();
    thread::spawn(move || {
        for due_ns in (1..=count as u64).map(|number| start_ns + number * interval_ns) {
            thread::sleep(Duration::from_nanos(due_ns.saturating_sub(now_ns())));
            if sender.send(due_ns).is_err() {
                return;
            }
        }
    });
    receiver
}
