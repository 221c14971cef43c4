//! The answer to a call over a link.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use parking_lot::Mutex;
use pyo3::prelude::*;
use tidewire_engine::raw::{Fire, Watch};
use tidewire_link::{CallKey, Failure, Link, Message, Waiting};

use crate::errors::error;
use crate::link::{Taking, failed};

/// What has become of a call.
enum Outcome {
    Replied(Message),
    Failed(Failure),
    /// A stream without items, or a subscription that is in force.
    Over,
    TimedOut,
}

/// The place for the answer.
#[derive(Default)]
pub struct Place {
    state: Mutex<(Option<Outcome>, Option<Waker>)>,
}

/// A call under way; dropping it cancels the call.
pub struct Asking {
    pub place: Arc<Place>,
    pub link: Link,
    pub key: Option<CallKey>,
    pub title: String,
    pub taking: Taking,
    pub deadline: Option<(Instant, tidewire_engine::EngineHandle)>,
    pub watch: Option<Watch>,
}

impl Place {
    fn end(&self, outcome: Outcome) {
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

impl Waiting for Place {
    fn replied(&self, reply: Message) {
        self.end(Outcome::Replied(reply));
    }

    fn failed(&self, failure: Failure) {
        self.end(Outcome::Failed(failure));
    }

    fn item(&self, _: Message) {}

    fn over(&self) {
        self.end(Outcome::Over);
    }

    fn credited(&self, _: u32) {}
}

impl Fire for Place {
    fn fire(self: Arc<Self>) {
        self.end(Outcome::TimedOut);
    }
}

impl Future for Asking {
    type Output = PyResult<Py<PyAny>>;

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = {
            let mut state = self.place.state.lock();
            match state.0.take() {
                Some(outcome) => outcome,
                None => {
                    state.1 = Some(context.waker().clone());
                    drop(state);
                    if self.watch.is_none()
                        && let Some((at, engine)) = self.deadline.take()
                    {
                        self.watch = Some(engine.watch(at, Arc::clone(&self.place) as Arc<dyn Fire>));
                    }
                    return Poll::Pending;
                }
            }
        };
        if !matches!(outcome, Outcome::TimedOut) {
            self.key = None;
        }
        Poll::Ready(Python::attach(|py| self.value(py, outcome)))
    }
}

impl Asking {
    fn value(&self, py: Python<'_>, outcome: Outcome) -> PyResult<Py<PyAny>> {
        match outcome {
            Outcome::Replied(message) => self.taking.decode(py, message.payload()).map(Bound::unbind),
            Outcome::Failed(failure) => Err(failed(py, &self.title, &failure)),
            Outcome::Over => Ok(py.None()),
            Outcome::TimedOut => {
                let text =
                    format!("{}: no answer came in time: allow more, or look at what the other side does", self.title);
                Err(error(py, "AskTimeout", &text, &[]))
            }
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.link.cancel(key);
        }
    }
}
