//! State of one connection: its running requests and its last activity.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::counts::Counting;
use crate::options::GatewayLimits;

/// One connection.
pub(crate) struct Connection {
    born: Instant,
    requests: AtomicUsize,
    /// Responses in progress.
    answering: AtomicUsize,
    /// Number of requests so far.
    served: AtomicUsize,
    /// Time of the last activity, in milliseconds since the start of the connection.
    active_ms: AtomicU64,
    /// Notified to close the connection in favour of others.
    close: Notify,
    is_closing: AtomicBool,
}

impl Connection {
    pub fn new() -> Self {
        Self {
            born: Instant::now(),
            requests: AtomicUsize::new(0),
            answering: AtomicUsize::new(0),
            served: AtomicUsize::new(0),
            active_ms: AtomicU64::new(0),
            close: Notify::new(),
            is_closing: AtomicBool::new(false),
        }
    }

    /// Closes the connection in favour of others. False if it was closing already.
    pub fn close(&self) -> bool {
        let is_first = !self.is_closing.swap(true, Ordering::AcqRel);
        self.close.notify_one();
        is_first
    }

    /// Waits until it is to end.
    pub async fn closing(&self) {
        self.close.notified().await;
    }

    pub fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    fn touch(&self) {
        self.active_ms.store(self.born.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// Since when it has had no request; None while it has one.
    pub fn idle_since(&self) -> Option<Instant> {
        let is_idle = self.requests.load(Ordering::Relaxed) == 0;
        is_idle.then(|| self.born + Duration::from_millis(self.active_ms.load(Ordering::Relaxed)))
    }

    /// How long it may go on as it does; None: its time is over.
    pub fn time_left(&self, limits: &GatewayLimits) -> Option<Duration> {
        let is_waited_for = self.requests.load(Ordering::Relaxed) > self.answering.load(Ordering::Relaxed);
        let idle = Duration::from_millis(limits.idle_ms as u64);
        if is_waited_for {
            // The call that it waits for has a deadline of its own.
            return Some(idle);
        }
        let most = match self.served.load(Ordering::Relaxed) {
            0 => Duration::from_millis(limits.read_ms as u64),
            _ => idle,
        };
        let active = Duration::from_millis(self.active_ms.load(Ordering::Relaxed));
        let left = (active + most).checked_sub(self.born.elapsed())?;
        Some(left.max(Duration::from_millis(1)))
    }
}

/// An open request, until the end of its response is sent.
pub(crate) struct Open {
    connection: Arc<Connection>,
    counting: Arc<Counting>,
    is_answering: AtomicUsize,
}

impl Open {
    pub fn new(counting: &Arc<Counting>, connection: &Arc<Connection>) -> Arc<Self> {
        counting.requests.fetch_add(1, Ordering::Relaxed);
        connection.requests.fetch_add(1, Ordering::Relaxed);
        connection.served.store(1, Ordering::Relaxed);
        connection.touch();
        let (connection, counting) = (Arc::clone(connection), Arc::clone(counting));
        Arc::new(Self { connection, counting, is_answering: AtomicUsize::new(0) })
    }

    /// Its answer begins.
    pub fn answers(&self) {
        if self.is_answering.swap(1, Ordering::Relaxed) == 0 {
            self.connection.answering.fetch_add(1, Ordering::Relaxed);
        }
        self.connection.touch();
    }

    /// More of its answer is taken.
    pub fn goes_on(&self) {
        self.connection.touch();
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.connection.touch();
        self.connection.answering.fetch_sub(self.is_answering.load(Ordering::Relaxed), Ordering::Relaxed);
        self.connection.requests.fetch_sub(1, Ordering::Relaxed);
        if self.counting.requests.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.counting.idle.notify_waiters();
        }
    }
}
