//! The durable subscription of a handler for Python: the node fetches and settles, Python runs the
//! handlers.

use std::sync::Arc;
use std::time::Duration;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use tidewire_backend::home::{Fault, Home, HomeError};
use tidewire_core::stream::subscription::Outcome;
use tidewire_engine::raw::Mutex;
use tidewire_node::Node;
use tidewire_node::streams::{
    Delivery, DeliveryHandler, DeliveryWorker as Worker, DurableSubscription as Subscription, SubscriptionOptions,
};

use super::arguments::{Settled, settlement};
use super::loop_queue::{LoopQueue, QueueEnd};
use super::results::{event, nothing, pending};
use crate::actors::engine::Engine;
use crate::change_counter::ChangeCounter;
use crate::interpreter::PerProcessOwned;
use crate::interpreter::attach::try_attach;
use crate::interpreter::py_ref::PyRef;
use crate::pending::Pending;

/// The title, the concurrency, the deliveries in flight, the ack wait, and the longest wait of a
/// fetch; times in microseconds.
pub type Options = (String, u32, u32, u64, u64);

/// A durable subscription. Dropping it interrupts its handlers.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct DurableSubscription {
    subscription: PerProcessOwned<Arc<Subscription>>,
    workers: Arc<LoopQueue<Worker>>,
}

impl DurableSubscription {
    /// `changed` counts when the subscription may be idle; `log` takes a line.
    pub fn new(engine: &Engine, options: Options, changed: Arc<ChangeCounter>, log: Py<PyAny>) -> Self {
        let (title, concurrency, max_in_flight, ack_wait_us, wait_us) = options;
        let wait = Duration::from_micros(wait_us);
        let options = SubscriptionOptions { title, concurrency, max_in_flight, ack_wait_us, wait };
        let log = PyRef::from(log);
        let log = Box::new(move |line: &str| drop(try_attach(|py| log.call1(py, (line,)).map(drop))));
        let subscription = Subscription::of(engine.handle(), options, Box::new(move || changed.tell()), log);
        Self { subscription: PerProcessOwned::new(subscription), workers: Arc::default() }
    }

    pub fn begin(&self, home: Arc<dyn Home>, place: (&str, &str), node: Option<&Node>) {
        self.subscription.begin(home, place, node, Box::new(LoopHandler(self.workers.end())));
    }
}

#[pymethods]
impl DurableSubscription {
    /// Waits for workers to run, each until it has no event left. Gives none once the subscription
    /// has ended.
    fn workers(&self) -> Pending {
        self.workers.take(|py, worker| DeliveryWorker(Mutex::new(worker)).into_py_any(py))
    }

    /// Fetches nothing more. Fetched events are still handled.
    fn drain(&self) {
        if let Some(subscription) = self.subscription.mine() {
            subscription.drain();
        }
    }

    /// Begins nothing more, and returns what was fetched.
    fn cut(&self) {
        if let Some(subscription) = self.subscription.mine() {
            subscription.cut();
        }
    }

    /// Drops everything: nobody waits for it any more.
    fn end(&self) {
        if let Some(subscription) = self.subscription.mine() {
            subscription.end();
        }
        self.workers.close();
    }

    /// True if nothing is queued, handled or to be settled.
    fn is_idle(&self) -> bool {
        self.subscription.mine().is_none_or(|subscription| subscription.is_idle())
    }

    /// True once it has ended, and everything is settled.
    fn is_over(&self) -> bool {
        self.subscription.mine().is_none_or(|subscription| subscription.is_over())
    }

    /// Numbers of fetched, handled and returned deliveries.
    fn counts(&self) -> (u64, u64, u64) {
        self.subscription.mine().map_or((0, 0, 0), |subscription| subscription.counts().into())
    }
}

impl Drop for DurableSubscription {
    fn drop(&mut self) {
        self.cut();
        self.end();
    }
}

struct LoopHandler(QueueEnd<Worker>);

impl DeliveryHandler for LoopHandler {
    fn start(&self, workers: Vec<Worker>) {
        self.0.push(workers);
    }
}

/// Takes the deliveries of a subscription. Dropping it returns the delivery that it has.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct DeliveryWorker(Mutex<Worker>);

#[pymethods]
impl DeliveryWorker {
    /// The next event, and what settles it; None if there is none.
    fn begin(&self, py: Python<'_>) -> PyResult<Option<(Py<PyAny>, EventDelivery)>> {
        let Some(delivery) = self.0.lock().begin() else { return Ok(None) };
        let fields = event(py, delivery.event().as_ref(), delivery.delivery(), 0)?;
        Ok(Some((fields, EventDelivery(delivery))))
    }

    /// Settles the event whose handler has "returned", "raised" or was "interrupted". `fault`: the
    /// error and its traceback.
    fn end(&self, outcome: &str, fault: Option<(String, String)>) {
        let outcome = match outcome {
            "returned" => Outcome::Returned,
            "raised" => Outcome::Raised,
            _ => Outcome::Interrupted,
        };
        self.0.lock().end(outcome, fault.map(|(error, traceback)| Fault { error, traceback }));
    }
}

/// Settles one event for its handler.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct EventDelivery(Arc<Delivery>);

#[pymethods]
impl EventDelivery {
    #[pyo3(name = "_settle_soon")]
    fn settle_soon(&self, settled: Settled) -> Pending {
        let taken = self.0.settle_soon(settlement(settled).how);
        pending("settle", async move { taken.await.map_err(HomeError::from) }, nothing)
    }

    #[pyo3(name = "_settle_now")]
    fn settle_now(&self, settled: Settled) -> Pending {
        let stored = self.0.settle(settlement(settled).how);
        pending("settle", async move { stored.await.map_err(HomeError::from) }, nothing)
    }
}
