//! Waits until something is done, or its time is over.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tidewire_engine::raw::{Fire, Watch};

use crate::core::Runner;

/// How often it is looked whether bytes have been written: nobody tells of that.
const LOOK: Duration = Duration::from_millis(2);

/// Waits until `is_done`, at most until `end`, and answers whether it is.
pub(crate) async fn until(runner: &Arc<Runner>, end: Instant, is_done: impl Fn() -> bool) -> bool {
    let mut watch: Option<Watch> = None;
    poll_fn(|context| {
        runner.ended.add(context.waker());
        if is_done() {
            return Poll::Ready(true);
        }
        let now = Instant::now();
        if now >= end {
            return Poll::Ready(false);
        }
        let look = Arc::new(Look(Arc::clone(runner))) as Arc<dyn Fire>;
        watch = Some(runner.watch((now + LOOK).min(end), look));
        Poll::Pending
    })
    .await
}

struct Look(Arc<Runner>);

impl Fire for Look {
    fn fire(self: Arc<Self>) {
        self.0.ended.wake();
    }
}
