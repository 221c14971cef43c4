//! Actors whose handlers are coroutines: they run on the node's event loop, in tasks.
//!
//! A task handles one message after the other. As long as handlers are over at their first step one
//! task is enough for a burst; once one of them waits for something, the others get tasks of their
//! own, as many as the actor may have.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pyo3::prelude::*;
use tidewire_engine::raw::Mutex;
use tidewire_engine::raw::{Activation, ActorCell, Behaviours, Driver, Envelope};
use tidewire_engine::{Fault, Signal};

use crate::actors::actor::ActorRef;
use crate::actors::coroutine_loop::{CoroutineLoop, First};
use crate::actors::function::{Handler, Parts, logged, reference, terminated};
use crate::actors::message::Message;
use crate::errors;
use crate::interpreter::attach::attach;
use crate::interpreter::once::Once;
use crate::interpreter::py_ref::PyRef;

/// Drives an actor by tasks of an event loop.
pub struct Coroutine {
    parts: Parts,
    behaviours: Arc<Mutex<Behaviours<Handler>>>,
    node: PyRef<PyAny>,
    me: Option<PyRef<ActorRef>>,
    concurrency: usize,
    tasks: Arc<Tasks>,
    stopping: Stopping,
}

/// The tasks of one actor. Only the thread of the loop changes it.
#[derive(Default)]
pub struct Tasks {
    active: AtomicUsize,
    /// Number of tasks that will take the next message themselves: they are about to begin, or
    /// their handler has not waited yet.
    taking: AtomicUsize,
    /// The last handler was over at its first step.
    quick: AtomicBool,
    /// Messages were left to the task that takes messages.
    has_leftover: AtomicBool,
    /// Messages for tasks that were started and have not begun. Whichever task takes next takes the
    /// first, so that messages begin in their order.
    line: Mutex<VecDeque<Envelope<Message>>>,
}

impl Tasks {
    fn began(&self) {
        self.active.fetch_add(1, Ordering::Relaxed);
        self.taking.fetch_add(1, Ordering::Relaxed);
    }

    /// The start of a new task, chosen so that messages begin in their order.
    fn begin_with(&self, envelope: Envelope<Message>, concurrency: usize) -> First {
        if concurrency == 1 {
            return First::Message(Box::new(envelope));
        }
        self.line.lock().push_back(envelope);
        First::InLine
    }

    /// True if the tasks with queued messages have ended without having begun.
    fn is_orphaned(&self) -> bool {
        self.active.load(Ordering::Relaxed) == 0 && !self.line.lock().is_empty()
    }

    /// The first of the messages that were taken for tasks which have not begun.
    pub fn first(&self) -> Option<Envelope<Message>> {
        self.line.lock().pop_front()
    }

    /// True if a task may take one more message after it has handed its own to another thread,
    /// which then uses its slot.
    pub fn has_capacity(&self, concurrency: usize) -> bool {
        self.active.load(Ordering::Relaxed) <= concurrency
    }

