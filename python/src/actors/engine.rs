//! The engine behind a `tw.Node`.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use tidewire_engine::{
    DEFAULT_DISPATCHER, External, Mailbox, OnFailure, Overflow, RequeueError, SpawnOptions, Supervision, ThreadHooks,
};

use tidewire_engine::raw::Envelope;
use tidewire_node::raw::{CallDurations, Named};

use crate::actors::actor::{Actor, ActorRef};
use crate::actors::bridge::{Bridge, DeferredLoop, LOOP};
use crate::actors::coroutine::Coroutine;
use crate::actors::function::{Function, Parts};
use crate::actors::message::{Extra, Message};
use crate::actors::statistics;
use crate::actors::subscription::Subscription;
use crate::actors::timer::Timer;
use crate::arguments::{
    Delay, Dispatcher, Every, Headers, Letter, Name, Pattern, Patterns, Priority, Queue, Reason, Subject,
    TimeoutArgument,
};
use crate::change_counter::{ChangeCounter, Changed, PyChangeCounter};
use crate::errors::{self, error};
use crate::interpreter::PerProcessOwned;
use crate::interpreter::attach::{attach, detach, try_attach};
use crate::interpreter::pause::TimerFuture;
use crate::pending::Pending;
use crate::services::call_durations;

const COURTESY_LOOKS: u32 = 8;

#[pyclass(frozen, weakref, module = "tidewire._tidewire")]
pub struct Engine {
    inner: PerProcessOwned<tidewire_engine::Engine>,
    config: tidewire_config::Config,
    external: Arc<External>,
    place: DeferredLoop,
    change_counter: Arc<ChangeCounter>,
    pub durations: Arc<CallDurations>,
}

impl Engine {
    /// The engine, for what watches deadlines by it.
    pub fn handle(&self) -> tidewire_engine::EngineHandle {
        self.inner.handle()
    }
}

/// Dropping an engine ends it and waits for its handlers. These need the interpreter, which this
/// thread has.
impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take_mine() {
            try_attach(|py| detach(py, || drop(inner)));
        }
    }
}

#[pymethods]
impl Engine {
    #[new]
    #[pyo3(signature = (config, toml, environment, options = Vec::new()))]
    fn new(
        py: Python<'_>,
        config: &Bound<'_, PyDict>,
        toml: Option<(Bound<'_, PyString>, String)>,
        environment: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)>,
        options: Vec<(String, String)>,
    ) -> PyResult<Self> {
        let config = crate::config::load(config, toml, environment, options)?;
        let place = DeferredLoop::default();
        let external = place.external();
        let hooks = ThreadHooks {
            live: Box::new(|run| {
                crate::interpreter::wait::enter_dispatcher();
                attach(|py| {
                    note_thread(py, "thread_started");
                    run();
                    note_thread(py, "thread_ended");
                });
            }),
            idle: Box::new(|run| {
                attach(|py| {
                    crate::interpreter::attach::detach(py, || {
                        run();
                        courtesy();
                    })
                })
            }),
        };
        let builder =
            tidewire_engine::Engine::builder().config(config.engine.clone()).external(LOOP, Arc::clone(&external));
        let inner = builder
            .hooks(hooks, false)
            .paused(true)
            .build()
            .map_err(|failure| error(py, "ConfigError", &failure.to_string(), &[]))?;
        let change_counter = Arc::new(ChangeCounter::default());
        let counter = Arc::clone(&change_counter);
        inner.dead_letters().on_added(move || counter.tell());
        Ok(Self {
            inner: PerProcessOwned::new(inner),
            config,
            external,
            place,
            change_counter,
            durations: Arc::default(),
        })
    }

    fn start(&self, py: Python<'_>) -> PyResult<()> {
        self.inner.checked(py)?.start().map_err(|failure| error(py, "AlreadyStarted", &failure.to_string(), &[]))
    }

