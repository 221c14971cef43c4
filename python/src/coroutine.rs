//! Actors whose handlers are coroutines: they run on the node's event loop, each activation as one task.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use tidewire_engine::raw::Mutex;
use tidewire_engine::raw::{ActorCell, ActorId, Behaviours, Driver, Envelope, Turn};
use tidewire_engine::{Fault, Signal};

use crate::actor::{ActorRef, MessageMeta};
use crate::attach::attach;
use crate::context::Context;
use crate::errors;
use crate::fork::Born;
use crate::function::{Handler, Parts, change_behaviour, logged, reference, terminated};
use crate::held::Held;
use crate::message::{Extra, Message};

/// The actor that waits when its handler asks, if it handles one message at a time.
pub fn acting(py: Python<'_>, sender: &Py<ActorRef>) -> Option<ActorId> {
    static GET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    if !crate::bridge::runs_coroutines() {
        return None;
    }
    let get = GET
        .get_or_try_init(py, || {
            PyModule::import(py, "tidewire._current")?.getattr("alone")?.getattr("get").map(Bound::unbind)
        })
        .ok()?;
    let alone: bool = get.bind(py).call0().ok()?.extract().ok()?;
    alone.then(|| sender.bind(py).get().inner.id())
}

/// Drives an actor by tasks of an event loop.
pub struct Coroutine {
    parts: Parts,
    behaviours: Arc<Mutex<Behaviours<Handler>>>,
    node: Held<PyAny>,
    me: Option<Held<ActorRef>>,
    concurrency: usize,
    active: Arc<AtomicUsize>,
    stopping: Stopping,
}

#[derive(PartialEq)]
enum Stopping {
    No,
    /// The stop hook is a coroutine, and its task runs.
    Hook,
    Done,
}

impl Coroutine {
    pub fn new(parts: Parts, node: Py<PyAny>, concurrency: usize) -> Self {
        Self {
            parts,
            behaviours: Arc::new(Mutex::new(Behaviours::new())),
            node: node.into(),
            me: None,
            concurrency,
            active: Arc::default(),
            stopping: Stopping::No,
        }
    }

    /// Starts a task that begins with `envelope`, and goes on with what follows.
    fn launch(&mut self, py: Python<'_>, turn: &Turn<'_, Message>, first: First) -> Result<(), Fault> {
        let me = reference(py, &mut self.me, turn)?;
        let intake = Intake {
            cell: turn.cell().clone(),
            me: me.clone_ref(py),
            node: self.node.clone_ref(py),
            base: self.parts.handler.clone_ref(py),
            behaviours: Arc::clone(&self.behaviours),
            active: Arc::clone(&self.active),
            state: Mutex::new(Present { first: Some(first), ..Present::default() }),
            born: Born::now(),
        };
        self.active.fetch_add(1, Ordering::Relaxed);
        crate::bridge::has_coroutines();
        let start = start(py);
        let intake = Py::new(py, intake).map_err(errors::fault)?;
        start
            .and_then(|start| start.bind(py).call1((intake.clone_ref(py), me, self.concurrency == 1)))
            .map(drop)
            .map_err(|error| {
                self.active.fetch_sub(1, Ordering::Relaxed);
                errors::fault(error)
            })
    }
}

impl Driver<Message> for Coroutine {
    fn wants_start(&self) -> bool {
        self.parts.started.is_some()
    }

    fn started(&mut self, turn: &mut Turn<'_, Message>) -> Result<(), Fault> {
        attach(|py| {
            let Some(hook) = self.parts.started.as_ref().map(|hook| hook.clone_ref(py)) else { return Ok(()) };
            self.launch(py, turn, First::Hook(hook))
        })
    }

    fn turn(&mut self, turn: &mut Turn<'_, Message>) {
        attach(|py| {
            while self.active.load(Ordering::Relaxed) < self.concurrency {
                let Some(envelope) = turn.take() else { return };
                if let Err(fault) = self.launch(py, turn, First::Message(Box::new(envelope))) {
                    if let Some(me) = &self.me {
                        let _ = logged(py, me, "task", pyo3::exceptions::PyRuntimeError::new_err(fault.to_string()));
                    }
                    return turn.awaiting();
                }
            }
            turn.awaiting();
        });
    }

