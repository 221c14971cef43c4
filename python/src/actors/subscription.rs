//! A subscription of an actor to subjects of its node. Awaiting it waits for the hub's
//! confirmation.

use pyo3::exceptions::PyStopIteration;
use pyo3::prelude::*;
use tidewire_engine::raw::Mutex;

use crate::actors::actor::ActorRef;
use crate::errors;
use crate::interpreter::PerProcessOwned;
use crate::pending::Pending;

#[pyclass(frozen, module = "tidewire")]
pub struct Subscription {
    inner: PerProcessOwned<tidewire_engine::Subscription>,
    actor: Option<Py<ActorRef>>,
    /// Called once when it ends.
    ended: Mutex<Option<Py<PyAny>>>,
    /// Done when the hub has registered the subscription. None without a hub.
    shared: Mutex<Option<Py<Pending>>>,
}

/// An awaitable that gives the subscription once it is in force.
#[pyclass(frozen, module = "tidewire._tidewire")]
struct SubscriptionReady {
    subscription: Py<Subscription>,
    shared: Option<Py<Pending>>,
}

#[pymethods]
impl SubscriptionReady {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<Pending>>> {
        match &self.shared {
            Some(shared) if Pending::is_pending(shared.bind(py))? => Ok(Some(shared.clone_ref(py))),
            Some(shared) => match shared.get().outcome(py) {
                Ok(_) => self.give(py),
                Err(error) => Err(self.subscription.get().refused(py, error)),
            },
            None => self.give(py),
        }
    }

    /// Raises the exception of the awaited operation, which asyncio throws in here.
    #[pyo3(signature = (error, _value = None, _traceback = None))]
    fn throw(
        &self,
        py: Python<'_>,
        error: Bound<'_, PyAny>,
        _value: Option<Bound<'_, PyAny>>,
        _traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        Err(self.subscription.get().refused(py, PyErr::from_value(error)))
    }
}

impl SubscriptionReady {
    fn give(&self, py: Python<'_>) -> PyResult<Option<Py<Pending>>> {
        Err(PyStopIteration::new_err((self.subscription.clone_ref(py),)))
    }
}

impl Subscription {
    /// A subscription in force. `actor` is stopped with it, if one was made for it.
    pub fn new(inner: tidewire_engine::Subscription, actor: Option<Py<ActorRef>>) -> Self {
        Self { inner: PerProcessOwned::new(inner), actor, ended: Mutex::new(None), shared: Mutex::new(None) }
    }

    /// Ends the subscription here, too, if the hub has refused it. After a lost link the
    /// subscription is registered again with the next link.
    fn refused(&self, py: Python<'_>, error: PyErr) -> PyErr {
        if errors::is_refusal(py, &error) {
            self.unsubscribe(py);
        }
        error
    }
}

#[pymethods]
impl Subscription {
    /// Ends the subscription. True if it was in force.
    fn unsubscribe(&self, py: Python<'_>) -> bool {
        let Some(mine) = self.inner.mine() else { return false };
        let ended = mine.unsubscribe();
        if let Some(actor) = &self.actor {
            // The actor was made for this subscription.
            actor.bind(py).get().inner.stop_quietly();
        }
        let (call, shared) = (self.ended.lock().take(), self.shared.lock().take());
        if let Some(shared) = shared {
            // A task that awaits it would otherwise wait for ever.
            let cancelled = Pending::cancel(shared.bind(py), None);
            debug_assert!(cancelled.is_ok(), "nothing of the user is called");
        }
        if let Some(call) = call
            && let Err(error) = call.call0(py)
        {
            error.write_unraisable(py, None);
        }
        ended
    }

    /// Calls something when it is ended here.
    fn on_end(&self, call: Py<PyAny>) {
        *self.ended.lock() = Some(call);
    }

    /// Notes what is done when the hub has it.
    fn share(&self, shared: Py<Pending>) {
        *self.shared.lock() = Some(shared);
    }

    /// Waits until it is in force at the hub too, and gives it.
    fn __await__(this: &Bound<'_, Self>) -> SubscriptionReady {
        let shared = this.get().shared.lock().as_ref().map(|shared| shared.clone_ref(this.py()));
        SubscriptionReady { subscription: this.clone().unbind(), shared }
    }

    /// Blocks until it is in force at the hub too, and gives it. Not for the thread of an event
    /// loop.
    fn wait(this: &Bound<'_, Self>) -> PyResult<Py<Self>> {
        let py = this.py();
        let shared = this.get().shared.lock().as_ref().map(|shared| shared.clone_ref(py));
        shared
            .map_or(Ok(()), |shared| Pending::block(shared.bind(py)).map(drop))
            .map_err(|error| this.get().refused(py, error))?;
        Ok(this.clone().unbind())
    }

    #[getter]
    fn pattern(&self) -> &str {
        self.inner.pattern().as_str()
    }

    fn __repr__(&self) -> String {
        format!("<Subscription {}>", self.inner.pattern().as_str())
    }
}
