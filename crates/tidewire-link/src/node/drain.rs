//! Drain of a node's link: the wait until the hub has received all frames of the node.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::{Link, Shared};
use crate::idle::within;
use crate::runtime::Runtime;

impl Link {
    /// Waits until every call of others has been answered; false if the time is up before that. As
    /// [`drained`](Self::drained).
    pub fn answered(&self, runtime: &Runtime, most: Option<Duration>) -> impl Future<Output = bool> + Send + use<> {
        let shared = Arc::clone(&self.shared);
        within(runtime, most, async move {
            shared.idle.until(|| shared.state.lock().session.open_exchanges().1 == 0).await;
        })
    }

    /// Waits until the hub has read all that was sent, and long answers were read where they lie in
    /// shared memory. Long payloads of calls that this node makes are nothing to wait for. False if
    /// the time is up before that; a link that is lost has nothing left. Polled by whichever
    /// thread, it is done on that of the links. Dropping it gives up waiting.
    pub fn drained(&self, runtime: &Runtime, most: Option<Duration>) -> impl Future<Output = bool> + Send + use<> {
        let (shared, off_loop) = (Arc::clone(&self.shared), self.wait_off_loop(true));
        within(runtime, most, async move {
            // The loop that reads may be the one that waits.
            let _off_loop = off_loop;
            shared.flush();
            shared.idle.until(|| shared.is_drained()).await;
        })
    }
}

impl Shared {
    fn is_drained(&self) -> bool {
        let (has_arrived, asks) = {
            let mut state = self.state.lock();
            if state.joined.is_none() {
                // Queued frames of a lost link have no waiter: all exchanges have ended.
                return true;
            }
            let waited = state.session.out.bytes();
            (state.session.has_arrived(), state.session.out.bytes() > waited)
        };
        if asks {
            self.flush();
        }
        has_arrived
    }
}