    fn signal(&mut self, signal: Signal, turn: &mut Turn<'_, Message>) -> Result<(), Fault> {
        attach(|py| {
            let notice = terminated(py, &signal).map_err(errors::fault)?;
            self.launch(py, turn, First::Notice(notice.into()))
        })
    }

    fn finish(&mut self, turn: &mut Turn<'_, Message>) -> bool {
        if self.active.load(Ordering::Relaxed) > 0 {
            return false;
        }
        if self.stopping == Stopping::Hook {
            self.stopping = Stopping::Done;
        }
        if self.stopping == Stopping::No && self.parts.stopped.is_some() {
            return attach(|py| {
                let Some(call) = self.parts.stopped.as_ref().map(|call| call.clone_ref(py)) else { return true };
                let hook = Handler { call, takes_context: false };
                self.stopping = Stopping::Hook;
                let launched = self.launch(py, turn, First::Hook(hook));
                launched.is_err()
            });
        }
        true
    }

    fn can_restart(&self) -> bool {
        true
    }

    fn restart(&mut self) -> Result<(), Fault> {
        self.behaviours.lock().clear();
        if let Some(parts) = self.parts.remake()? {
            self.parts = parts;
        }
        Ok(())
    }
}

fn start(py: Python<'_>) -> PyResult<&Py<PyAny>> {
    static START: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    START.get_or_try_init(py, || PyModule::import(py, "tidewire._drive")?.getattr("start").map(Bound::unbind))
}

enum First {
    Message(Box<Envelope<Message>>),
    Notice(Held<PyAny>),
    Hook(Handler),
}

/// One task's view of the actor: gives messages, takes their ends. Used by `tidewire._drive` only.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct Intake {
    cell: Arc<ActorCell<Message>>,
    me: Held<ActorRef>,
    node: Held<PyAny>,
    base: Handler,
    behaviours: Arc<Mutex<Behaviours<Handler>>>,
    active: Arc<AtomicUsize>,
    state: Mutex<Present>,
    born: Born,
}

#[derive(Default)]
struct Present {
    first: Option<First>,
    message: Option<Message>,
    meta: MessageMeta,
    context: Option<Py<Context>>,
    handled: u32,
    /// What is present counts as a message of the mailbox.
    counts: bool,
}

#[pymethods]
impl Intake {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    /// The next call to make, as an awaitable. Asking for it says that the one before has returned.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.born.back(py, Ok(()))?;
        loop {
            let (first, tired) = {
                let mut state = self.state.lock();
                (state.first.take(), state.handled >= TURN)
            };
            let envelope = match first {
                Some(First::Hook(hook)) => match self.call_hook(py, &hook)? {
                    Some(call) => return Ok(Some(call)),
                    None => continue,
                },
                Some(First::Notice(notice)) => match self.call(py, Message::plain(notice), None, false)? {
                    Some(call) => return Ok(Some(call)),
                    None => continue,
                },
                Some(First::Message(envelope)) => Some(*envelope),
                None => self.finish_and_take(py, !tired),
            };
            let Some(envelope) = envelope else { return Ok(None) };
            let (message, mut meta) = envelope.split();
            match message {
                Some(message) => {
                    if let Some(call) = self.call(py, message, meta, true)? {
                        return Ok(Some(call));
                    }
                }
                None => {
                    if let Some(change) = meta.as_mut().and_then(|meta| meta.change.take()) {
                        change_behaviour(&mut self.behaviours.lock(), change);
                    }
                    self.cell.outside(|turn| turn.handled(meta));
                }
            }
        }
    }

    /// The present call has returned something else than None.
    fn returned(&self, py: Python<'_>, value: Py<PyAny>) {
        let Ok(value) = self.born.back(py, Ok(value)) else { return };
        let context = self.state.lock().context.as_ref().map(|context| context.clone_ref(py));
        if let Some(context) = context {
            context.bind(py).get().returned(value);
        }
    }

    /// The present call has raised. Answers whether the task may go on.
    fn failed(&self, py: Python<'_>, error: Bound<'_, PyAny>) -> bool {
        let failed = self.born.back::<()>(py, Err(PyErr::from_value(error)));
        let Err(error) = failed else { return true };
        let (context, meta, counts, message) = self.take_present();
        if counts && errors::says_expired(py, &error) {
            self.cell.outside(|turn| turn.expired_in_handler(message, meta, errors::fault(error)));
            return true;
        }
        let fault = logged(py, &self.me, "receive", error);
        if let Some(context) = &context {
            for change in context.bind(py).get().take_changes() {
                change_behaviour(&mut self.behaviours.lock(), change);
            }
        }
        if counts {
            self.cell.outside(|turn| turn.failed(message, meta, fault))
        } else {
            self.cell.outside(|turn| turn.after_failure(fault.to_string()))
        }
    }

    /// The task is over: the actor looks at its mailbox itself again.
    fn over(&self) {
        self.active.fetch_sub(1, Ordering::Relaxed);
        self.cell.resume();
    }
}

