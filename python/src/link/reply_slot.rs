//! The reply of a call over a link, as a Python value or error.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use pyo3::prelude::*;
use tidewire_engine::raw::{Fire, Watch};
use tidewire_node::raw::{CallKey, CallOutcome, Link, OffLoopWaiter, ReplySlot};

use crate::errors::error;
use crate::interpreter::attach::attach;
use crate::interpreter::wait::blocks;
use crate::link::{ReferenceReader, failed, titled};

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

impl Future for PendingReply {
    type Output = PyResult<Py<PyAny>>;

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Poll::Ready(outcome) = self.place.outcome.poll(context) else {
            if self.off_loop.is_none() {
                self.off_loop = self.link.wait_off_loop(blocks());
            }
            if self.watch.is_none()
                && let Some((at, engine)) = self.deadline.take()
            {
                self.watch = Some(engine.watch(at, Arc::clone(&self.place) as Arc<dyn Fire>));
            }
            return Poll::Pending;
        };
        if !matches!(outcome, CallOutcome::Late) {
            self.key = None;
        }
        Poll::Ready(attach(|py| self.value(py, outcome)))
    }
}

impl PendingReply {
    fn value(&self, py: Python<'_>, outcome: CallOutcome) -> PyResult<Py<PyAny>> {
        match outcome {
            CallOutcome::Replied(value) => self.taking.use_up(py, value.into_memory()).map(Bound::unbind),
            CallOutcome::Failed(number, text) => Err(failed(py, &self.title, number, text.as_ref())),
            CallOutcome::Over => Ok(py.None()),
            CallOutcome::Late => Err(self.timed_out(py)),
        }
    }

    /// The error of a call that was not answered in time.
    fn timed_out(&self, py: Python<'_>) -> PyErr {
        let (what, blocked_ms) = match self.place.last_alive() {
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
