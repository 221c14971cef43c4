//! A stream that is read over a link.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;
use tidewire_engine::raw::Mutex;
use tidewire_link::{CallKey, Failure, Link, Message, OffLoopWaiter, ReplyWaiter};

use crate::errors::error;
use crate::interpreter::PerProcessOwned;
use crate::interpreter::attach::attach;
use crate::interpreter::wait::blocks;
use crate::link::{ReferenceReader, failed, titled};
use crate::pending::Pending;

/// The items of a stream, as they come.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct RemoteStream {
    place: Arc<ItemBuffer>,
    link: PerProcessOwned<Link>,
    title: String,
    taking: ReferenceReader,
    credit: u32,
}

#[derive(Default)]
pub struct ItemBuffer {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    items: VecDeque<Message>,
    end: Option<End>,
    key: Option<CallKey>,
    taken: u32,
    /// No more items are read: the end is waited for.
    unread: bool,
    /// Wakers of the waiters, by their numbers.
    waiting: Vec<(u64, Waker)>,
    numbers: u64,
}

enum End {
    Over,
    /// The call was answered with one value.
    NoStream,
    Failed(Failure),
}

impl RemoteStream {
    pub fn new(place: Arc<ItemBuffer>, link: Link, title: String, taking: ReferenceReader, credit: u32) -> Self {
        Self { place, link: PerProcessOwned::new(link), title, taking, credit }
    }
}

impl ItemBuffer {
    pub fn opened(&self, key: CallKey) {
        self.state.lock().key = Some(key);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let waiting = {
            let mut state = self.state.lock();
            change(&mut state);
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

impl ItemBuffer {
    /// Removes a waiter.
    fn forget(&self, number: u64) {
        if number != 0 {
            self.state.lock().waiting.retain(|(waits, _)| *waits != number);
        }
    }
}

impl State {
    /// Registers a waiter. Number 0 is a new one.
    fn waits(&mut self, number: &mut u64, waker: &Waker) {
        if *number == 0 {
            self.numbers += 1;
            *number = self.numbers;
        }
        match self.waiting.iter_mut().find(|(waits, _)| waits == number) {
            Some((_, known)) => known.clone_from(waker),
            None => self.waiting.push((*number, waker.clone())),
        }
    }

    /// Reads no more. Returns the exchange to notify, if it has not ended.
    fn leave(&mut self) -> Option<CallKey> {
        self.items.clear();
        self.unread = true;
        self.key.filter(|_| self.end.is_none())
    }
}

impl ReplyWaiter for ItemBuffer {
    fn replied(&self, _: Message) {
        self.change(|state| state.end = Some(End::NoStream));
    }

    fn failed(&self, failure: Failure) {
        self.change(|state| state.end = Some(End::Failed(failure)));
    }

    fn item(&self, item: Message) {
        self.change(|state| {
            if !state.unread {
                state.items.push_back(item);
            }
        });
    }

    fn over(&self) {
        self.change(|state| state.end = Some(End::Over));
    }
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
            number: 0,
            off_loop: None,
        };
        Ok(Pending::new("item", None, Box::pin(next)))
    }

    /// Reads no more, and gives None once the generator on the other side is closed, or the link is
    /// lost.
    fn over(&self, py: Python<'_>) -> PyResult<Pending> {
        self.link.born.check(py)?;
        let mut left = None;
        self.place.change(|state| left = state.leave());
        if let Some(key) = left {
            crate::interpreter::attach::detach(py, || self.link.want(key, 0));
        }
        let over = Over { place: Arc::clone(&self.place), link: Link::clone(&self.link), number: 0, off_loop: None };
        Ok(Pending::new("end of a stream", None, Box::pin(over)))
    }

    /// Reads no more: the generator on the other side is closed.
    fn close(&self, py: Python<'_>) {
        let Some(link) = self.link.mine() else { return };
        let mut left = None;
        self.place.change(|state| {
            left = state.leave();
            state.end.get_or_insert(End::Over);
        });
        if let Some(key) = left {
            crate::interpreter::attach::detach(py, || link.cancel(key));
        }
    }
}

impl Drop for RemoteStream {
    fn drop(&mut self) {
        let Some(link) = self.link.mine() else { return };
        let left = self.place.state.lock().leave();
        if let Some(key) = left {
            link.cancel(key);
        }
    }
}

struct Next {
    place: Arc<ItemBuffer>,
    link: Link,
    title: String,
    taking: ReferenceReader,
    credit: u32,
    number: u64,
    off_loop: Option<OffLoopWaiter>,
}

impl Drop for Next {
    fn drop(&mut self) {
        self.place.forget(self.number);
    }
}

/// The end of a stream that is not read any more.
struct Over {
    place: Arc<ItemBuffer>,
    link: Link,
    number: u64,
    off_loop: Option<OffLoopWaiter>,
}

impl Drop for Over {
    fn drop(&mut self) {
        self.place.forget(self.number);
    }
}

impl Future for Over {
    type Output = PyResult<Py<PyAny>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        {
            let mut state = this.place.state.lock();
            if state.end.is_some() {
                drop(state);
                return Poll::Ready(Ok(attach(|py| py.None())));
            }
            state.waits(&mut this.number, context.waker());
        }
        if this.off_loop.is_none() {
            this.off_loop = this.link.wait_off_loop(blocks());
        }
        Poll::Pending
    }
}

impl Future for Next {
    type Output = PyResult<Py<PyAny>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let (item, want) = {
            let mut state = this.place.state.lock();
            match state.items.pop_front() {
                Some(item) => {
                    state.taken += 1;
                    // Half of the credit has been read: the writer may go on.
                    let half = this.credit.div_ceil(2);
                    let want = if state.taken >= half { std::mem::take(&mut state.taken) } else { 0 };
                    (item, state.key.filter(|_| want > 0).map(|key| (key, want)))
                }
                None => {
                    if state.unread {
                        return Poll::Ready(Err(PyStopAsyncIteration::new_err(())));
                    }
                    if state.end.is_some() {
                        // The error is raised once, as by a generator: what is read afterwards has
                        // ended.
                        let ended = state.end.replace(End::Over);
                        drop(state);
                        return Poll::Ready(Err(match ended {
                            None | Some(End::Over) => PyStopAsyncIteration::new_err(()),
                            Some(End::NoStream) => attach(|py| no_stream(py, &this.title)),
                            Some(End::Failed(failure)) => attach(|py| failed(py, &this.title, &failure)),
                        }));
                    }
                    state.waits(&mut this.number, context.waker());
                    drop(state);
                    if this.off_loop.is_none() {
                        this.off_loop = this.link.wait_off_loop(blocks());
                    }
                    return Poll::Pending;
                }
            }
        };
        if let Some((key, want)) = want {
            this.link.want(key, want);
        }
        Poll::Ready(attach(|py| this.taking.use_up(py, item.into_payload()).map(Bound::unbind)))
    }
}

fn no_stream(py: Python<'_>, title: &str) -> PyErr {
    let text =
        format!("{}: it gives one value, and no stream: await it, rather than read it with `async for`", titled(title));
    error(py, "InvalidArgument", &text, &[])
}
