//! Task of a coroutine actor on an event loop, which runs the handler of each message in turn.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::exceptions::PyStopIteration;
use pyo3::prelude::*;
use tidewire_engine::raw::Mutex;
use tidewire_engine::raw::{ActorCell, Behaviours, Change, Envelope};

use crate::actors::actor::{ActorRef, MessageMeta};
use crate::actors::context::Context;
use crate::actors::coroutine::{ConcurrencyPermit, Tasks};
use crate::actors::function::{Handler, change_behaviour, logged, unreadable};
use crate::actors::message::{Extra, Message};
use crate::errors;
use crate::interpreter::PerProcessOwned;
use crate::interpreter::attach::attach;
use crate::interpreter::once::Once;
use crate::interpreter::py_ref::PyRef;
use crate::interpreter::steps::{Step, Steps, is_awaitable, is_cancelled, is_coroutine};
use crate::link::InstanceEndpoint;

/// Most messages that one task handles before it yields to other tasks.
const TURN: u32 = 256;

/// The start of a task: its first message, notice or hook.
pub enum First {
    Message(Box<Envelope<Message>>),
    /// With the first message that was taken for a task, unless another one has it by now.
    InLine,
    Notice(PyRef<PyAny>),
    Hook(Handler),
}

/// The coroutine that a task of a coroutine actor runs. The engine makes it, and only
/// `tidewire._runtime.drive` gives it to a task.
#[pyclass(frozen, weakref, module = "tidewire._tidewire")]
pub struct CoroutineLoop {
    cell: Arc<ActorCell<Message>>,
    me: PyRef<ActorRef>,
    node: PerProcessOwned<PyRef<PyAny>>,
    base: Handler,
    behaviours: Arc<Mutex<Behaviours<Handler>>>,
    tasks: Arc<Tasks>,
    /// Most messages that the actor handles at once.
    concurrency: usize,
    state: Mutex<Present>,
}

#[derive(Default)]
struct Present {
    first: Option<First>,
    /// The running handler.
    running: Option<Steps>,
    waits: bool,
    /// A handler has raised, which may end the actor.
    failed: bool,
    has_ended: bool,
    /// The task itself, once it has begun.
    task: Option<Py<PyAny>>,
    message: Option<Message>,
    meta: MessageMeta,
    context: Option<Py<Context>>,
    handled: u32,
    /// When the present call began, if it is timed.
    began: Option<Instant>,
    /// The present item counts as a message of the mailbox.
    counts: bool,
}

#[pymethods]
impl CoroutineLoop {
    fn __await__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.go_on(py, None)
    }

    /// Goes on, as a coroutine does. A task sends nothing but None.
    fn send(&self, py: Python<'_>, value: Py<PyAny>) -> PyResult<Py<PyAny>> {
        drop(value);
        self.go_on(py, None)?.ok_or_else(|| PyStopIteration::new_err(()))
    }

    /// Raises an error where the handler waits, as a coroutine does.
    fn throw(&self, py: Python<'_>, error: Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let error = PyErr::from_value(error);
        self.go_on(py, Some(error))?.ok_or_else(|| PyStopIteration::new_err(()))
    }

    /// Abandons the running handler.
    fn close(&self) {
        self.end();
    }

    /// The name that the task shows.
    #[getter]
    fn __name__(&self) -> String {
        format!("handlers of {}", self.me.get().__repr__())
    }

    /// The actor whose messages it takes.
    #[getter]
    fn actor(&self, py: Python<'_>) -> PyRef<ActorRef> {
        self.me.clone_ref(py)
    }

    /// A reference to its node.
    #[getter]
    fn node(&self, py: Python<'_>) -> PyRef<PyAny> {
        self.node.clone_ref(py)
    }

    /// True for an actor that handles one message at a time.
    #[getter]
    fn alone(&self) -> bool {
        self.concurrency == 1
    }
}

