//! Delays: timers that a future polls beside other things.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Context;
use std::time::{Duration, Instant};

use tidewire_engine::raw::{Fire, Watch};

use crate::core::Runner;
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