    /// Binds the loop that runs coroutines.
    fn bind(&self, bridge: &Bound<'_, Bridge>) {
        self.place.bind(&bridge.get().line, &self.external);
    }

    fn unbind(&self) {
        self.place.unbind(&self.external);
    }

    /// Raises `ForkedError` for an engine that belongs to the parent of this process.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.inner.check(py)
    }

    /// True for an engine that belongs to the parent of this process.
    #[getter]
    fn is_past(&self) -> bool {
        !self.inner.is_mine()
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
        name: Option<Name<'_>>,
        capacity: Option<usize>,
        overflow: Option<&str>,
        dispatcher: Dispatcher<'_>,
        concurrency: usize,
        supervision: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<ActorRef> {
        self.inner.check(py)?;
        let coroutine: bool = plan.getattr("coroutine")?.extract()?;
        let parts = Parts::from_plan(plan)?;
        let supervision = supervision.map(self::supervision).transpose()?.unwrap_or_default();
        let capacity = capacity.unwrap_or(self.inner.config().mailbox_capacity);
        let options = SpawnOptions {
            name: name.map(|name| name.0.to_owned()),
            mailbox: Some(Mailbox::new(capacity).overflow(self::overflow(py, overflow)?)),
            dispatcher: Some(if coroutine { self.place_of_coroutines(dispatcher.0) } else { dispatcher.0 }.to_owned()),
            supervision,
        };
        let parent = parent.as_ref().map(|parent| &*parent.get().inner);
        let max_deliveries = options.supervision.max_deliveries;
        let spawned = if options.dispatcher.as_deref() == Some(LOOP) {
            self.inner.spawn_raw(options, Box::new(Coroutine::new(parts, node, concurrency)), parent)
        } else {
            self.inner.spawn_raw(options, Box::new(Function::new(parts, node, max_deliveries)), parent)
        };
        spawned.map(ActorRef::new).map_err(|failure| errors::spawn(py, &failure))
    }

    fn lookup(&self, py: Python<'_>, name: Name<'_>) -> PyResult<Option<ActorRef>> {
        Ok(self.inner.checked(py)?.lookup::<Message>(name.0).map(ActorRef::new))
    }

    /// Raises what a subscription to the pattern would, if it is malformed.
    fn check_pattern(&self, py: Python<'_>, pattern: Pattern<'_>) -> PyResult<()> {
        self.inner.check_pattern(pattern.0).map_err(|failure| errors::subscribe(py, &failure))
    }

    /// Subscribes an actor; one that listens is asked nothing.
    #[pyo3(signature = (pattern, actor, queue, own, listens))]
    fn subscribe(
        &self,
        py: Python<'_>,
        pattern: Pattern<'_>,
        actor: Actor<'_, '_>,
        queue: Option<Queue<'_>>,
        own: bool,
        listens: bool,
    ) -> PyResult<Subscription> {
        self.inner.check(py)?;
        let (queue, subscriber) = (queue.map(|queue| queue.0), &actor.0.get().inner);
        let subscribed = if listens {
            self.inner.listen_in(pattern.0, queue, subscriber)
        } else {
            self.inner.subscribe_in(pattern.0, queue, subscriber)
        };
        let inner = subscribed.map_err(|failure| errors::subscribe(py, &failure))?;
        Ok(Subscription::new(inner, own.then(|| actor.0.to_owned().unbind())))
    }

    fn set_subscriptions(&self, py: Python<'_>, patterns: Patterns, actor: Actor<'_, '_>) -> PyResult<Vec<String>> {
        self.inner.check(py)?;
        let patterns: Vec<&str> = patterns.0.iter().map(String::as_str).collect();
        self.inner.set_subscriptions(&patterns, &actor.0.get().inner).map_err(|failure| errors::subscribe(py, &failure))
    }

    fn unsubscribe(&self, py: Python<'_>, pattern: Pattern<'_>, actor: Actor<'_, '_>) -> PyResult<Vec<String>> {
        Ok(self.inner.checked(py)?.unsubscribe(pattern.0, &actor.0.get().inner))
    }

    fn unsubscribe_all(&self, py: Python<'_>, actor: Actor<'_, '_>) -> PyResult<usize> {
        Ok(self.inner.checked(py)?.unsubscribe_all(&actor.0.get().inner))
    }

    fn subscriptions(&self, py: Python<'_>, actor: Actor<'_, '_>) -> PyResult<Vec<String>> {
        Ok(self.inner.checked(py)?.subscriptions(&actor.0.get().inner))
    }

    /// Publishes, and answers how many accepted and how many refused.
    fn publish(
        &self,
        py: Python<'_>,
        subject: Subject<'_, '_>,
        message: Py<PyAny>,
        headers: Option<Headers>,
    ) -> PyResult<(usize, usize)> {
        self.inner.check(py)?;
        let sender = crate::actors::current_actor::actor(py);
        let extra = published(&subject, headers);
        let message = Message::new(message, sender, Some(Box::new(extra)));
        let published = self.inner.publish(subject.text, message).map_err(|failure| errors::subscribe(py, &failure))?;
        Ok((published.accepted, published.refused))
    }

    /// Delivers a publication of another node to one actor. Returns true if it was accepted.
    fn deliver(
        &self,
        py: Python<'_>,
        actor: Actor<'_, '_>,
        subject: Subject<'_, '_>,
        message: Py<PyAny>,
        headers: Option<Headers>,
        origin: &str,
    ) -> PyResult<bool> {
        self.inner.check(py)?;
        let extra = Extra { origin: Some(named(origin)), ..published(&subject, headers) };
        let message = Message::new(message, None, Some(Box::new(extra)));
        let pushed = actor.0.get().inner.cell().push(Envelope::Plain(message), tidewire_engine::Priority::Normal);
        Ok(matches!(pushed, Ok(tidewire_engine::Sent::Accepted)))
    }

    /// Asks one actor for another node, which asked on a subject.
    #[expect(clippy::too_many_arguments, reason = "they are what came over the link")]
    fn ask_on(
        &self,
        py: Python<'_>,
        actor: Actor<'_, '_>,
        subject: Subject<'_, '_>,
        message: Py<PyAny>,
        headers: Option<Headers>,
        timeout: crate::arguments::Timeout,
        origin: &str,
    ) -> PyResult<Pending> {
        self.inner.check(py)?;
        let extra = Extra { origin: Some(named(origin)), ..published(&subject, headers) };
        actor.0.get().asking(py, message, extra, timeout.0, None)
    }

    fn request(
        &self,
        py: Python<'_>,
        subject: Subject<'_, '_>,
        message: Py<PyAny>,
        headers: Option<Headers>,
        timeout: TimeoutArgument,
    ) -> PyResult<Pending> {
        self.inner.check(py)?;
        let text = subject.text;
        let responder = self.inner.responder::<Message>(text).map_err(|failure| errors::subscribe(py, &failure))?;
        let Some(inner) = responder else {
            let text = format!("nobody is subscribed to {text:?}: subscribe a handler that returns the reply");
            return Err(error(py, "NoResponders", &text, &[]));
        };
        ActorRef::new(inner).asking(
            py,
            message,
            published(&subject, headers),
            timeout.or(self.inner.config().ask_timeout_ms),
            None,
        )
    }

    fn schedule(
        &self,
        py: Python<'_>,
        delay: Delay,
        actor: Actor<'_, '_>,
        message: Py<PyAny>,
        every: Option<Every>,
        priority: Option<Priority>,
    ) -> PyResult<Timer> {
        self.inner.check(py)?;
        let actor = &actor.0.get().inner;
        let (message, lane) = (Message::plain(message), Priority::lane(priority));
        let inner = match every {
            None => self.inner.schedule_with(delay.0, actor, message, lane),
            Some(every) => self.inner.every_after_with(delay.0, every.0, actor, message, lane),
        };
        Ok(Timer { inner: PerProcessOwned::new(inner) })
    }

    /// Adds a dead letter for a message that no mailbox has.
    fn give_up(&self, actor: Actor<'_, '_>, message: Py<PyAny>, reason: Reason, error: Option<&str>) {
        if let Some(mine) = self.inner.mine() {
            mine.give_up(&actor.0.get().inner, Message::plain(message), reason.0, error);
        }
    }

    /// Adds a dead letter for a message that could not be sent to another node.
    fn lost(&self, name: &str, message: Py<PyAny>, reason: Reason, error: Option<&str>) {
        if let Some(mine) = self.inner.mine() {
            mine.lost(name, Message::plain(message), reason.0, error);
        }
    }

    /// Seconds for which an ask waits where the call does not say.
    fn ask_timeout(&self) -> f64 {
        Duration::from_millis(self.inner.config().ask_timeout_ms).as_secs_f64()
    }

    /// Seconds that a stop takes at most.
    fn stop_timeout(&self, timeout: TimeoutArgument) -> f64 {
        timeout.or(self.inner.config().stop_timeout_ms).as_secs_f64()
    }

    /// Seconds that a stop takes at most that follows an error.
    fn abort_timeout(&self) -> f64 {
        Duration::from_millis(self.inner.config().abort_timeout_ms).as_secs_f64()
    }

    /// The counter of changes to the state of the node.
    #[getter]
    fn change_counter(&self) -> PyChangeCounter {
        PyChangeCounter(Arc::clone(&self.change_counter))
    }

    /// Something to await: True once the counter differs from `seen`, False after so many seconds.
    fn changed(
        &self,
        py: Python<'_>,
        change_counter: &PyChangeCounter,
        seen: u64,
        seconds: Option<f64>,
    ) -> PyResult<Pending> {
        self.inner.check(py)?;
        let pause = TimerFuture::of(seconds, self.handle());
        Ok(Pending::new("until", None, Box::pin(Changed::new(Arc::clone(&change_counter.0), seen, pause))))
    }

    /// Something to await: True once no actor has anything to do, False after so many seconds.
    fn idle(&self, py: Python<'_>, seconds: Option<f64>) -> PyResult<Pending> {
        self.inner.check(py)?;
        Ok(Pending::new("idle", None, Box::pin(crate::actors::idle::idle(self.handle(), seconds))))
    }

    /// A mark of this moment, if no actor has anything to do.
    #[getter]
    fn mark(&self) -> Option<crate::actors::idle::Mark> {
        self.inner.mine()?.mark().map(crate::actors::idle::Mark)
    }

    /// The actors that have something to do: what is counted of each.
    fn busy(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        self.inner.busy().iter().map(|row| statistics::actor(py, row)).collect()
    }

    /// The actor of this engine in whose handler this code runs.
    fn handling(&self, py: Python<'_>) -> Option<crate::interpreter::py_ref::PyRef<ActorRef>> {
        let mine = self.inner.mine()?;
        crate::actors::actor::handling(py).filter(|actor| actor.bind(py).get().inner.lives_in(mine))
    }

    /// The settings of links.
    fn links(&self) -> std::collections::BTreeMap<&'static str, u64> {
        self.config.links.iter().collect()
    }

    /// The settings of services.
    fn services(&self) -> std::collections::BTreeMap<&'static str, u64> {
        self.config.services.iter().collect()
    }

    /// The settings of agents and pools.
    fn broker(&self) -> std::collections::BTreeMap<&'static str, u64> {
        self.config.broker.iter().collect()
    }

    fn statistics(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        statistics::node(py, &self.inner.checked(py)?.statistics())
    }

    /// Counts how long an event of this kind and name took, and the type of its error, if any.
    fn took(&self, kind: &str, name: &str, error: &str, us: u64) {
        if let Some(kind) = CallDurations::kind(kind) {
            self.durations.record(kind, name, error, Duration::from_micros(us));
        }
    }

    /// All durations that were counted, as rows.
    fn durations<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        call_durations::rows(py, &self.durations)
    }

    #[getter]
    fn actors(&self) -> usize {
        self.inner.actors()
    }

    /// The stored dead letters, or those of them whose number is above `after`.
    #[pyo3(signature = (after = 0))]
    fn dead_letters(&self, py: Python<'_>, after: u64) -> PyResult<Vec<Py<PyAny>>> {
        self.inner
            .checked(py)?
            .dead_letters()
            .list_after(after)
            .iter()
            .map(|letter| statistics::dead_letter(py, letter))
            .collect()
    }

    fn dead_letter_count(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.inner.checked(py)?.dead_letters().len())
    }

    fn requeue(&self, py: Python<'_>, number: Letter) -> PyResult<()> {
        self.inner.checked(py)?.dead_letters().requeue(number.0).map_err(|failure| match failure {
            RequeueError::Refused(refusal) => errors::refusal(py, refusal, None::<&str>),
            other => error(py, "NoSuchTarget", &other.to_string(), &[]),
        })
    }

    fn drop_letter(&self, py: Python<'_>, number: Letter) -> PyResult<bool> {
        Ok(self.inner.checked(py)?.dead_letters().remove(number.0))
    }

    fn drop_letters(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.inner.checked(py)?.dead_letters().clear())
    }

    /// Shuts the engine down on a thread of its own, so that both a loop and a plain thread can
    /// wait for it.
    #[pyo3(signature = (timeout, drain = true))]
    fn shutdown(&self, py: Python<'_>, timeout: TimeoutArgument, drain: bool) -> PyResult<Pending> {
        let timeout = timeout.or(self.inner.checked(py)?.config().stop_timeout_ms);
        let ending = detach(py, || self.inner.begin_shutdown(drain, timeout));
        let operation = async move {
            let report = ending.await;
            attach(|py| statistics::shutdown(py, report))
        };
        Ok(Pending::new("shutdown", None, Box::pin(operation)))
    }

    /// Warnings about settings that are allowed and probably not meant.
    fn warnings(&self) -> Vec<String> {
        self.inner.config().warnings(std::thread::available_parallelism().map_or(1, usize::from))
    }

    /// The configuration in force, as TOML.
    fn config(&self) -> String {
        self.config.to_table().to_string()
    }
}