impl CoroutineLoop {
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        cell: Arc<ActorCell<Message>>,
        me: PyRef<ActorRef>,
        node: PyRef<PyAny>,
        base: Handler,
        behaviours: Arc<Mutex<Behaviours<Handler>>>,
        tasks: Arc<Tasks>,
        first: First,
        concurrency: usize,
    ) -> Self {
        let state = Mutex::new(Present { first: Some(first), ..Present::default() });
        Self { cell, me, node: PerProcessOwned::new(node), base, behaviours, tasks, concurrency, state }
    }

    /// Handles messages until a handler waits, and answers what it waits for; None when there are
    /// no more.
    fn go_on(&self, py: Python<'_>, mut thrown: Option<PyErr>) -> PyResult<Option<Py<PyAny>>> {
        self.node.back(py, Ok(()))?;
        let task = match self.task(py) {
            Ok(task) => task,
            Err(error) => {
                self.end();
                return Err(error);
            }
        };
        loop {
            let running = self.state.lock().running.take();
            let stepped = match running {
                Some(steps) => self.step(py, steps, &task, thrown.take()),
                None => match thrown.take() {
                    // The task was cancelled before it began.
                    Some(error) => {
                        self.end();
                        return Err(error);
                    }
                    None => match self.next(py) {
                        Ok(Some(steps)) => self.step(py, steps, &task, None),
                        Ok(None) => {
                            self.end();
                            return Ok(None);
                        }
                        Err(error) => Err(error),
                    },
                },
            };
            match self.node.back(py, stepped) {
                Ok(Some(waits)) => return Ok(Some(waits)),
                Ok(None) => {}
                // An exception of a handler concerns its message and its actor, never the loop. The
                // CancelledError of this very task ends it, once the message is accounted for.
                Err(error) => {
                    self.take_again();
                    let ends = is_cancelled(py, &error);
                    if !self.failed(py, error) || ends {
                        self.end();
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// One step of the running handler. Some: it waits for this.
    fn step(
        &self,
        py: Python<'_>,
        steps: Steps,
        task: &Py<PyAny>,
        thrown: Option<PyErr>,
    ) -> PyResult<Option<Py<PyAny>>> {
        match steps.step(py, task, thrown)? {
            Step::Waits(what) => {
                let waited = {
                    let mut state = self.state.lock();
                    state.running = Some(steps);
                    std::mem::replace(&mut state.waits, true)
                };
                if !waited && self.tasks.waits() {
                    self.cell.resume();
                }
                Ok(Some(what))
            }
            Step::Returned(value) => {
                self.take_again();
                if !value.is_none(py) {
                    self.returned(py, value);
                }
                Ok(None)
            }
        }
    }

    /// This task takes messages again.
    fn take_again(&self) {
        let waited = std::mem::take(&mut self.state.lock().waits);
        self.tasks.take_again(waited);
    }

    /// The task itself; what it runs sees its actor.
    fn task(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        static BEGIN: Once<Py<PyAny>> = Once::new();
        if let Some(task) = &self.state.lock().task {
            return Ok(task.clone_ref(py));
        }
        let begin = BEGIN.of(py, "tidewire._runtime.drive", "begin")?;
        let task = begin.call1((self.me.bind(py), self.alone()))?.unbind();
        self.state.lock().task = Some(task.clone_ref(py));
        Ok(task)
    }

    /// The next call to make. Asking for it says that the one before has returned.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Steps>> {
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
                Some(First::InLine) | None => {
                    let more = !tired && self.tasks.has_capacity(self.concurrency);
                    self.finish_and_take(py, more)
                }
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
                        self.change_behaviour(change);
                    }
                    self.cell.outside(|turn| turn.handled(meta));
                }
            }
        }
    }

    /// The present call has returned something else than None.
    fn returned(&self, py: Python<'_>, value: Py<PyAny>) {
        let context = self.state.lock().context.as_ref().map(|context| context.clone_ref(py));
        if let Some(context) = context {
            context.bind(py).get().returned(value);
        }
    }

    /// The present call has raised. Returns true if the task may go on.
    fn failed(&self, py: Python<'_>, error: PyErr) -> bool {
        self.state.lock().failed = true;
        let (context, meta, counts, message) = self.take_present();
        let message = match (&context, message) {
            (Some(context), Some(message)) => Some(context.bind(py).get().take_back(py, message.into_parts().0)),
            (_, message) => message,
        };
        if counts && errors::says_expired(py, &error) {
            self.cell.outside(|turn| turn.expired_in_handler(message, meta, errors::fault(error)));
            return true;
        }
        let is_ask = meta.as_ref().is_some_and(|meta| meta.ask.is_some());
        let (error, final_) = errors::given_up(py, error);
        let fault = logged(py, &self.me, "receive", error, is_ask);
        if let Some(context) = &context {
            for change in context.bind(py).get().take_changes() {
                self.change_behaviour(change);
            }
        }
        if counts {
            let took = self.took();
            self.cell.outside(|turn| {
                if let Some(took) = took {
                    turn.timed(took);
                }
                if final_ { turn.given_up(message, meta, fault) } else { turn.failed(message, meta, fault) }
            })
        } else {
            self.cell.outside(|turn| turn.after_failure(fault.to_string()))
        }
    }

    /// The task is over: the actor looks at its mailbox itself again.
    fn end(&self) {
        let (task, running, waits, failed) = {
            let mut state = self.state.lock();
            if std::mem::replace(&mut state.has_ended, true) {
                return;
            }
            (state.task.take(), state.running.take(), state.waits, state.failed || state.first.is_some())
        };
        attach(|py| {
            let ended = task.map_or(Ok(()), |task| end_task(py, &task));
            if let Err(error) = ended {
                error.write_unraisable(py, None);
            }
        });
        self.tasks.end_task(!waits);
        if failed || running.is_some() {
            self.cell.resume();
        } else {
            self.cell.resume_unless_idle();
        }
    }
}

