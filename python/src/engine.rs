//! The engine behind a `tw.Node`.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use tidewire_engine::config::EngineConfig;
use tidewire_engine::{External, Mailbox, OnFailure, Overflow, RequeueError, SpawnOptions, Supervision, ThreadHooks};

use crate::actor::{ActorRef, seconds};
use crate::bridge::{Bridge, Place};
use crate::coroutine::Coroutine;
use crate::errors::{self, error};
use crate::function::{Function, Parts};
use crate::message::{Extra, Message};
use crate::pending::Pending;
use crate::statistics;
use crate::timer::Timer;

static FORKED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static ON_DISPATCHER: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread belongs to a dispatcher.
pub fn on_dispatcher() -> bool {
    ON_DISPATCHER.get()
}

/// Called in a child process after a fork: the threads of all nodes stayed in the parent.
#[pyfunction]
pub fn mark_forked(forked: bool) {
    FORKED.store(forked, Ordering::Relaxed);
}

pub fn check_fork(py: Python<'_>) -> PyResult<()> {
    if FORKED.load(Ordering::Relaxed) { Err(forked(py)) } else { Ok(()) }
}

#[cold]
fn forked(py: Python<'_>) -> PyErr {
    let text = "this node was started before a fork, and its threads stayed in the parent process: make a new node in the child";
    error(py, "NodeStopped", text, &[])
}

const COURTESY_LOOKS: u32 = 8;

/// The name of the dispatcher that runs coroutines.
const LOOP: &str = "asyncio";

#[pyclass(frozen, weakref, module = "tidewire._tidewire")]
pub struct Engine {
    inner: tidewire_engine::Engine,
    external: Arc<External>,
    place: Place,
}

#[pyclass(frozen, module = "tidewire")]
pub struct Subscription {
    inner: tidewire_engine::Subscription,
    actor: Option<Py<ActorRef>>,
}

#[pymethods]
impl Subscription {
    /// Ends the subscription. True if it was in force.
    fn unsubscribe(&self, py: Python<'_>) -> bool {
        let ended = self.inner.unsubscribe();
        if let Some(actor) = &self.actor {
            // The actor was made for this subscription.
            actor.bind(py).get().inner.stop_quietly();
        }
        ended
    }

    #[getter]
    fn pattern(&self) -> &str {
        self.inner.pattern().as_str()
    }

    fn __repr__(&self) -> String {
        format!("<Subscription {}>", self.inner.pattern().as_str())
    }
}

#[pymethods]
impl Engine {
    #[new]
    fn new(
        py: Python<'_>,
        config: &Bound<'_, PyDict>,
        toml: Option<(String, String)>,
        environment: Vec<(String, String)>,
    ) -> PyResult<Self> {
        let code = table(config, "config")?;
        let text = toml.as_ref().map(|(origin, text)| (origin.as_str(), text.as_str()));
        let config = EngineConfig::load(Some(code), text, environment).map_err(|failure| config_error(py, &failure))?;
        let place = Place::default();
        let external = place.external();
        let hooks = ThreadHooks {
            live: Box::new(|run| {
                ON_DISPATCHER.set(true);
                Python::attach(|py| {
                    note_thread(py, "thread_started");
                    run();
                    note_thread(py, "thread_ended");
                });
            }),
            idle: Box::new(|run| {
                Python::attach(|py| {
                    py.detach(|| {
                        run();
                        courtesy();
                    })
                })
            }),
        };
        let builder = tidewire_engine::Engine::builder().config(config).external(LOOP, Arc::clone(&external));
        let inner = builder
            .hooks(hooks, false)
            .paused(true)
            .build()
            .map_err(|failure| error(py, "ConfigError", &failure.to_string(), &[]))?;
        Ok(Self { inner, external, place })
    }

    fn start(&self, py: Python<'_>) -> PyResult<()> {
        self.inner.start().map_err(|failure| error(py, "AlreadyStarted", &failure.to_string(), &[]))
    }

