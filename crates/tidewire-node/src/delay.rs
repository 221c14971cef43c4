//! Timed waits: delays that a future polls beside other things, and waits with an end.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tidewire_engine::raw::{Fire, Watch};

use crate::node::core::Runner;
use crate::pending::Wakers;

/// A wait, such as that of a call before its next attempt.
pub(crate) struct Delay {
    alarm: Arc<Alarm>,
    _watch: Watch,
}

#[derive(Default)]
struct Alarm {
    has_come: AtomicBool,
    wakers: Wakers,
}

impl Delay {
    pub fn begin(runner: &Runner, wait: Duration) -> Self {
        let alarm = Arc::<Alarm>::default();
        Self { _watch: runner.watch(Instant::now() + wait, Arc::clone(&alarm) as Arc<dyn Fire>), alarm }
    }

    /// True once the delay has passed. Until then, its end wakes the task of `context`.
    pub fn is_over(&self, context: &Context<'_>) -> bool {
        self.alarm.wakers.add(context.waker());
        self.alarm.has_come.load(Ordering::Acquire)
    }
}

impl Fire for Alarm {
    fn fire(self: Arc<Self>) {
        self.has_come.store(true, Ordering::Release);
        self.wakers.wake();
    }
}

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
