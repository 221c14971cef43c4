//! Actors whose handlers are plain Python functions or methods: they run on dispatcher threads.

use pyo3::prelude::*;
use tidewire_engine::raw::{Activation, Behaviours, Change, Driver, Envelope};
use tidewire_engine::{Fault, Signal};

use crate::actors::actor::{ActorRef, MessageMeta};
use crate::actors::context::Context;
use crate::actors::message::{Extra, Message};
use crate::errors;
use crate::interpreter::PerProcessOwned;
use crate::interpreter::attach::attach;
use crate::interpreter::once::Once;
use crate::interpreter::py_ref::PyRef;
use crate::interpreter::steps::is_coroutine;

/// A callable, and a flag if it takes a context besides the message.
pub struct Handler {
    pub call: PyRef<PyAny>,
    pub takes_context: bool,
}

impl Handler {
    /// Checks the parameters of a callable, and its kind against the actor's.
    pub fn inspect(callable: &Bound<'_, PyAny>, field: &str, on_loop: bool) -> PyResult<Self> {
        static INSPECT: Once<Py<PyAny>> = Once::new();
        let py = callable.py();
        let inspect = INSPECT.of(py, "tidewire._handlers", "behaviour_takes_context")?;
        let takes_context = inspect.call1((callable, field, on_loop))?.extract()?;
        Ok(Self { call: callable.clone().into(), takes_context })
    }

    pub fn clone_ref(&self, py: Python<'_>) -> Self {
        Self { call: self.call.clone_ref(py), takes_context: self.takes_context }
    }
}

/// The parts of an actor, as `tidewire._handlers.Plan` holds them.
pub struct Parts {
    pub handler: Handler,
    pub started: Option<Handler>,
    pub stopped: Option<PyRef<PyAny>>,
    pub batch: Option<PyRef<PyAny>>,
    pub make: Option<PyRef<PyAny>>,
}

impl Parts {
    pub fn from_plan(plan: &Bound<'_, PyAny>) -> PyResult<Self> {
        let optional = |name: &str| -> PyResult<Option<PyRef<PyAny>>> {
            let value = plan.getattr(name)?;
            Ok((!value.is_none()).then(|| value.into()))
        };
        let handler =
            Handler { call: plan.getattr("handler")?.into(), takes_context: plan.getattr("takes_context")?.extract()? };
        let started = match optional("started")? {
            Some(call) => Some(Handler { call, takes_context: plan.getattr("started_takes_context")?.extract()? }),
            None => None,
        };
        Ok(Self { handler, started, stopped: optional("stopped")?, batch: optional("batch")?, make: optional("make")? })
    }

    /// New parts, for a restart.
    pub fn remake(&self) -> Result<Option<Self>, Fault> {
        let Some(make) = &self.make else { return Ok(None) };
        attach(|py| make.call0(py).and_then(|plan| Self::from_plan(plan.bind(py))).map(Some)).map_err(errors::fault)
    }
}

/// Drives an actor on dispatcher threads, which hold the interpreter during a turn.
pub struct Function {
    parts: Parts,
    behaviours: Behaviours<Handler>,
    pub node: PerProcessOwned<PyRef<PyAny>>,
    me: Option<PyRef<ActorRef>>,
    max_deliveries: u32,
}

impl Function {
    pub fn new(parts: Parts, node: Py<PyAny>, max_deliveries: u32) -> Self {
        let node = PerProcessOwned::new(node.into());
        Self { parts, behaviours: Behaviours::new(), node, me: None, max_deliveries }
    }

    /// True if only the base behaviour is left.
    pub fn at_base(&self) -> bool {
        self.behaviours.depth() == 0
    }

    /// True if a message that fails now is redelivered.
    pub fn is_delivered_again(&self, meta: &MessageMeta) -> bool {
        meta.as_ref().map_or(0, |meta| meta.failures) + 1 < self.max_deliveries
    }

    fn me(&mut self, py: Python<'_>, turn: &Activation<'_, Message>) -> Result<PyRef<ActorRef>, Fault> {
        reference(py, &mut self.me, turn)
    }

    fn context(
        &self,
        py: Python<'_>,
        me: &PyRef<ActorRef>,
        sender: Option<PyRef<ActorRef>>,
        extra: Option<Extra>,
        meta: &MessageMeta,
    ) -> PyResult<Py<Context>> {
        let failures = meta.as_ref().map_or(0, |meta| meta.failures);
        Py::new(py, Context::new(me.clone_ref(py), self.node.clone_ref(py), sender, extra, failures))
    }

