//! Waiters for the idle state: no work is left.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use crate::runtime::Runtime;

/// A timeout that never ends in practice.
const FOR_EVER: Duration = Duration::from_secs(86_400 * 365);

/// Tasks that wait until no work is left.
pub struct Idle {
    changed: Notify,
    waiting: AtomicUsize,
}

impl Idle {
    pub fn new() -> Self {
        Self { changed: Notify::new(), waiting: AtomicUsize::new(0) }
    }

    /// Wakes the waiters, so that they check their condition again.
    ///
    /// The caller has changed the state under its lock, and has released this lock since.
    pub fn tell(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.changed.notify_waiters();
        }
    }

    /// Ends when this holds. It is looked at whenever somebody [tells](Self::tell).
    pub async fn until(&self, mut is_idle: impl FnMut() -> bool) {
        let _counted = Counted::one_more(&self.waiting);
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // From here on it hears what happens, also before it waits.
            changed.as_mut().enable();
            if is_idle() {
                return;
            }
            changed.await;
        }
    }
}

/// Waits on the thread of the links, but not for longer than `most`; true if it ended in time.
/// Dropping the answer gives up waiting.
pub fn within<Wait: Future<Output = ()> + Send + 'static>(
    runtime: &Runtime,
    most: Option<Duration>,
    wait: Wait,
) -> impl Future<Output = bool> + Send + use<Wait> {
    let (mut send, receive) = oneshot::channel();
    runtime.spawn(async move {
        let within = tokio::time::timeout(most.unwrap_or(FOR_EVER), wait);
        tokio::select! {
            idle = within => drop(send.send(idle.is_ok())),
            () = send.closed() => {}
        }
    });
    async { receive.await.unwrap_or(false) }
}

/// One of those who are counted, for as long as it lives.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn one_more(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
