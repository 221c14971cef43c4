//! Streams of services on other nodes, read with `async for`.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;
use pyo3::types::PyType;
use pyo3::{PyTraverseError, PyVisit};
use tidewire_engine::raw::Mutex;

use crate::interpreter::attach::attach;
use crate::interpreter::once::{Once, intern};
use crate::interpreter::py_ref::PyRef;
use crate::link::call_future::{ClientSpan, DeferredCall};
use crate::link::stream::{RemoteStream, StreamWait};
use crate::pending::Pending;
use crate::services::balancer::InstanceLoad;

/// Base class of `tidewire.services.stream_reader.LinkStream`. The first read opens the stream, by
/// the fast path if that applies.
#[pyclass(frozen, subclass, weakref, module = "tidewire._tidewire")]
pub struct NativeStream {
    call: DeferredCall,
    source: Once<Source>,
    is_done: AtomicBool,
}

enum Source {
    Fast(FastStream),
    /// A `tidewire.services.stream_reader.Stream`.
    Slow(Py<PyAny>),
}

/// A stream that the fast path has opened. Its load and its span end with it.
pub struct FastStream {
    pub stream: RemoteStream,
    pub load: Mutex<Option<InstanceLoad>>,
    pub span: Mutex<Option<ClientSpan>>,
}

impl FastStream {
    fn finish(&self, py: Python<'_>, error: Option<&PyErr>) {
        self.stream.close(py);
        let (load, span) = (self.load.lock().take(), self.span.lock().take());
        drop(load);
        if let Some(span) = span {
            span.end(py, error);
        }
    }
}

impl Drop for FastStream {
    fn drop(&mut self) {
        if let Some(span) = self.span.get_mut().take() {
            attach(|py| span.end(py, None));
        }
    }
}

impl NativeStream {
    /// A stream that its first read opens, as a `LinkStream`.
    pub fn later(py: Python<'_>, call: DeferredCall) -> PyResult<Bound<'_, PyAny>> {
        static STREAM: Once<Py<PyType>> = Once::new();
        let class = STREAM.of(py, "tidewire.services.stream_reader", "LinkStream")?;
        let stream = Bound::new(py, Self { call, source: Once::new(), is_done: AtomicBool::new(false) })?.into_any();
        stream.setattr(intern!(py, "__class__"), class)?;
        Ok(stream)
    }

    /// The source, which is opened now. None: the stream is over.
    fn source(&self, py: Python<'_>) -> PyResult<Option<&Source>> {
        static STREAM: Once<Py<PyType>> = Once::new();
        if self.is_done.load(Ordering::Acquire) {
            return Ok(None);
        }
        let open = || {
            Ok(match self.call.open(py)? {
                Some(stream) => Source::Fast(stream),
                None => {
                    let class = STREAM.of(py, "tidewire.services.stream_reader", "Stream")?;
                    Source::Slow(class.call1((self.call.outbound_call(py)?,))?.unbind())
                }
            })
        };
        self.source.get_or_try_init(py, open).map(Some)
    }

    /// The next item. `was_cancelled` is true from the first poll to the outcome.
    fn read<'py>(
        this: &Bound<'py, Self>,
        stream: &FastStream,
        was_cancelled: Arc<AtomicBool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = this.py();
        let read = StreamRead { stream: this.clone().into(), item: stream.stream.item(py)?, was_cancelled };
        Ok(Bound::new(py, Pending::new("item", None, Box::pin(read)))?.into_any())
    }

    /// Reads no more: the generator on the other side is closed.
    fn finish(&self, py: Python<'_>, error: Option<&PyErr>) {
        self.is_done.store(true, Ordering::Release);
        if let Some(Source::Fast(stream)) = self.source.get(py) {
            stream.finish(py, error);
        }
    }
}

fn ended(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let end = Err(PyStopAsyncIteration::new_err(()));
    Ok(Bound::new(py, Pending::done(py, "item", end))?.into_any())
}

