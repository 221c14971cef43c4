//! Thread workers of a service: actors that run its plain functions on the threads of a dispatcher,
//! one for each call under way.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use tidewire_engine::Stop;
use tidewire_engine::raw::{Envelope, Mutex};

use crate::actors::actor::ActorRef;
use crate::actors::message::Message;
use crate::arguments::{Priority, TimeoutArgument};
use crate::errors::{self, error};
use crate::interpreter::py_ref::PyRef;
use crate::pending::Pending;

/// The actors of one instance. They are made when they are needed, and stay.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct ThreadWorkers {
    /// Makes one more actor.
    spawn: Py<PyAny>,
    /// Most actors, and most calls that wait for a busy one.
    calls: usize,
    waiting: usize,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Each actor with the number of its jobs.
    members: Vec<(PyRef<ActorRef>, usize)>,
    /// The members without a job. The last one was busy last.
    free: Vec<usize>,
    spawning: usize,
    jobs: usize,
    turn: usize,
    closed: bool,
}

/// The decision for one job, which counts from now on.
enum Assignment {
    Member(usize),
    /// One more member, if it can be made.
    Spawn,
    Full,
    Closed,
}

impl State {
    /// Decides which member gets a job: the free one that was busy last, a new one, or each of the
    /// busy ones in turn.
    fn assign(&mut self, jobs_max: usize, members_max: usize) -> Assignment {
        if self.jobs >= jobs_max {
            return Assignment::Full;
        }
        if self.free.is_empty() && self.closed {
            return Assignment::Closed;
        }
        self.jobs += 1;
        if self.free.is_empty() && self.members.len() + self.spawning < members_max {
            self.spawning += 1;
            return Assignment::Spawn;
        }
        Assignment::Member(self.take_member())
    }

    fn take_member(&mut self) -> usize {
        let member = self.free.pop().unwrap_or_else(|| {
            self.turn = (self.turn + 1) % self.members.len();
            self.turn
        });
        self.members[member].1 += 1;
        member
    }
}

/// A job of one member. Dropping it frees the member, from whichever thread.
pub struct WorkerSlot {
    state: Arc<Mutex<State>>,
    member: usize,
}

impl Drop for WorkerSlot {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        state.jobs -= 1;
        state.members[self.member].1 -= 1;
        if state.members[self.member].1 == 0 && !state.closed {
            state.free.push(self.member);
        }
    }
}

impl ThreadWorkers {
    /// Sends the job that `make` returns to a member. `limited` bounds the jobs that run or wait.
    ///
    /// # Errors
    /// `MailboxFull` if too many jobs run or wait, `ActorStopped` if the service is stopping.
    pub fn send(
        &self,
        py: Python<'_>,
        make: impl FnOnce(WorkerSlot) -> PyResult<Py<PyAny>>,
        priority: tidewire_engine::Priority,
        limited: bool,
    ) -> PyResult<()> {
        let (slot, actor) = self.assign(py, limited)?;
        let inner = &actor.get().inner;
        inner.check(py)?;
        let envelope = Envelope::Plain(Message::plain(make(slot)?));
        inner.cell().push(envelope, priority).map(drop).map_err(|(refusal, envelope)| {
            drop(envelope);
            errors::refusal(py, refusal, inner.name())
        })
    }

    fn assign(&self, py: Python<'_>, limited: bool) -> PyResult<(WorkerSlot, PyRef<ActorRef>)> {
        let jobs_max = if limited { self.calls + self.waiting } else { usize::MAX };
        let assignment = self.state.lock().assign(jobs_max, self.calls);
        let stopping = || error(py, "ActorStopped", "its service is stopping: call another instance", &[]);
        let member = match assignment {
            Assignment::Member(member) => member,
            Assignment::Spawn => self.add_member(py)?.ok_or_else(stopping)?,
            Assignment::Closed => return Err(stopping()),
            Assignment::Full => {
                let text = format!("service_waiting={}: so many calls wait already: try again later", self.waiting);
                return Err(error(py, "MailboxFull", &text, &[]));
            }
        };
        let actor = self.state.lock().members[member].0.clone_ref(py);
        Ok((WorkerSlot { state: Arc::clone(&self.state), member }, actor))
    }

