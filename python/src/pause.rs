//! A wait that ends with time.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use tidewire_engine::EngineHandle;
use tidewire_engine::raw::Mutex;
use tidewire_engine::raw::{Fire, Watch};

use crate::attach::attach;
/// Rings once.
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

/// Is done at a time. Dropping it forgets about it.
pub struct TimerFuture {
    bell: Arc<Notifier>,
    at: Instant,
    engine: EngineHandle,
    watch: Option<Watch>,
}

impl TimerFuture {
    /// So many seconds from now; none without an end.
    pub fn of(seconds: Option<f64>, engine: EngineHandle) -> Option<Self> {
        let wait = Duration::try_from_secs_f64(seconds?).unwrap_or(Duration::MAX);
        Some(Self::new(Instant::now().checked_add(wait)?, engine))
    }

    pub fn new(at: Instant, engine: EngineHandle) -> Self {
        Self { bell: Arc::default(), at, engine, watch: None }
    }
}

impl Future for TimerFuture {
    type Output = PyResult<Py<PyAny>>;

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        {
            let mut state = self.bell.state.lock();
            if state.0 {
                drop(state);
                return Poll::Ready(Ok(attach(|py| py.None())));
            }
            state.1 = Some(context.waker().clone());
        }
        if self.watch.is_none() {
            self.watch = Some(self.engine.watch(self.at, Arc::clone(&self.bell) as Arc<dyn Fire>));
        }
        Poll::Pending
    }
}
