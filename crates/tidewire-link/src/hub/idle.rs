//! Waits until a hub passes on no calls any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;

use super::{HubHandle, Shared};

/// What is as good as for ever, for a clock.
const FOR_EVER: Duration = Duration::from_secs(86_400 * 365);

impl HubHandle {
    /// Waits until no call is passed on any more, or the time is up; true if none is. Polled by whichever thread, it is done on that
    /// of the links. Dropping it gives up waiting.
    pub fn idle(&self, most: Option<Duration>) -> impl Future<Output = bool> + Send + use<> {
        let (shared, (mut send, receive)) = (Arc::clone(&self.shared), oneshot::channel());
        self.shared.runtime.spawn(async move {
            let within = tokio::time::timeout(most.unwrap_or(FOR_EVER), shared.is_idle());
            tokio::select! {
                idle = within => drop(send.send(idle.is_ok())),
                () = send.closed() => {}
            }
        });
        async { receive.await.unwrap_or(false) }
    }
}

impl Shared {
    /// Ends when no call is passed on any more.
    async fn is_idle(&self) {
        let _counted = Counted::one_more(&self.idle.1);
        loop {
            let changed = self.idle.0.notified();
            tokio::pin!(changed);
            // From here on it hears what happens, also before it waits.
            changed.as_mut().enable();
            if self.hub.lock().ending_calls() == 0 {
                return;
            }
            changed.await;
        }
    }
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