    /// Binds the loop that runs coroutines.
    fn bind(&self, bridge: &Bound<'_, Bridge>) {
        self.place.bind(&bridge.get().line, &self.external);
    }

    fn unbind(&self) {
        self.place.unbind(&self.external);
    }

    #[getter]
    fn is_bound(&self) -> bool {
        self.place.is_bound()
    }

    #[allow(clippy::too_many_arguments)]
    #[pyo3(signature = (plan, node, parent, *, name, capacity, overflow, dispatcher, concurrency, supervision))]
    fn spawn(
        &self,
        py: Python<'_>,
        plan: &Bound<'_, PyAny>,
        node: Py<PyAny>,
        parent: Option<Bound<'_, ActorRef>>,
        name: Option<String>,
        capacity: Option<usize>,
        overflow: Option<&str>,
        dispatcher: Option<String>,
        concurrency: usize,
        supervision: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<ActorRef> {
        check_fork(py)?;
        let coroutine: bool = plan.getattr("coroutine")?.extract()?;
        let parts = Parts::from_plan(plan)?;
        let supervision = supervision.map(self::supervision).transpose()?.unwrap_or_default();
        let capacity = capacity.unwrap_or(self.inner.config().mailbox_capacity);
        let options = SpawnOptions {
            name,
            mailbox: Some(Mailbox::new(capacity).overflow(self::overflow(py, overflow)?)),
            dispatcher: if coroutine { Some(LOOP.to_owned()) } else { dispatcher },
            supervision,
        };
        let parent = parent.as_ref().map(|parent| &parent.get().inner);
        let spawned = if coroutine {
            self.inner.spawn_raw(options, Box::new(Coroutine::new(parts, node, concurrency)), parent)
        } else {
            self.inner.spawn_raw(options, Box::new(Function::new(parts, node, true)), parent)
        };
        spawned.map(|inner| ActorRef { inner }).map_err(|failure| errors::spawn(py, &failure))
    }

    fn lookup(&self, name: &str) -> Option<ActorRef> {
        self.inner.lookup::<Message>(name).map(|inner| ActorRef { inner })
    }

    #[pyo3(signature = (pattern, actor, queue, own))]
    fn subscribe(
        &self,
        py: Python<'_>,
        pattern: &str,
        actor: Bound<'_, ActorRef>,
        queue: Option<&str>,
        own: bool,
    ) -> PyResult<Subscription> {
        let inner = self
            .inner
            .subscribe_in(pattern, queue, &actor.get().inner)
            .map_err(|failure| errors::subscribe(py, &failure))?;
        Ok(Subscription { inner, actor: own.then(|| actor.unbind()) })
    }

    fn set_subscriptions(
        &self,
        py: Python<'_>,
        patterns: Vec<String>,
        actor: &Bound<'_, ActorRef>,
    ) -> PyResult<Vec<String>> {
        let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
        self.inner.set_subscriptions(&patterns, &actor.get().inner).map_err(|failure| errors::subscribe(py, &failure))
    }

    fn unsubscribe(&self, pattern: &str, actor: &Bound<'_, ActorRef>) -> Vec<String> {
        self.inner.unsubscribe(pattern, &actor.get().inner)
    }

    fn unsubscribe_all(&self, actor: &Bound<'_, ActorRef>) -> usize {
        self.inner.unsubscribe_all(&actor.get().inner)
    }

    fn subscriptions(&self, actor: &Bound<'_, ActorRef>) -> Vec<String> {
        self.inner.subscriptions(&actor.get().inner)
    }

    /// Publishes, and answers how many accepted and how many refused.
    fn publish(
        &self,
        py: Python<'_>,
        subject: Bound<'_, PyString>,
        message: Py<PyAny>,
        headers: Option<Py<PyAny>>,
    ) -> PyResult<(usize, usize)> {
        check_fork(py)?;
        let sender = crate::present::actor(py);
        let extra = Extra { subject: Some(subject.clone().into_any().unbind()), headers, ..Extra::default() };
        let message = Message { object: message, sender, extra: Some(Box::new(extra)) };
        let published =
            self.inner.publish(subject.to_str()?, message).map_err(|failure| errors::subscribe(py, &failure))?;
        Ok((published.accepted, published.refused))
    }

    fn request(
        &self,
        py: Python<'_>,
        subject: Bound<'_, PyString>,
        message: Py<PyAny>,
        headers: Option<Py<PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<Pending> {
        check_fork(py)?;
        let timeout = seconds(py, "timeout", timeout)?;
        let text = subject.to_str()?;
        let responder = self.inner.responder::<Message>(text).map_err(|failure| errors::subscribe(py, &failure))?;
        let Some(inner) = responder else {
            let text = format!("nobody is subscribed to {text:?}: subscribe a handler that returns the reply");
            return Err(error(py, "NoResponders", &text, &[]));
        };
        let extra = Extra { subject: Some(subject.into_any().unbind()), headers, ..Extra::default() };
        Ok(ActorRef { inner }.asking(py, message, extra, timeout))
    }

    fn schedule(
        &self,
        py: Python<'_>,
        delay: f64,
        actor: &Bound<'_, ActorRef>,
        message: Py<PyAny>,
        every: Option<f64>,
    ) -> PyResult<Timer> {
        check_fork(py)?;
        let delay = seconds(py, "delay", Some(delay))?;
        let actor = &actor.get().inner;
        let message = Message::plain(message);
        let inner = match every {
            None => self.inner.schedule(delay, actor, message),
            Some(every) => {
                let period = seconds(py, "every", Some(every))?;
                if period < Duration::from_micros(1) {
                    let text = format!("every: {every} is not allowed: give 0.000001 seconds or more");
                    return Err(error(py, "InvalidArgument", &text, &[]));
                }
                self.inner.every_after(delay, period, actor, message)
            }
        };
        Ok(Timer { inner })
    }

    fn statistics(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        statistics::node(py, &self.inner.statistics())
    }

    #[getter]
    fn actors(&self) -> usize {
        self.inner.actors()
    }

    fn dead_letters(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        self.inner.dead_letters().list().iter().map(|letter| statistics::dead_letter(py, letter)).collect()
    }

    fn dead_letter_count(&self) -> usize {
        self.inner.dead_letters().len()
    }

    fn requeue(&self, py: Python<'_>, number: u64) -> PyResult<()> {
        self.inner.dead_letters().requeue(number).map_err(|failure| match failure {
            RequeueError::Refused(refusal) => errors::refusal(py, refusal),
            other => error(py, "NoSuchTarget", &other.to_string(), &[]),
        })
    }

    fn drop_letter(&self, number: u64) -> bool {
        self.inner.dead_letters().remove(number)
    }

    fn drop_letters(&self) -> usize {
        self.inner.dead_letters().clear()
    }

    /// Shuts the engine down on a thread of its own, so that both a loop and a plain thread can wait for it.
    fn shutdown(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Pending> {
        if FORKED.load(Ordering::Relaxed) {
            let report = tidewire_engine::ShutdownReport::default();
            return Ok(Pending::done("shutdown", statistics::shutdown(py, report)));
        }
        let timeout = seconds(py, "timeout", timeout)?;
        let ending = self.inner.begin_shutdown(timeout);
        let operation = async move {
            let report = ending.await;
            Python::attach(|py| statistics::shutdown(py, report))
        };
        Ok(Pending::new("shutdown", None, Box::pin(operation)))
    }

    /// What is allowed in the configuration, and probably not meant.
    fn warnings(&self) -> Vec<String> {
        self.inner.config().warnings(std::thread::available_parallelism().map_or(1, usize::from))
    }

    /// The configuration in force, as TOML.
    fn config(&self) -> String {
        self.inner.config().to_table().to_string()
    }
}

/// A few microseconds in which the thread that has just sent something can go idle and let go of the interpreter by
/// itself. Taking it from that thread costs both of them a switch through the kernel, which is ten times as long.
fn courtesy() {
    for _ in 0..COURTESY_LOOKS {
        for _ in 0..8 {
            std::hint::spin_loop();
        }
        std::thread::yield_now();
    }
}

/// Lets `tidewire._ledger` know which interpreter thread this is, so that it can show where a stuck handler is.
fn note_thread(py: Python<'_>, event: &str) {
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let noted = PyModule::import(py, "tidewire._ledger").and_then(|ledger| ledger.getattr(event)?.call1((name,)));
    if let Err(failure) = noted {
        failure.write_unraisable(py, None);
    }
}

fn overflow(py: Python<'_>, name: Option<&str>) -> PyResult<Overflow> {
    match name {
        None | Some("wait") => Ok(Overflow::Wait),
        Some("fail") => Ok(Overflow::Fail),
        Some("drop_new") => Ok(Overflow::DropNew),
        Some("drop_old") => Ok(Overflow::DropOld),
        Some(other) => {
            let text =
                format!("overflow: {other:?} is not allowed: use \"wait\", \"fail\", \"drop_new\" or \"drop_old\"");
            Err(error(py, "InvalidArgument", &text, &[]))
        }
    }
}

fn supervision(value: &Bound<'_, PyAny>) -> PyResult<Supervision> {
    let millis = |name: &str| -> PyResult<Duration> {
        let millis: f64 = value.getattr(name)?.extract()?;
        seconds(value.py(), name, Some(millis / 1000.0))
    };
    let on_failure: String = value.getattr("on_failure")?.extract()?;
    Ok(Supervision {
        on_failure: match on_failure.as_str() {
            "restart" => OnFailure::Restart,
            "stop" => OnFailure::Stop,
            "escalate" => OnFailure::Escalate,
            _ => OnFailure::Resume,
        },
        max_deliveries: value.getattr("max_deliveries")?.extract()?,
        max_restarts: value.getattr("max_restarts")?.extract()?,
        window: millis("window_ms")?,
        backoff: millis("backoff_ms")?,
        backoff_max: millis("backoff_max_ms")?,
    })
}

fn config_error(py: Python<'_>, failure: &tidewire_engine::config::ConfigError) -> PyErr {
    let problems: Vec<String> = failure.problems.iter().map(ToString::to_string).collect();
    match problems.into_pyobject(py) {
        Ok(problems) => error(py, "ConfigError", &failure.to_string(), &[("problems", problems.unbind())]),
        Err(failure) => failure,
    }
}

fn table(dict: &Bound<'_, PyDict>, path: &str) -> PyResult<toml::Table> {
    let mut table = toml::Table::new();
    for (key, value) in dict {
        let Ok(key) = key.extract::<String>() else {
            let text = format!("{path}: the key {} is not a string", key.repr()?);
            return Err(error(dict.py(), "ConfigError", &text, &[]));
        };
        let at = format!("{path}.{key}");
        table.insert(key, self::value(&value, &at)?);
    }
    Ok(table)
}

fn value(value: &Bound<'_, PyAny>, path: &str) -> PyResult<toml::Value> {
    if value.is_instance_of::<PyBool>() {
        Ok(toml::Value::Boolean(value.extract()?))
    } else if value.is_instance_of::<PyInt>() {
        // Numbers too large for a configuration are out of every range.
        Ok(toml::Value::Integer(value.extract().unwrap_or(i64::MAX)))
    } else if value.is_instance_of::<PyFloat>() {
        Ok(toml::Value::Float(value.extract()?))
    } else if value.is_instance_of::<PyString>() {
        Ok(toml::Value::String(value.extract()?))
    } else if let Ok(dict) = value.cast::<PyDict>() {
        Ok(toml::Value::Table(table(dict, path)?))
    } else if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let items = value.try_iter()?.map(|item| self::value(&item?, path)).collect::<PyResult<_>>()?;
        Ok(toml::Value::Array(items))
    } else {
        let text = format!("{path}: {} is not a value that a configuration can hold", value.repr()?);
        Err(error(value.py(), "ConfigError", &text, &[]))
    }
}
