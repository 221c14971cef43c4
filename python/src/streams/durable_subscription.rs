//! The durable subscription of a handler for Python: the node fetches and settles, Python runs the
//! handlers.

use std::sync::Arc;

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
use super::stream_worker::line_log;
use crate::actors::engine::Engine;
use crate::change_counter::ChangeCounter;
use crate::interpreter::PerProcessOwned;
use crate::pending::Pending;

/// The title, the concurrency, the deliveries in flight, and the ack wait in microseconds.
pub type Options = (String, u32, u32, u64);

/// A durable subscription, and the queue of its workers. `changed` counts when it may be idle;
/// `log` takes a line.
pub fn begin(
    home: Arc<dyn Home>,
    node: Option<&Node>,
    engine: &Engine,
    place: (&str, &str),
    options: Options,
    changed: Arc<ChangeCounter>,
    log: Py<PyAny>,
) -> (Arc<Subscription>, Arc<LoopQueue<Worker>>) {
    let (title, concurrency, max_in_flight, ack_wait_us) = options;
    let options = SubscriptionOptions { title, concurrency, max_in_flight, ack_wait_us };
    let subscription = Subscription::of(engine.handle(), options, Box::new(move || changed.tell()), line_log(log));
    let workers = Arc::<LoopQueue<Worker>>::default();
    subscription.begin(home, place, node, Box::new(LoopHandler(workers.end())));
    (subscription, workers)
}

struct LoopHandler(QueueEnd<Worker>);

impl DeliveryHandler for LoopHandler {
    fn start(&self, workers: Vec<Worker>) {
        self.0.push(workers);
    }
}

/// Takes the deliveries of a subscription. Dropping it returns the delivery that it has.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct DeliveryWorker(pub Mutex<Worker>);

#[pymethods]
impl DeliveryWorker {
    /// The next event, and what settles it; None if there is none.
    fn begin(&self, py: Python<'_>) -> PyResult<Option<(Py<PyAny>, EventDelivery)>> {
        let Some(delivery) = self.0.lock().begin() else { return Ok(None) };
        EventDelivery::new(py, delivery).map(Some)
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

/// Settles one event.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct EventDelivery(PerProcessOwned<Arc<Delivery>>);

impl EventDelivery {
    /// The event, and what settles it.
    pub fn new(py: Python<'_>, delivery: Arc<Delivery>) -> PyResult<(Py<PyAny>, Self)> {
        Ok((event(py, delivery.event().as_ref(), delivery.delivery())?, Self(PerProcessOwned::new(delivery))))
    }
}

#[pymethods]
impl EventDelivery {
    /// Settles the event. `waits`: awaiting it waits until that is stored, else for capacity.
    fn settle(&self, py: Python<'_>, settled: Settled, waits: bool) -> PyResult<Pending> {
        let (delivery, how) = (self.0.checked(py)?, settlement(settled));
        let begun = if waits { delivery.settle(how) } else { delivery.settle_soon(how) };
        Ok(pending("settle", async move { begun.await.map_err(HomeError::from) }, nothing))
    }
}