    /// Spawns a member, without the lock. None: the workers were closed meanwhile.
    fn add_member(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        let spawned = self.spawn(py);
        let is_stopping = spawned.as_ref().is_err_and(|failure| errors::is(py, failure, "ActorStopped"));
        let mut state = self.state.lock();
        state.spawning -= 1;
        match spawned {
            Ok(actor) if !state.closed => {
                state.members.push((actor, 1));
                return Ok(Some(state.members.len() - 1));
            }
            // Calls that wait while the parent stops go to the actors there are.
            Err(_) if is_stopping => return Ok(Some(state.take_member())),
            _ => state.jobs -= 1,
        }
        drop(state);
        spawned.map(|actor| actor.get().inner.stop_quietly()).map(|()| None)
    }

    fn spawn(&self, py: Python<'_>) -> PyResult<PyRef<ActorRef>> {
        Ok(self.spawn.bind(py).call0()?.cast_into::<ActorRef>()?.into())
    }
}

#[pymethods]
impl ThreadWorkers {
    /// Spawns the first actor, so that a dispatcher that does not exist is found before the first
    /// call.
    #[new]
    fn new(py: Python<'_>, spawn: Py<PyAny>, calls: usize, waiting: usize) -> PyResult<Self> {
        let workers = Self { spawn, calls, waiting, state: Arc::default() };
        let first = workers.spawn(py)?;
        *workers.state.lock() = State { members: vec![(first, 0)], free: vec![0], ..State::default() };
        Ok(workers)
    }

    /// The actors there are.
    #[getter]
    fn actors(&self, py: Python<'_>) -> Vec<PyRef<ActorRef>> {
        self.state.lock().members.iter().map(|(actor, _)| actor.clone_ref(py)).collect()
    }

    /// Runs something, and returns its reply to come and its job.
    ///
    /// Raises:
    ///     ActorStopped: if the service is stopping.
    ///     MailboxFull: if too many wait.
    fn ask(
        &self,
        py: Python<'_>,
        work: Py<PyAny>,
        timeout: TimeoutArgument,
        priority: Option<Priority>,
    ) -> PyResult<(Pending, Py<WorkerCall>)> {
        let (slot, actor) = self.assign(py, true)?;
        let job = Py::new(py, WorkerCall { work, slot: Mutex::new(Some(slot)) })?;
        Ok((actor.get().ask(py, job.clone_ref(py).into_any(), timeout, priority)?, job))
    }

    /// Runs something, however many jobs wait.
    ///
    /// Raises:
    ///     ActorStopped: if the service is stopping.
    fn tell(&self, py: Python<'_>, work: Py<PyAny>, priority: Option<Priority>) -> PyResult<()> {
        let make = |slot| Ok(Py::new(py, WorkerCall { work, slot: Mutex::new(Some(slot)) })?.into_any());
        self.send(py, make, Priority::lane(priority), false)
    }

    /// Makes no more actors, as those there are will be stopped.
    fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.free.clear();
    }

    /// Closes, and stops all actors at once.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        self.close();
        for actor in self.actors(py) {
            drop(actor.get().inner.checked(py)?.stop(Stop { drain: false, timeout: Duration::ZERO }));
        }
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.spawn)
    }
}

/// Something to run by a member, for a caller of this process.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct WorkerCall {
    work: Py<PyAny>,
    slot: Mutex<Option<WorkerSlot>>,
}

#[pymethods]
impl WorkerCall {
    /// Runs it. Its actor is free for the next job afterwards.
    fn run(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let ran = self.work.call0(py);
        self.over();
        ran
    }

    /// Releases the slot after the run, or without one. A second time does nothing.
    fn over(&self) {
        let slot = self.slot.lock().take();
        drop(slot);
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.work)
    }
}