impl CoroutineLoop {
    /// Calls the handler. None: it was a plain function, and has returned already.
    fn call(&self, py: Python<'_>, mut message: Message, meta: MessageMeta, counts: bool) -> PyResult<Option<Steps>> {
        if let Err(error) = message.open(py) {
            unreadable(py, &self.me, error);
            self.take_again();
            self.cell.outside(|turn| turn.handled(meta));
            return Ok(None);
        }
        let handler = self.behaviours.lock().top().map(|handler| handler.clone_ref(py));
        let handler = handler.as_ref().unwrap_or(&self.base);
        let (object, sender, extra) = message.into_parts();
        let needs = handler.takes_context || extra.as_ref().is_some_and(|extra| extra.reply.is_some());
        let failures = meta.as_ref().map_or(0, |meta| meta.failures);
        let (context, stored) = if needs {
            let context = self.context(py, sender, extra.map(|extra| *extra), failures)?;
            (Some(context), Message::plain(object.clone_ref(py)))
        } else {
            (None, Message::new(object.clone_ref(py), sender, extra))
        };
        {
            let mut state = self.state.lock();
            state.handled += 1;
            state.message = Some(stored);
            state.meta = meta;
            state.context = context.as_ref().map(|context| context.clone_ref(py));
            state.counts = counts;
            state.began = (counts && self.cell.is_timed()).then(Instant::now);
        }
        if let Ok(endpoint) = handler.call.bind(py).cast::<InstanceEndpoint>() {
            let steps =
                InstanceEndpoint::begin(endpoint, object.bind(py), || ConcurrencyPermit::new(&self.tasks, &self.cell));
            if matches!(steps, Ok(None)) {
                self.take_again();
            }
            return steps;
        }
        let value = match (&context, handler.takes_context) {
            (Some(context), true) => handler.call.call1(py, (object.bind(py), context.bind(py))),
            _ => handler.call.call1(py, (object.bind(py),)),
        };
        self.unless_returned(py, value)
    }

    fn unless_returned(&self, py: Python<'_>, value: PyResult<Py<PyAny>>) -> PyResult<Option<Steps>> {
        let value = value.map_err(|error| errors::inside_next(py, error))?;
        let awaitable = value.bind(py);
        if is_coroutine(awaitable)? || is_awaitable(awaitable) {
            return Steps::of(awaitable).map(Some);
        }
        self.take_again();
        self.node.back(py, Ok(()))?;
        self.returned(py, value);
        Ok(None)
    }

    /// Reports the end of the present call, and takes the next message if `more`.
    fn finish_and_take(&self, py: Python<'_>, more: bool) -> Option<Envelope<Message>> {
        let (context, meta, counts, message) = self.take_present();
        let took = self.took();
        drop(message);
        if let Some(context) = context {
            for change in context.bind(py).get().take_changes() {
                self.change_behaviour(change);
            }
            context.bind(py).get().returned(py.None());
            drop(context);
        }
        self.cell.outside(|turn| {
            if counts {
                turn.handled(meta);
            }
            if let Some(took) = took {
                turn.timed(took);
            }
            if more { self.tasks.first().or_else(|| turn.take()) } else { None }
        })
    }

    fn call_hook(&self, py: Python<'_>, hook: &Handler) -> PyResult<Option<Steps>> {
        if !hook.takes_context {
            let value = hook.call.call0(py);
            return self.unless_returned(py, value);
        }
        let context = self.context(py, None, None, 0)?;
        self.state.lock().context = Some(context.clone_ref(py));
        let value = hook.call.call1(py, (context.bind(py),));
        self.unless_returned(py, value)
    }

    fn context(
        &self,
        py: Python<'_>,
        sender: Option<PyRef<ActorRef>>,
        extra: Option<Extra>,
        failures: u32,
    ) -> PyResult<Py<Context>> {
        Py::new(py, Context::new(self.me.clone_ref(py), self.node.clone_ref(py), sender, extra, failures))
    }

    fn change_behaviour(&self, change: Change) {
        let before = change_behaviour(&mut self.behaviours.lock(), change);
        drop(before);
    }

    /// Time of the present call with all its waits, if it is timed.
    fn took(&self) -> Option<Duration> {
        self.state.lock().began.take().map(|began| began.elapsed())
    }

    fn take_present(&self) -> (Option<Py<Context>>, MessageMeta, bool, Option<Message>) {
        let mut state = self.state.lock();
        (state.context.take(), state.meta.take(), std::mem::take(&mut state.counts), state.message.take())
    }
}

/// Says that a task is at its end.
fn end_task(py: Python<'_>, task: &Py<PyAny>) -> PyResult<()> {
    static OVER: Once<Py<PyAny>> = Once::new();
    let over = OVER.of(py, "tidewire._runtime.drive", "over")?;
    over.call1((task,)).map(drop)
}
