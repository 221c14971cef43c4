//! A stream that is read over a link.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;
use tidewire_node::raw::{CallKey, CallOutcome, ItemBuffer, ItemWait, Link, OffLoopWaiter};

use crate::errors::error;
use crate::interpreter::PerProcessOwned;
use crate::interpreter::attach::{attach, detach};
use crate::interpreter::wait::blocks;
use crate::link::{ReferenceReader, failed, titled};
use crate::pending::Pending;

/// The items of a stream, as they come.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct RemoteStream(PerProcessOwned<Arc<OpenStream>>);

pub struct OpenStream {
    pub items: Arc<ItemBuffer>,
    pub link: Link,
    pub key: CallKey,
    pub title: String,
    pub taking: ReferenceReader,
}

impl RemoteStream {
    pub fn new(stream: OpenStream) -> Self {
        Self(PerProcessOwned::new(Arc::new(stream)))
    }

    fn wait(&self, until: Until) -> StreamWait {
        StreamWait { stream: Arc::clone(&self.0), until, number: ItemWait::default(), off_loop: None }
    }

    /// The next item; at the end StopAsyncIteration, or the error that ended the stream.
    pub fn item(&self, py: Python<'_>) -> PyResult<StreamWait> {
        self.0.check(py)?;
        Ok(self.wait(Until::Item))
    }

    /// Reads no more, and gives None once the generator on the other side is closed, or the link is
    /// lost.
    pub fn end(&self, py: Python<'_>) -> PyResult<StreamWait> {
        self.0.check(py)?;
        if self.0.items.leave() {
            detach(py, || self.0.link.want(self.0.key, 0));
        }
        Ok(self.wait(Until::End))
    }
}

#[pymethods]
impl RemoteStream {
    fn take(&self, py: Python<'_>) -> PyResult<Pending> {
        Ok(Pending::new("item", None, Box::pin(self.item(py)?)))
    }

    fn over(&self, py: Python<'_>) -> PyResult<Pending> {
        Ok(Pending::new("end of a stream", None, Box::pin(self.end(py)?)))
    }

    /// Reads no more: the generator on the other side is closed.
    pub fn close(&self, py: Python<'_>) {
        let Some(stream) = self.0.mine() else { return };
        let is_open = stream.items.leave();
        stream.items.close();
        if is_open {
            detach(py, || stream.link.cancel(stream.key));
        }
    }
}

impl Drop for RemoteStream {
    fn drop(&mut self) {
        if let Some(stream) = self.0.mine().filter(|stream| stream.items.leave()) {
            stream.link.cancel(stream.key);
        }
    }
}

enum Until {
    Item,
    /// The end of a stream that is not read any more.
    End,
}

/// A wait for an item, or for the end.
pub struct StreamWait {
    stream: Arc<OpenStream>,
    until: Until,
    number: ItemWait,
    off_loop: Option<OffLoopWaiter>,
}

impl StreamWait {
    fn poll_ready(&mut self, context: &Context<'_>) -> Poll<PyResult<Py<PyAny>>> {
        let OpenStream { items, link, key, title, taking } = &*self.stream;
        if matches!(self.until, Until::End) {
            return items.poll_end(&mut self.number, context).map(|()| Ok(attach(|py| py.None())));
        }
        Poll::Ready(match ready!(items.poll_next(&mut self.number, context)) {
            Ok((item, more)) => {
                if more > 0 {
                    link.want(*key, more);
                }
                attach(|py| taking.use_up(py, item.into_memory()).map(Bound::unbind))
            }
            Err(end) => {
                if end.leaves_callee() {
                    link.cancel(*key);
                }
                Err(ended(title, &end))
            }
        })
    }
}

impl Future for StreamWait {
    type Output = PyResult<Py<PyAny>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ready = self.poll_ready(context);
        if ready.is_pending() && self.off_loop.is_none() {
            self.off_loop = self.stream.link.wait_off_loop(blocks());
        }
        ready
    }
}

impl Drop for StreamWait {
    fn drop(&mut self) {
        self.stream.items.forget(&self.number);
    }
}

fn ended(title: &str, end: &CallOutcome) -> PyErr {
    match end {
        CallOutcome::Over | CallOutcome::Late => PyStopAsyncIteration::new_err(()),
        CallOutcome::Failed(number, text) => attach(|py| failed(py, title, *number, text.as_ref())),
        CallOutcome::Replied(_) => {
            let what = "it gives one value, and no stream: await it, rather than read it with `async for`";
            attach(|py| error(py, "InvalidArgument", &format!("{}: {what}", titled(title)), &[]))
        }
    }
}
