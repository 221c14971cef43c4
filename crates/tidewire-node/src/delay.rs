//! Timed waits: delays that a future polls beside other things, pauses between attempts, and waits
//! with an end.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tidewire_engine::raw::{Fire, Watch, clock};

use crate::node::runner::Runner;
use crate::pending::Signal;

/// A wait, such as that of a call before its next attempt.
pub(crate) struct Delay {
    alarm: Arc<Signal>,
    _watch: Watch,
}

impl Delay {
    pub fn begin(runner: &Runner, wait: Duration) -> Self {
        let alarm = Arc::<Signal>::default();
        Self { _watch: runner.watch(clock::now() + wait, Arc::clone(&alarm) as Arc<dyn Fire>), alarm }
    }

    /// The value of another future that is polled, or None once the delay has passed.
    pub fn limit<T>(&self, polled: Poll<T>, context: &Context<'_>) -> Poll<Option<T>> {
        if polled.is_pending() && self.is_over(context) { Poll::Ready(None) } else { polled.map(Some) }
    }

    /// True once the delay has passed. Until then, its end wakes the task of `context`.
    pub fn is_over(&self, context: &Context<'_>) -> bool {
        self.alarm.poll(context).is_ready()
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
    let mut delay = None;
    poll_fn(|context| {
        runner.ended.add(context.waker());
        if is_done() {
            return Poll::Ready(true);
        }
        let left = end.saturating_duration_since(clock::now());
        if left.is_zero() || delay.get_or_insert_with(|| Delay::begin(runner, left)).is_over(context) {
            return Poll::Ready(false);
        }
        Poll::Pending
    })
    .await
}
