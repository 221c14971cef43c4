//! Limits of the hardware and the system: no contender is quicker than these operations.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::job::{Job, Workload};
use crate::outcome::Outcome;
use crate::pacing::{after_idle, now_ns};

/// A bare futex wake-up across threads, after 1 ms of idleness.
pub fn run_futex(job: &Job) -> Option<Outcome> {
    wake_ups(job, Futex { word: AtomicU32::new(0), stamp: AtomicU64::new(0) })
}

/// The same with a lock and a condition variable.
pub fn run_condvar(job: &Job) -> Option<Outcome> {
    wake_ups(job, Signal { stamp: Mutex::new(None), sent: Condvar::new() })
}

/// An addition to an atomic that no other thread touches.
pub fn run_atomic(job: &Job) -> Option<Outcome> {
    let value = AtomicU64::new(0);
    repeated(job, || value.fetch_add(1, Ordering::AcqRel))
}

/// A reading of the monotonic clock.
pub fn run_clock(job: &Job) -> Option<Outcome> {
    repeated(job, Instant::now)
}

fn repeated<T>(job: &Job, mut work: impl FnMut() -> T) -> Option<Outcome> {
    if job.workload != Workload::Limit {
        return None;
    }
    let start = Instant::now();
    for _ in 0..job.count {
        black_box(work());
    }
    let elapsed = start.elapsed();
    Some(Outcome::rate(job.count, elapsed).with("each_ns", elapsed.as_nanos() as f64 / job.count as f64))
}

/// The stamp that ends a run.
const ENOUGH: u64 = u64::MAX;

/// One thread sleeps, another wakes it. Ringing a bell that has not been heard yet does nothing, so
/// that a wake-up that takes longer than the pause counts in full.
trait Bell: Send + Sync + 'static {
    fn ring(&self, stamp: u64);
    fn wait(&self) -> u64;
}

fn wake_ups(job: &Job, bell: impl Bell) -> Option<Outcome> {
    if job.workload != Workload::PingIdle {
        return None;
    }
    let bell = Arc::new(bell);
    let theirs = Arc::clone(&bell);
    let sleeper = thread::spawn(move || sleep_until_woken(&*theirs));
    after_idle(job.count, |stamp| bell.ring(stamp));
    while !sleeper.is_finished() {
        thread::sleep(Duration::from_millis(1));
        bell.ring(ENOUGH);
    }
    Some(Outcome::latency(sleeper.join().expect("the sleeper does not panic")))
}

fn sleep_until_woken(bell: &impl Bell) -> Vec<u64> {
    let mut samples = Vec::new();
    loop {
        match bell.wait() {
            ENOUGH => return samples,
            stamp => samples.push(now_ns().saturating_sub(stamp)),
        }
    }
}

struct Futex {
    word: AtomicU32,
    stamp: AtomicU64,
}

impl Bell for Futex {
    fn ring(&self, stamp: u64) {
        if self.word.load(Ordering::Acquire) == 1 {
            return;
        }
        self.stamp.store(stamp, Ordering::Relaxed);
        self.word.store(1, Ordering::Release);
        // SAFETY: the word outlives the call, and FUTEX_WAKE reads no other argument.
        unsafe { libc::syscall(libc::SYS_futex, self.word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1) };
    }

    fn wait(&self) -> u64 {
        while self.word.load(Ordering::Acquire) == 0 {
            let forever = std::ptr::null::<libc::timespec>();
            let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
            // SAFETY: the word outlives the call; a null timeout means none.
            unsafe { libc::syscall(libc::SYS_futex, self.word.as_ptr(), operation, 0, forever) };
        }
        let stamp = self.stamp.load(Ordering::Relaxed);
        self.word.store(0, Ordering::Release);
        stamp
    }
}

struct Signal {
    stamp: Mutex<Option<u64>>,
    sent: Condvar,
}

impl Bell for Signal {
    fn ring(&self, stamp: u64) {
        self.stamp.lock().get_or_insert(stamp);
        self.sent.notify_one();
    }

    fn wait(&self) -> u64 {
        let mut stamp = self.stamp.lock();
        loop {
            if let Some(sent) = stamp.take() {
                return sent;
            }
            self.sent.wait(&mut stamp);
        }
    }
}