    /// A task has ended.
    pub fn end_task(&self, was_taking: bool) {
        self.active.fetch_sub(1, Ordering::Relaxed);
        if was_taking {
            self.taking.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The handler of a task waits for something. Returns true if messages are left that the task
    /// would have taken.
    pub fn waits(&self) -> bool {
        self.taking.fetch_sub(1, Ordering::Relaxed);
        self.quick.store(false, Ordering::Relaxed);
        self.has_leftover.swap(false, Ordering::Relaxed)
    }

    /// A handler is over, and its task takes the next message.
    pub fn take_again(&self, had_waited: bool) {
        if had_waited {
            self.taking.fetch_add(1, Ordering::Relaxed);
        } else {
            self.quick.store(true, Ordering::Relaxed);
        }
    }

    /// True if queued messages are left to the task that is taking messages.
    fn leaves(&self) -> bool {
        self.has_leftover.load(Ordering::Relaxed)
    }

    /// True if another task is of use.
    fn wants_another(&self, concurrency: usize) -> bool {
        if self.active.load(Ordering::Relaxed) >= concurrency {
            self.has_leftover.store(false, Ordering::Relaxed);
            return false;
        }
        let leaves = self.quick.load(Ordering::Relaxed) && self.taking.load(Ordering::Relaxed) > 0;
        self.has_leftover.store(leaves, Ordering::Relaxed);
        !leaves
    }
}

/// A place among the messages that an actor handles at once, of one that a thread handles. Dropping
/// it gives it back, from whichever thread.
pub struct ConcurrencyPermit {
    tasks: Arc<Tasks>,
    cell: Arc<ActorCell<Message>>,
}

impl ConcurrencyPermit {
    pub fn new(tasks: &Arc<Tasks>, cell: &Arc<ActorCell<Message>>) -> Self {
        tasks.active.fetch_add(1, Ordering::Relaxed);
        Self { tasks: Arc::clone(tasks), cell: Arc::clone(cell) }
    }
}

impl Drop for ConcurrencyPermit {
    fn drop(&mut self) {
        self.tasks.end_task(false);
        self.cell.resume_unless_idle();
    }
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
            tasks: Arc::default(),
            stopping: Stopping::No,
        }
    }

    /// Starts a task that begins with `envelope`, and goes on with what follows.
    fn launch(&mut self, py: Python<'_>, turn: &Activation<'_, Message>, first: First) -> Result<(), Fault> {
        let me = reference(py, &mut self.me, turn)?;
        let coroutines = CoroutineLoop::new(
            turn.cell().clone(),
            me,
            self.node.clone_ref(py),
            self.parts.handler.clone_ref(py),
            Arc::clone(&self.behaviours),
            Arc::clone(&self.tasks),
            first,
            self.concurrency,
        );
        self.tasks.began();
        crate::actors::bridge::has_coroutines();
        let started = Py::new(py, coroutines).and_then(|coroutines| start(py)?.call1((coroutines,)));
        started.map(drop).map_err(|error| {
            self.tasks.end_task(true);
            errors::fault(error)
        })
    }
}

impl Driver<Message> for Coroutine {
    fn wants_start(&self) -> bool {
        self.parts.started.is_some()
    }

    fn started(&mut self, turn: &mut Activation<'_, Message>) -> Result<(), Fault> {
        attach(|py| {
            let Some(hook) = self.parts.started.as_ref().map(|hook| hook.clone_ref(py)) else { return Ok(()) };
            self.launch(py, turn, First::Hook(hook))
        })
    }

    fn turn(&mut self, turn: &mut Activation<'_, Message>) {
        attach(|py| {
            while self.tasks.wants_another(self.concurrency) {
                let first = if self.tasks.is_orphaned() {
                    First::InLine
                } else {
                    let Some(envelope) = turn.take() else { return };
                    self.tasks.begin_with(envelope, self.concurrency)
                };
                if let Err(fault) = self.launch(py, turn, first) {
                    if let Some(me) = &self.me {
                        let _ =
                            logged(py, me, "task", pyo3::exceptions::PyRuntimeError::new_err(fault.to_string()), false);
                    }
                    return turn.awaiting();
                }
            }
            if self.tasks.leaves() { turn.leave() } else { turn.awaiting() }
        });
    }

    fn signal(&mut self, signal: Signal, turn: &mut Activation<'_, Message>) -> Result<(), Fault> {
        attach(|py| {
            let notice = terminated(py, &signal).map_err(errors::fault)?;
            self.launch(py, turn, First::Notice(notice.into()))
        })
    }

    fn finish(&mut self, turn: &mut Activation<'_, Message>) -> bool {
        if self.tasks.active.load(Ordering::Relaxed) > 0 {
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
        let before = std::mem::replace(&mut *self.behaviours.lock(), Behaviours::new());
        drop(before);
        if let Some(parts) = self.parts.remake()? {
            self.parts = parts;
        }
        Ok(())
    }
}

fn start<'a, 'py>(py: Python<'py>) -> PyResult<&'a Bound<'py, PyAny>> {
    static START: Once<Py<PyAny>> = Once::new();
    START.of(py, "tidewire._runtime.drive", "start")
}
