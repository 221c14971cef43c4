//! Queue from the threads of a node to an event loop of Python: they need not wait for the
//! interpreter.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use pyo3::prelude::*;
use tidewire_engine::raw::Mutex;

use super::results::{each, pending};
use crate::pending::Pending;

/// The side of the event loop.
pub struct LoopQueue<T>(Mutex<State<T>>);

struct State<T> {
    items: Vec<T>,
    waker: Option<Waker>,
    has_ended: bool,
}

impl<T> Default for LoopQueue<T> {
    fn default() -> Self {
        Self(Mutex::new(State { items: Vec::new(), waker: None, has_ended: false }))
    }
}

impl<T: Send + 'static> LoopQueue<T> {
    /// The side of the node.
    pub fn end(self: &Arc<Self>) -> QueueEnd<T> {
        QueueEnd(Arc::clone(self))
    }

    /// Waits for items. Gives none once the other side was dropped.
    pub fn take(self: &Arc<Self>, convert: fn(Python<'_>, T) -> PyResult<Py<PyAny>>) -> Pending {
        let queue = Arc::clone(self);
        let items = poll_fn(move |context| queue.poll(context).map(|items| Ok((items, convert))));
        pending("items", items, |py, (items, convert)| each(py, items, convert))
    }

    /// Ends the queue.
    pub fn close(&self) {
        self.change(|state| state.has_ended = true);
    }

    fn poll(&self, context: &Context<'_>) -> Poll<Vec<T>> {
        let state = &mut *self.0.lock();
        if state.items.is_empty() && !state.has_ended {
            state.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(std::mem::take(&mut state.items))
    }

    fn change(&self, change: impl FnOnce(&mut State<T>)) {
        let waker = {
            let state = &mut *self.0.lock();
            change(state);
            state.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

/// The side of the node. Dropping it ends the queue.
pub struct QueueEnd<T: Send + 'static>(Arc<LoopQueue<T>>);

impl<T: Send + 'static> QueueEnd<T> {
    /// Adds items. The node bounds how many there are.
    pub fn push(&self, items: impl IntoIterator<Item = T>) {
        self.0.change(|state| state.items.extend(items));
    }
}

impl<T: Send + 'static> Drop for QueueEnd<T> {
    fn drop(&mut self) {
        self.0.close();
    }
}