    /// Handles one message. Returns true to go on.
    pub fn handle(
        &mut self,
        py: Python<'_>,
        me: &PyRef<ActorRef>,
        envelope: Envelope<Message>,
        turn: &mut Activation<'_, Message>,
    ) -> bool {
        let (message, mut meta) = envelope.split();
        let Some(mut message) = message else {
            if let Some(change) = meta.as_mut().and_then(|meta| meta.change.take()) {
                drop(change_behaviour(&mut self.behaviours, change));
            }
            turn.handled(meta);
            return true;
        };
        if let Err(error) = message.open(py) {
            unreadable(py, me, error);
            turn.handled(meta);
            return true;
        }
        let (object, sender, extra) = message.into_parts();
        let handler = self.behaviours.top().map(|handler| &*handler).unwrap_or(&self.parts.handler);
        if !handler.takes_context && extra.as_ref().is_none_or(|extra| extra.reply.is_none()) {
            let result = self.node.back(py, handler.call.bind(py).call1((object.bind(py),)).and_then(settled));
            return match result {
                Ok(_) => {
                    turn.handled(meta);
                    true
                }
                Err(error) => fail(py, me, turn, Message::new(object, sender, extra), meta, error),
            };
        }
        if !handler.takes_context {
            let result = self.node.back(py, handler.call.bind(py).call1((object.bind(py),)).and_then(settled));
            return match result {
                Ok(value) => {
                    if let Some(reply) = extra.and_then(|mut extra| extra.reply.take()) {
                        reply.send(value.into());
                    }
                    turn.handled(meta);
                    true
                }
                Err(error) => fail(py, me, turn, Message::new(object, sender, extra), meta, error),
            };
        }
        let takes_context = handler.takes_context;
        let call = handler.call.clone_ref(py);
        let context = match self.context(py, me, sender, extra.map(|extra| *extra), &meta) {
            Ok(context) => context,
            Err(error) => return fail(py, me, turn, Message::plain(object), meta, error),
        };
        let result = if takes_context {
            call.call1(py, (object.bind(py), context.bind(py)))
        } else {
            call.call1(py, (object.bind(py),))
        };
        let result = result.and_then(|value| settled(value.into_bound(py)).map(Bound::unbind));
        let result = self.node.back(py, result);
        for change in context.bind(py).get().take_changes() {
            drop(change_behaviour(&mut self.behaviours, change));
        }
        match result {
            Ok(value) => {
                context.bind(py).get().returned(value);
                // A handler that has stored the context may reply later. Otherwise the reply slot
                // is dropped here.
                drop(context);
                turn.handled(meta);
                true
            }
            Err(error) => {
                let message = context.bind(py).get().take_back(py, object);
                fail(py, me, turn, message, meta, error)
            }
        }
    }
}

impl Driver<Message> for Function {
    fn wants_start(&self) -> bool {
        self.parts.started.is_some()
    }

    fn started(&mut self, turn: &mut Activation<'_, Message>) -> Result<(), Fault> {
        attach(|py| {
            let me = self.me(py, turn)?;
            let Some(started) = self.parts.started.as_ref().map(|started| started.clone_ref(py)) else { return Ok(()) };
            crate::actors::current_actor::with(py, &me, || {
                let result = if started.takes_context {
                    let context = self.context(py, &me, None, None, &None).map_err(errors::fault)?;
                    let result = self.node.back(py, started.call.call1(py, (context.bind(py),)));
                    for change in context.bind(py).get().take_changes() {
                        drop(change_behaviour(&mut self.behaviours, change));
                    }
                    result
                } else {
                    self.node.back(py, started.call.call0(py))
                };
                result.map(drop).map_err(|error| logged(py, &me, "started", error, false))
            })
        })
    }

    fn turn(&mut self, turn: &mut Activation<'_, Message>) {
        attach(|py| {
            let Ok(me) = self.me(py, turn) else { return };
            let batch = self.parts.batch.as_ref().map(|batch| batch.clone_ref(py));
            crate::actors::current_actor::with(py, &me, || match batch {
                Some(batch) => while self.step(py, &me, &batch, turn) {},
                None => {
                    while let Some(envelope) = turn.take() {
                        if !self.handle(py, &me, envelope, turn) {
                            return;
                        }
                    }
                }
            });
        });
    }

    fn signal(&mut self, signal: Signal, turn: &mut Activation<'_, Message>) -> Result<(), Fault> {
        attach(|py| {
            let me = self.me(py, turn)?;
            let notice = terminated(py, &signal).map_err(errors::fault)?;
            let handler = self.behaviours.top().map(|handler| &*handler).unwrap_or(&self.parts.handler).clone_ref(py);
            crate::actors::current_actor::with(py, &me, || {
                let result = if handler.takes_context {
                    let context = self.context(py, &me, None, None, &None).map_err(errors::fault)?;
                    let result = self.node.back(py, handler.call.call1(py, (notice, context.bind(py))));
                    for change in context.bind(py).get().take_changes() {
                        drop(change_behaviour(&mut self.behaviours, change));
                    }
                    result
                } else {
                    self.node.back(py, handler.call.call1(py, (notice,)))
                };
                result.map(drop).map_err(|error| logged(py, &me, "receive", error, false))
            })
        })
    }

