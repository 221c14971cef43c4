//! `StreamReader`: a consumer, a replay or a watch for Python. The node fetches, and Python takes
//! the items one by one.

use std::future::{poll_fn, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use tidewire_backend::home::{Entry, HomeError, HomeResult};
use tidewire_engine::raw::Mutex;
use tidewire_node::streams::{Consumer, Delivery, Event, OnOutage, Reader, Reads, Replay, Timeout, Watch};

use super::StreamHome;
use super::durable_subscription::EventDelivery;
use super::lease::seconds;
use super::results::{entry, event, nothing, pending};
use crate::actors::engine::Engine;
use crate::errors::error;
use crate::interpreter::PerProcessOwned;
use crate::interpreter::attach::try_attach;
use crate::interpreter::py_ref::PyRef;
use crate::pending::Pending;

/// Waits for items of a consumer, a replay or a watch. Several tasks may wait.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct StreamReader(PerProcessOwned<Arc<Shared>>);

/// The part of a reader that its waiters share.
struct Shared {
    title: String,
    reader: Mutex<Kind>,
    has_ended: AtomicBool,
}

pub enum Kind {
    Consumer(Consumer),
    Replay(Replay),
    Watch(Watch),
}

impl Kind {
    fn reader(&mut self) -> &mut dyn Reader {
        match self {
            Self::Consumer(consumer) => consumer,
            Self::Replay(replay) => replay,
            Self::Watch(watch) => watch,
        }
    }
}

/// The engine, the title of the reader, and a function that gets the error of an outage, and None
/// at its end. Without one, an outage is raised.
pub type Options = (Py<Engine>, String, Option<Py<PyAny>>);

impl StreamReader {
    pub fn new(home: &StreamHome, (engine, title, on_outage): Options, make: impl FnOnce(&Reads) -> Kind) -> Self {
        let node = home.node.as_ref().and_then(PerProcessOwned::mine);
        let reads = Reads::of(&home.home, engine.get().handle(), node, on_outage.map(notify));
        let (reader, has_ended) = (Mutex::new(make(&reads)), AtomicBool::new(false));
        Self(PerProcessOwned::new(Arc::new(Shared { title, reader, has_ended })))
    }
}

#[pymethods]
impl StreamReader {
    /// The next item that is here, and what settles it.
    fn take(&self, py: Python<'_>) -> PyResult<Option<(Py<PyAny>, Option<EventDelivery>)>> {
        enum Item {
            Delivery(Delivery),
            Event(Event),
            Entry(Entry),
        }
        let item = match &mut *self.0.checked(py)?.reader.lock() {
            Kind::Consumer(consumer) => consumer.take().map(Item::Delivery),
            Kind::Replay(replay) => replay.take().map(Item::Event),
            Kind::Watch(watch) => watch.take().map(Item::Entry),
        };
        // Python may run the garbage collector now, and the lock is free.
        Ok(match item {
            None => None,
            Some(Item::Delivery(delivery)) => {
                let (fields, delivery) = EventDelivery::new(py, Arc::new(delivery))?;
                Some((fields, Some(delivery)))
            }
            Some(Item::Event(found)) => Some((event(py, found.as_ref(), 0)?, None)),
            Some(Item::Entry(found)) => Some((entry(py, found)?, None)),
        })
    }

    /// Waits until an item is here. Gives false if none comes within so many seconds, or at all.
    #[pyo3(signature = (timeout_s=None))]
    fn wait(&self, py: Python<'_>, timeout_s: Option<f64>) -> PyResult<Pending> {
        let mut timeout = timeout_s.map(|timeout_s| Timeout::after(seconds(timeout_s)));
        let shared = Arc::clone(self.0.checked(py)?);
        let ready = poll_fn(move |context| shared.poll(context, timeout.as_mut()));
        Ok(pending("next", ready, |py, ready: Result<bool, String>| {
            ready.map_err(|text| error(py, "NodeStopped", &text, &[]))?.into_py_any(py)
        }))
    }

    /// Ends the running fetch, and returns the events that are here, if nobody waits for them.
    fn give_back(&self) {
        // Each wait has a reference.
        if Arc::strong_count(&self.0) == 1 {
            self.0.reader.lock().reader().give_back();
        }
    }

    /// Ends the reader, as its node ends. Returns true if settlements are not stored yet.
    fn end(&self) -> bool {
        self.0.has_ended.store(true, Ordering::Release);
        let reader = &mut *self.0.reader.lock();
        reader.reader().give_back();
        matches!(reader, Kind::Consumer(consumer) if !consumer.is_idle())
    }

    /// Waits until everything that was settled is stored, for so many seconds at most.
    #[pyo3(signature = (timeout_s=None))]
    fn flush(&self, timeout_s: Option<f64>) -> Pending {
        let Kind::Consumer(consumer) = &*self.0.reader.lock() else { return pending("flush", ready(Ok(())), nothing) };
        let flushed = consumer.flush_within(timeout_s.map(seconds));
        pending("flush", async move { flushed.await.map_err(HomeError::from) }, nothing)
    }
}

impl Shared {
    /// Ready with an error text once the node has ended.
    fn poll(&self, context: &Context<'_>, timeout: Option<&mut Timeout>) -> Poll<HomeResult<Result<bool, String>>> {
        if self.has_ended.load(Ordering::Acquire) {
            let text = format!("{}: its node has stopped: make it anew with another node", self.title);
            return Poll::Ready(Ok(Err(text)));
        }
        self.reader.lock().reader().poll_ready(context, timeout).map_ok(Ok)
    }
}

fn notify(on_outage: Py<PyAny>) -> OnOutage {
    let on_outage = PyRef::from(on_outage);
    Arc::new(move |error| drop(try_attach(|py| on_outage.call1(py, (error.map(HomeError::message),)).map(drop))))
}
