//! Waits until something is done, or its time is over.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use tidewire_engine::raw::{Fire, Watch};

use crate::core::Runner;

/// Waits until `is_done`, at most until `end`, and answers whether it is. It looks whenever `ended`
/// of the runner is woken.
pub(crate) async fn until(runner: &Arc<Runner>, end: Instant, is_done: impl Fn() -> bool) -> bool {
    let mut watch: Option<Watch> = None;
    poll_fn(|context| {
        runner.ended.add(context.waker());
        if is_done() {
            return Poll::Ready(true);
        }
        if Instant::now() >= end {
            return Poll::Ready(false);
        }
        watch.get_or_insert_with(|| runner.watch(end, Arc::new(Over(Arc::clone(runner))) as Arc<dyn Fire>));
        Poll::Pending
    })
    .await
}

/// The time is over.
struct Over(Arc<Runner>);

impl Fire for Over {
    fn fire(self: Arc<Self>) {
        self.0.ended.wake();
    }
}
