//! Counters of a gateway, and its limits of connections, requests, streams and bodies.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// Upper ends of the classes of times, in milliseconds.
pub(crate) const CLASSES_MS: [u64; 12] = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 5_000, 30_000];

/// Snapshot of the counters of a gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Connections that are open.
    pub connections: u64,
    /// Open requests, streams included.
    pub requests: u64,
    /// Open streams.
    pub streams: u64,
    /// Requests that were answered.
    pub answered: u64,
    /// Connections that were closed to free capacity, or because their clients stalled.
    pub closed: u64,
}

/// The counters of a gateway.
#[derive(Default)]
pub(crate) struct Counting {
    pub connections: AtomicUsize,
    pub requests: AtomicUsize,
    pub streams: AtomicUsize,
    pub bodies_bytes: AtomicUsize,
    pub closed: AtomicU64,
    /// Told when the last request has ended.
    pub idle: Notify,
    /// The lock protects the counts of answers; it is held for one addition.
    answers: Mutex<BTreeMap<(Route, u16), u64>>,
    times: Mutex<BTreeMap<Route, Times>>,
}

/// Kind of the route of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Route {
    Services,
    Commands,
    Subjects,
    Mcp,
    Documents,
}

impl Route {
    pub fn name(self) -> &'static str {
        match self {
            Self::Services => "services",
            Self::Commands => "commands",
            Self::Subjects => "subjects",
            Self::Mcp => "mcp",
            Self::Documents => "documents",
        }
    }
}

/// How long answers took until they began.
#[derive(Clone, Copy, Default)]
pub(crate) struct Times {
    pub classes: [u64; CLASSES_MS.len() + 1],
    pub sum_us: u64,
}

impl Counting {
    pub fn answered(&self, route: Route, status: u16, took: Duration) {
        *locked(&self.answers).entry((route, status)).or_default() += 1;
        let mut times = locked(&self.times);
        let times = times.entry(route).or_default();
        let class = CLASSES_MS.iter().position(|most| took.as_millis() as u64 <= *most).unwrap_or(CLASSES_MS.len());
        times.classes[class] += 1;
        times.sum_us += took.as_micros() as u64;
    }

    /// Waits until no request is open.
    pub async fn idle(&self) {
        loop {
            let idle = self.idle.notified();
            if self.requests.load(Ordering::Acquire) == 0 {
                return;
            }
            idle.await;
        }
    }

    pub fn answers(&self) -> BTreeMap<(Route, u16), u64> {
        locked(&self.answers).clone()
    }

    pub fn times(&self) -> BTreeMap<Route, Times> {
        locked(&self.times).clone()
    }

    pub fn counts(&self) -> Counts {
        let number = |counter: &AtomicUsize| counter.load(Ordering::Relaxed) as u64;
        Counts {
            connections: number(&self.connections),
            requests: number(&self.requests),
            streams: number(&self.streams),
            answered: self.answers().values().sum(),
            closed: self.closed.load(Ordering::Relaxed),
        }
    }
}

/// Counters stay consistent after a panic of a thread.
fn locked<T>(lock: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// One of as many as a limit allows, until it is dropped.
pub(crate) struct LimitPermit<'a>(&'a AtomicUsize, usize);

impl<'a> LimitPermit<'a> {
    /// Takes so many, if the limit allows.
    pub fn some(counter: &'a AtomicUsize, many: usize, most: usize) -> Option<Self> {
        let taken = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
            count.checked_add(many).filter(|count| *count <= most)
        });
        taken.is_ok().then_some(Self(counter, many))
    }
}

impl Drop for LimitPermit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}
