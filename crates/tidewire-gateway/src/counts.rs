//! Counters of a gateway, and its limits of connections, requests, streams and bodies.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use hyper::Method;
use tidewire_node::Durations;
use tokio::sync::Notify;

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
    /// Times until answers began, by method, route and status. The lock is held for one addition.
    answers: Mutex<BTreeMap<(&'static str, Route, u16), Durations>>,
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
            Self::Services => "/services",
            Self::Commands => "/commands",
            Self::Subjects => "/subjects",
            Self::Mcp => "/mcp",
            Self::Documents => "/",
        }
    }
}

impl Counting {
    pub fn answered(&self, method: &Method, route: Route, status: u16, took: Duration) {
        let known = ["GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"];
        let method = known.into_iter().find(|known| method == known).unwrap_or("_OTHER");
        locked(&self.answers).entry((method, route, status)).or_default().record(took.as_micros() as u64);
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

    pub fn answers(&self) -> BTreeMap<(&'static str, Route, u16), Durations> {
        locked(&self.answers).clone()
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
        let update = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
            count.checked_add(many).filter(|count| *count <= most)
        });
        update.is_ok().then_some(Self(counter, many))
    }
}

impl Drop for LimitPermit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}
