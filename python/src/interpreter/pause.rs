//! A future of a timer.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use tidewire_engine::EngineHandle;
use tidewire_engine::raw::Mutex;
use tidewire_engine::raw::{Fire, Watch};

use crate::interpreter::attach::attach;
/// A single wake-up.
#[derive(Default)]
struct Notifier {
    state: Mutex<(bool, Option<Waker>)>,
}

impl Fire for Notifier {
    fn fire(self: Arc<Self>) {
        let waker = {
            let mut state = self.state.lock();
            state.0 = true;
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A future that ends at a time. Dropping it cancels the timer.
pub struct TimerFuture {
    notifier: Arc<Notifier>,
    at: Instant,
    engine: EngineHandle,
    watch: Option<Watch>,
}

impl TimerFuture {
    /// A timer of so many seconds. None for no limit.
    pub fn of(seconds: Option<f64>, engine: EngineHandle) -> Option<Self> {
        let wait = Duration::try_from_secs_f64(seconds?).unwrap_or(Duration::MAX);
        Some(Self::new(Instant::now().checked_add(wait)?, engine))
    }

    pub fn new(at: Instant, engine: EngineHandle) -> Self {
        Self { notifier: Arc::default(), at, engine, watch: None }
    }
}

impl Future for TimerFuture {
    type Output = PyResult<Py<PyAny>>;

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        {
            let mut state = self.notifier.state.lock();
            if state.0 {
                drop(state);
                return Poll::Ready(Ok(attach(|py| py.None())));
            }
            state.1 = Some(context.waker().clone());
        }
        if self.watch.is_none() {
            self.watch = Some(self.engine.watch(self.at, Arc::clone(&self.notifier) as Arc<dyn Fire>));
        }
        Poll::Pending
    }
}