impl Engine {
    /// Coroutines run on the loop, whatever dispatcher is named; one that does not exist is passed
    /// on to be refused.
    fn place_of_coroutines<'a>(&self, named: &'a str) -> &'a str {
        let exists = named == DEFAULT_DISPATCHER || self.inner.config().dispatchers.contains_key(named);
        if exists { LOOP } else { named }
    }
}

fn named(node: &str) -> Arc<Named> {
    Arc::new(Named { name: node.to_owned(), ..Named::default() })
}

/// The subject and headers of a publish, for the context of its handler.
fn published(subject: &Subject<'_, '_>, headers: Option<Headers>) -> Extra {
    let subject = Some(subject.object.to_owned().into());
    Extra { subject, headers: headers.map(|headers| headers.0.into()), ..Extra::default() }
}

/// A pause of a few microseconds, in which the thread that has just sent something can go idle and
/// release the interpreter. Taking the interpreter from that thread costs both threads a switch
/// through the kernel, which takes ten times as long.
fn courtesy() {
    for _ in 0..COURTESY_LOOKS {
        for _ in 0..8 {
            std::hint::spin_loop();
        }
        std::thread::yield_now();
    }
}

/// Reports the interpreter thread to `tidewire._node.ledger`, which can then show where a stuck
/// handler is.
fn note_thread(py: Python<'_>, event: &str) {
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let noted = PyModule::import(py, "tidewire._node.ledger").and_then(|ledger| ledger.getattr(event)?.call1((name,)));
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
        Ok(Duration::from_secs_f64(millis / 1000.0))
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