static COROUTINE: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Most messages that one task handles before it makes room for others.
const TURN: u32 = 256;

impl Intake {
    /// Calls the handler. None: it was a plain function, and has returned already.
    fn call(&self, py: Python<'_>, message: Message, meta: MessageMeta, counts: bool) -> PyResult<Option<Py<PyAny>>> {
        let handler = self.behaviours.lock().top().map(|handler| handler.clone_ref(py));
        let handler = handler.as_ref().unwrap_or(&self.base);
        let Message { object, sender, extra } = message;
        let needs = handler.takes_context || extra.as_ref().is_some_and(|extra| extra.reply.is_some());
        let failures = meta.as_ref().map_or(0, |meta| meta.failures);
        let context = needs.then(|| self.context(py, sender, extra.map(|extra| *extra), failures)).transpose()?;
        {
            let mut state = self.state.lock();
            state.handled += 1;
            state.message = Some(Message::plain(object.clone_ref(py)));
            state.meta = meta;
            state.context = context.as_ref().map(|context| context.clone_ref(py));
            state.counts = counts;
        }
        let value = match (&context, handler.takes_context) {
            (Some(context), true) => handler.call.call1(py, (object.bind(py), context.bind(py))),
            _ => handler.call.call1(py, (object.bind(py),)),
        };
        self.unless_returned(py, value.map_err(|error| errors::inside_next(py, error))?)
    }

    fn unless_returned(&self, py: Python<'_>, value: Py<PyAny>) -> PyResult<Option<Py<PyAny>>> {
        let coroutine = COROUTINE.import(py, "types", "CoroutineType")?;
        let value_type = value.bind(py).get_type();
        if value_type.is(coroutine) || value_type.hasattr(pyo3::intern!(py, "__await__"))? {
            return Ok(Some(value));
        }
        self.returned(py, value);
        Ok(None)
    }

    /// Reports the end of the present call, and takes the next message if `more`.
    fn finish_and_take(&self, py: Python<'_>, more: bool) -> Option<Envelope<Message>> {
        let (context, meta, counts, message) = self.take_present();
        drop(message);
        if let Some(context) = context {
            for change in context.bind(py).get().take_changes() {
                change_behaviour(&mut self.behaviours.lock(), change);
            }
            context.bind(py).get().returned(py.None());
            drop(context);
        }
        self.cell.outside(|turn| {
            if counts {
                turn.handled(meta);
            }
            if more { turn.take() } else { None }
        })
    }

    fn call_hook(&self, py: Python<'_>, hook: &Handler) -> PyResult<Option<Py<PyAny>>> {
        if !hook.takes_context {
            let value = hook.call.call0(py);
            return self.unless_returned(py, value.map_err(|error| errors::inside_next(py, error))?);
        }
        let context = self.context(py, None, None, 0)?;
        self.state.lock().context = Some(context.clone_ref(py));
        let value = hook.call.call1(py, (context.bind(py),));
        self.unless_returned(py, value.map_err(|error| errors::inside_next(py, error))?)
    }

    fn context(
        &self,
        py: Python<'_>,
        sender: Option<Held<ActorRef>>,
        extra: Option<Extra>,
        failures: u32,
    ) -> PyResult<Py<Context>> {
        Py::new(py, Context::new(self.me.clone_ref(py), self.node.clone_ref(py), sender, extra, failures))
    }

    fn take_present(&self) -> (Option<Py<Context>>, MessageMeta, bool, Option<Message>) {
        let mut state = self.state.lock();
        (state.context.take(), state.meta.take(), std::mem::take(&mut state.counts), state.message.take())
    }
}
