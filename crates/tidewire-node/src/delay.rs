//! Timed waits: delays that a future polls beside other things, pauses between attempts, and waits
//! with an end.

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

/// The time at which something is done again.
#[derive(Default)]
pub(crate) struct Recurrence(Option<Delay>);

impl Recurrence {
    /// Does what is due, and sees to it that the task comes again. `act` does it, and returns the
    /// wait until the next time.
    pub fn poll(&mut self, runner: &Runner, context: &Context<'_>, mut act: impl FnMut() -> Option<Duration>) {
        while self.0.as_ref().is_none_or(|delay| delay.is_over(context)) {
            self.0 = act().map(|wait| Delay::begin(runner, wait));
            if self.0.is_none() {
                return;
            }
        }
    }
}

/// Pauses between attempts at a place that cannot be reached: they grow from 50 ms to 2 s.
#[derive(Default)]
pub(crate) struct RetryPause(Duration);

impl RetryPause {
    /// True until an attempt has failed.
    pub fn is_first(&self) -> bool {
        self.0.is_zero()
    }

    /// An attempt has failed.
    pub fn begin(&mut self, runner: &Runner) -> Delay {
        self.0 = (self.0 * 2).clamp(Duration::from_millis(50), Duration::from_secs(2));
        Delay::begin(runner, self.0)
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