#[pymethods]
impl NativeStream {
    fn __aiter__(this: Py<Self>) -> StreamLoop {
        StreamLoop { stream: this, slow: Once::new(), was_cancelled: Arc::default() }
    }

    fn __anext__<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = this.py();
        match this.get().source(py)? {
            None => ended(py),
            Some(Source::Fast(stream)) => Self::read(this, stream, Arc::default()),
            Some(Source::Slow(stream)) => stream.bind(py).call_method0(intern!(py, "__anext__")),
        }
    }

    /// Reads no more, and waits until the generator was closed: its `finally` has run then.
    fn aclose<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (py, stream) = (this.py(), this.get());
        stream.is_done.store(true, Ordering::Release);
        let pending = match stream.source.get(py) {
            Some(Source::Slow(stream)) => return stream.bind(py).call_method0(intern!(py, "aclose")),
            Some(Source::Fast(open)) => {
                let close = StreamClose { stream: this.clone().into(), end: open.stream.end(py)? };
                Pending::new("end of a stream", None, Box::pin(close))
            }
            None => Pending::done(py, "end of a stream", Ok(py.None())),
        };
        Ok(Bound::new(py, pending)?.into_any())
    }

    /// The call outside of the fast path.
    #[getter]
    fn _sending<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.call.outbound_call(py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<Stream {}>", self.call.title(py)?))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.call.traverse(&visit)?;
        if let Some(Source::Slow(stream)) = self.source.peek() { visit.call(stream) } else { Ok(()) }
    }
}

/// The iterator of one `async for`.
///
/// A cancelled read ends the stream once nobody holds the iterator: the loop is over then. A
/// program that made the iterator by `aiter(stream)` still holds it, and may read on.
#[pyclass(frozen, module = "tidewire._tidewire")]
struct StreamLoop {
    stream: Py<NativeStream>,
    /// The iterator of a stream that the fast path has not opened.
    slow: Once<Py<PyAny>>,
    was_cancelled: Arc<AtomicBool>,
}

#[pymethods]
impl StreamLoop {
    fn __aiter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __anext__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let stream = self.stream.bind(py);
        match stream.get().source(py)? {
            None => ended(py),
            Some(Source::Fast(open)) => NativeStream::read(stream, open, Arc::clone(&self.was_cancelled)),
            Some(Source::Slow(open)) => {
                let slow = self.slow.get_or_try_init(py, || open.call_method0(py, intern!(py, "__aiter__")))?;
                slow.bind(py).call_method0(intern!(py, "__anext__"))
            }
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.stream)?;
        self.slow.peek().map_or(Ok(()), |slow| visit.call(slow))
    }
}

impl Drop for StreamLoop {
    fn drop(&mut self) {
        if self.was_cancelled.load(Ordering::Acquire) {
            attach(|py| self.stream.get().finish(py, None));
        }
    }
}

/// A read of the next item. It holds the stream, and not the iterator.
struct StreamRead {
    stream: PyRef<NativeStream>,
    item: StreamWait,
    was_cancelled: Arc<AtomicBool>,
}

impl Future for StreamRead {
    type Output = PyResult<Py<PyAny>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.was_cancelled.store(true, Ordering::Release);
        let item = ready!(Pin::new(&mut self.item).poll(context));
        self.was_cancelled.store(false, Ordering::Release);
        let stream = self.stream.get();
        Poll::Ready(attach(|py| {
            let value = item.and_then(|item| stream.call.convert_result(py, item));
            if let Err(error) = &value {
                stream.finish(py, Some(error).filter(|error| !error.is_instance_of::<PyStopAsyncIteration>(py)));
            }
            value
        }))
    }
}

/// The wait for the end of the generator. However it ends, the stream is closed.
struct StreamClose {
    stream: PyRef<NativeStream>,
    end: StreamWait,
}

impl Future for StreamClose {
    type Output = PyResult<Py<PyAny>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.end).poll(context)
    }
}

impl Drop for StreamClose {
    fn drop(&mut self) {
        attach(|py| self.stream.get().finish(py, None));
    }
}
