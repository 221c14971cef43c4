//! A stream that is read over a link.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;
use tidewire_engine::raw::Mutex;
use tidewire_link::{CallKey, Elsewhere, Failure, Link, Message, Waiting};

use crate::attach::attach;
use crate::errors::error;
use crate::fork::Own;
use crate::link::{Taking, failed, titled};
use crate::pending::Pending;
use crate::wait::blocks;

/// The items of a stream, as they come.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct RemoteStream {
    place: Arc<Place>,
    link: Own<Link>,
    title: String,
    taking: Taking,
    credit: u32,
}

#[derive(Default)]
pub struct Place {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    items: VecDeque<Message>,
    end: Option<End>,
    key: Option<CallKey>,
    taken: u32,
    waker: Option<Waker>,
}

enum End {
    Over,
    /// It was answered with one value.
    NoStream,
    Failed(Failure),
}

impl RemoteStream {
    pub fn new(place: Arc<Place>, link: Link, title: String, taking: Taking, credit: u32) -> Self {
        Self { place, link: Own::new(link), title, taking, credit }
    }
}

impl Place {
    pub fn opened(&self, key: CallKey) {
        self.state.lock().key = Some(key);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let waker = {
            let mut state = self.state.lock();
            change(&mut state);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Waiting for Place {
    fn replied(&self, _: Message) {
        self.change(|state| state.end = Some(End::NoStream));
    }

    fn failed(&self, failure: Failure) {
        self.change(|state| state.end = Some(End::Failed(failure)));
    }

    fn item(&self, item: Message) {
        self.change(|state| state.items.push_back(item));
    }

    fn over(&self) {
        self.change(|state| state.end = Some(End::Over));
    }

    fn credited(&self, _: u32) {}
}

#[pymethods]
impl RemoteStream {
    /// The next item; at the end StopAsyncIteration, or the error that ended the stream.
    fn take(&self, py: Python<'_>) -> PyResult<Pending> {
        self.link.born.check(py)?;
        let next = Next {
            place: Arc::clone(&self.place),
            link: Link::clone(&self.link),
            title: self.title.clone(),
            taking: self.taking.clone(),
            credit: self.credit,
            elsewhere: None,
        };
        Ok(Pending::new("item", None, Box::pin(next)))
    }

    /// Reads no more: the generator on the other side is closed.
    fn close(&self, py: Python<'_>) {
        let Some(link) = self.link.mine() else { return };
        let key = {
            let mut state = self.place.state.lock();
            state.items.clear();
            if state.end.is_none() { state.key.take() } else { None }
        };
        if let Some(key) = key {
            self.place.change(|state| state.end = Some(End::Over));
            crate::attach::detach(py, || link.cancel(key));
        }
    }
}

impl Drop for RemoteStream {
    fn drop(&mut self) {
        let Some(link) = self.link.mine() else { return };
        let mut state = self.place.state.lock();
        let key = if state.end.is_none() { state.key.take() } else { None };
        drop(state);
        if let Some(key) = key {
            link.cancel(key);
        }
    }
}

struct Next {
    place: Arc<Place>,
    link: Link,
    title: String,
    taking: Taking,
    credit: u32,
    elsewhere: Option<Elsewhere>,
}

impl Future for Next {
    type Output = PyResult<Py<PyAny>>;

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (item, want) = {
            let mut state = self.place.state.lock();
            match state.items.pop_front() {
                Some(item) => {
                    state.taken += 1;
                    // Half of what may be under way has been read: the writer may go on.
                    let half = self.credit.div_ceil(2);
                    let want = if state.taken >= half { std::mem::take(&mut state.taken) } else { 0 };
                    (item, state.key.filter(|_| want > 0).map(|key| (key, want)))
                }
                None => {
                    let ended = match &state.end {
                        Some(End::Over) => Some(Err(PyStopAsyncIteration::new_err(()))),
                        Some(End::NoStream) => Some(Err(attach(|py| no_stream(py, &self.title)))),
                        Some(End::Failed(failure)) => Some(Err(attach(|py| failed(py, &self.title, failure)))),
                        None => None,
                    };
                    if let Some(ended) = ended {
                        return Poll::Ready(ended);
                    }
                    state.waker = Some(context.waker().clone());
                    drop(state);
                    if self.elsewhere.is_none() {
                        self.elsewhere = self.link.elsewhere(blocks());
                    }
                    return Poll::Pending;
                }
            }
        };
        if let Some((key, want)) = want {
            self.link.want(key, want);
        }
        Poll::Ready(attach(|py| self.taking.use_up(py, item.into_payload()).map(Bound::unbind)))
    }
}

fn no_stream(py: Python<'_>, title: &str) -> PyErr {
    let text =
        format!("{}: it gives one value, and no stream: await it, rather than read it with `async for`", titled(title));
    error(py, "InvalidArgument", &text, &[])
}
