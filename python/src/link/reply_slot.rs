//! The reply slot of a call over a link.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use pyo3::prelude::*;
use tidewire_engine::raw::Mutex;
use tidewire_engine::raw::{Fire, Watch};
use tidewire_link::{CallKey, Failure, Link, Message, OffLoopWaiter, ReplyWaiter};

use crate::errors::error;
use crate::interpreter::attach::attach;
use crate::interpreter::wait::blocks;
use crate::link::{ReferenceReader, failed, titled};

/// Outcome of a call.
enum CallOutcome {
    Replied(Message),
    Failed(Failure),
    /// A stream without items, or a subscription that is in force.
    Over,
    TimedOut,
}

/// The place for the answer.
#[derive(Default)]
pub struct ReplySlot {
    state: Mutex<(Option<CallOutcome>, Option<Waker>)>,
    /// When the other side last said that the call is at work, and for how long its loop had been
    /// blocked.
    alive: Mutex<Option<(Instant, u32)>>,
}

/// A call in progress. Dropping it cancels the call.
pub struct PendingReply {
    pub place: Arc<ReplySlot>,
    pub link: Link,
    pub key: Option<CallKey>,
    pub title: String,
    pub taking: ReferenceReader,
    pub deadline: Option<(Instant, tidewire_engine::EngineHandle)>,
    pub watch: Option<Watch>,
    /// Present while a thread other than the reading event loop waits for this reply.
    pub off_loop: Option<OffLoopWaiter>,
}

impl ReplySlot {
    fn end(&self, outcome: CallOutcome) {
        let waker = {
            let mut state = self.state.lock();
            if state.0.is_some() {
                return;
            }
            state.0 = Some(outcome);
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl ReplySlot {
    /// True while a thread or a loop waits for the reply.
    pub fn is_awaited(&self) -> bool {
        self.state.lock().1.is_some()
    }

    /// The error that it has failed with, if nobody has taken that.
    pub fn failure(&self, py: Python<'_>, title: &str) -> Option<PyErr> {
        let outcome = self.state.lock().0.take();
        // Without the lock: it makes objects.
        let raised = match &outcome {
            Some(CallOutcome::Failed(failure)) => Some(failed(py, title, failure)),
            _ => None,
        };
        let waker = {
            let mut state = self.state.lock();
            state.0 = state.0.take().or(outcome);
            // A waiter that came meanwhile has found nothing.
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        raised
    }
}

impl ReplyWaiter for ReplySlot {
    fn replied(&self, reply: Message) {
        self.end(CallOutcome::Replied(reply));
    }

    fn failed(&self, failure: Failure) {
        self.end(CallOutcome::Failed(failure));
    }

    fn over(&self) {
        self.end(CallOutcome::Over);
    }

    fn alive(&self, blocked_ms: u32) {
        *self.alive.lock() = Some((Instant::now(), blocked_ms));
    }
}

impl Fire for ReplySlot {
    fn fire(self: Arc<Self>) {
        self.end(CallOutcome::TimedOut);
    }
}

impl Future for PendingReply {
    type Output = PyResult<Py<PyAny>>;

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = {
            let mut state = self.place.state.lock();
            match state.0.take() {
                Some(outcome) => outcome,
                None => {
                    state.1 = Some(context.waker().clone());
                    drop(state);
                    if self.off_loop.is_none() {
                        self.off_loop = self.link.wait_off_loop(blocks());
                    }
                    if self.watch.is_none()
                        && let Some((at, engine)) = self.deadline.take()
                    {
                        self.watch = Some(engine.watch(at, Arc::clone(&self.place) as Arc<dyn Fire>));
                    }
                    return Poll::Pending;
                }
            }
        };
        if !matches!(outcome, CallOutcome::TimedOut) {
            self.key = None;
        }
        Poll::Ready(attach(|py| self.value(py, outcome)))
    }
}

impl PendingReply {
    fn value(&self, py: Python<'_>, outcome: CallOutcome) -> PyResult<Py<PyAny>> {
        match outcome {
            CallOutcome::Replied(message) => self.taking.use_up(py, message.into_payload()).map(Bound::unbind),
            CallOutcome::Failed(failure) => Err(failed(py, &self.title, &failure)),
            CallOutcome::Over => Ok(py.None()),
            CallOutcome::TimedOut => Err(self.timed_out(py)),
        }
    }

    /// The error of a call that was not answered in time.
    fn timed_out(&self, py: Python<'_>) -> PyErr {
        let (what, blocked_ms) = match *self.place.alive.lock() {
            None => ("allow more, or look at what the other side does".to_owned(), None),
            Some((at, 0)) => {
                let ms = at.elapsed().as_millis();
                (format!("its handler was at work {ms} ms ago: allow more"), Some(0))
            }
            Some((at, blocked_ms)) => {
                let ms = at.elapsed().as_millis() + u128::from(blocked_ms);
                let what = "the node that answers has begun no call";
                let causes = "its event loop is blocked or does not run, or its dispatcher has no free thread";
                (format!("{what} for {ms} ms, because {causes}: its log names the cause and the fix"), Some(ms))
            }
        };
        let blocked_ms = blocked_ms.into_pyobject(py).map_or_else(|_| py.None(), Bound::unbind);
        let text = format!("{}: no answer came in time: {what}", titled(&self.title));
        error(py, "AskTimeout", &text, &[("blocked_ms", blocked_ms)])
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.link.cancel(key);
        }
    }
}