    fn stopped(&mut self) -> Result<(), Fault> {
        let Some(stopped) = &self.parts.stopped else { return Ok(()) };
        attach(|py| {
            self.node.back(py, stopped.call0(py)).map(drop).map_err(|error| match &self.me {
                Some(me) => logged(py, me, "stopped", error, false),
                None => errors::fault(error),
            })
        })
    }

    fn can_restart(&self) -> bool {
        true
    }

    fn restart(&mut self) -> Result<(), Fault> {
        self.behaviours.clear();
        if let Some(parts) = self.parts.remake()? {
            self.parts = parts;
        }
        Ok(())
    }
}

/// The reference to the actor whose turn it is, made once.
pub fn reference(
    py: Python<'_>,
    place: &mut Option<PyRef<ActorRef>>,
    turn: &Activation<'_, Message>,
) -> Result<PyRef<ActorRef>, Fault> {
    if place.is_none() {
        let inner = tidewire_engine::ActorRef::from_cell(turn.cell().clone());
        *place = Some(Py::new(py, ActorRef::new(inner)).map_err(errors::fault)?.into());
    }
    match place {
        Some(me) => Ok(me.clone_ref(py)),
        None => Err("an actor has no reference to itself".into()),
    }
}

/// Answers the handler that is in force no more: to be dropped under no lock, as its end may run
/// code of the user's.
#[must_use = "it is dropped under no lock"]
pub fn change_behaviour(behaviours: &mut Behaviours<Handler>, change: Change) -> Option<Handler> {
    match change {
        Change::Become { handler, stack } => {
            let handler = handler.downcast::<Handler>().ok()?;
            behaviours.push(*handler, stack)
        }
        Change::Unbecome => behaviours.pop(),
    }
}

/// The return value of a handler. A coroutine is an error: no dispatcher thread would ever await
/// it.
fn settled(value: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyAny>> {
    let py = value.py();
    if !is_coroutine(&value)? {
        return Ok(value);
    }
    let text = format!(
        "handler: it returned {}, which a thread of a dispatcher can't await: make the handler itself `async def`",
        value.repr()?
    );
    value.call_method0("close")?;
    Err(errors::error(py, "InvalidArgument", &text, &[]))
}

/// Reports a failed message. Returns true to go on.
fn fail(
    py: Python<'_>,
    me: &PyRef<ActorRef>,
    turn: &mut Activation<'_, Message>,
    message: Message,
    meta: MessageMeta,
    error: PyErr,
) -> bool {
    if errors::says_expired(py, &error) {
        turn.expired_in_handler(Some(message), meta, errors::fault(error));
        return true;
    }
    let is_ask = meta.as_ref().is_some_and(|meta| meta.ask.is_some());
    let (error, final_) = errors::given_up(py, error);
    let fault = logged(py, me, "receive", error, is_ask);
    if final_ { turn.given_up(Some(message), meta, fault) } else { turn.failed(Some(message), meta, fault) }
}

/// Reports an error to `tidewire._log`, which writes less if an asker gets the error.
pub fn logged(py: Python<'_>, me: &PyRef<ActorRef>, hook: &str, error: PyErr, is_ask: bool) -> Fault {
    crate::actors::bridge::interrupted(py, &error);
    let logged = PyModule::import(py, "tidewire._log")
        .and_then(|log| log.getattr("failed"))
        .and_then(|failed| failed.call1((me.bind(py), hook, error.clone_ref(py).into_value(py), is_ask)));
    if let Err(failure) = logged {
        failure.write_unraisable(py, None);
    }
    errors::fault(error)
}

/// A message of another node can't be read here: it is logged, and nobody handles it.
pub fn unreadable(py: Python<'_>, me: &PyRef<ActorRef>, error: PyErr) {
    let logged = PyModule::import(py, "tidewire._log")
        .and_then(|log| log.getattr("unreadable"))
        .and_then(|unreadable| unreadable.call1((me.bind(py), error.into_value(py))));
    if let Err(failure) = logged {
        failure.write_unraisable(py, None);
    }
}

/// A notice as a `tw.Terminated`.
pub fn terminated(py: Python<'_>, signal: &Signal) -> PyResult<Py<PyAny>> {
    let class = PyModule::import(py, "tidewire._node.ledger")?.getattr("Terminated")?;
    match signal {
        Signal::Terminated { actor, name, reason } => {
            class.call1((actor.get(), name.as_deref(), reason.to_string())).map(Bound::unbind)
        }
        _ => class.call1((0, py.None(), "unknown")).map(Bound::unbind),
    }
}
