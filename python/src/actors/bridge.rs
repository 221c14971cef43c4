//! The bridge between the engine's threads and one asyncio event loop: one wake-up per burst, in
//! either direction.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::interpreter::attach::{attach, of_this_thread};
use crate::interpreter::py_ref::{PyRef, collect};
use pyo3::call::PyCallArgs;
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyType;
use tidewire_engine::External;
use tidewire_engine::raw::Mutex;

use crate::interpreter::PerProcessOwned;
use crate::interpreter::asyncio::running_loop;
use crate::interpreter::once::{Once, intern};
use crate::interpreter::wait::nonblocking_pipe;
use crate::pending::Pending;

/// Most completions that one pass of the loop handles before other callbacks get their turn.
const PASS: usize = 1024;

/// The name of the dispatcher that runs coroutines.
pub const LOOP: &str = "asyncio";

/// Handle of an event loop for other threads.
pub struct LoopHandle {
    completed: Mutex<Vec<PyRef<Pending>>>,
    externals: Mutex<Vec<Arc<External>>>,
    inlets: Mutex<Vec<Arc<dyn LoopSource>>>,
    woken: AtomicBool,
    writer: OwnedFd,
    reader: OwnedFd,
    /// The loop itself, while it is open.
    event_loop: Mutex<Option<PyRef<PyAny>>>,
    call_soon: Mutex<Option<(PyRef<PyAny>, PyRef<PyAny>)>>,
    /// The loop's functions that add and remove a reader of a descriptor.
    watching: Mutex<Option<(PyRef<PyAny>, PyRef<PyAny>)>>,
}

thread_local! {
    static HERE: RefCell<Option<PerProcessOwned<LastLoop>>> = const { RefCell::new(None) };
    static COROUTINES: Cell<bool> = const { Cell::new(false) };
}

/// The loop that ran last on this thread.
struct LastLoop {
    line: Arc<LoopHandle>,
    /// Its address.
    at: usize,
    /// The thread's running-loop note by asyncio at the start of the loop, where CPython has such a
    /// note.
    note: Option<PyRef<PyAny>>,
}

impl LastLoop {
    /// Notes a loop that runs on this thread now.
    fn note(running: &Bound<'_, PyAny>, line: Arc<LoopHandle>) {
        let note = note_of_asyncio(running.py()).map(PyRef::from);
        HERE.set(Some(PerProcessOwned::new(Self { line, at: running.as_ptr() as usize, note })));
    }
}

/// True if an event loop runs on this thread. Does not load asyncio.
pub fn on_a_loop(py: Python<'_>) -> PyResult<bool> {
    static GET: Once<Py<PyAny>> = Once::new();
    let get = GET.of(py, "tidewire._runtime.current", "running_loop")?;
    Ok(!get.call0()?.is_none())
}

/// Reports an exception of a callback that the loop would have called itself. The exception handler
/// of the loop decides.
pub fn raised(py: Python<'_>, error: PyErr) {
    pass_on(py, "raised", error);
}

/// Ctrl-C may come while a handler runs. It fails its message, and ends the program all the same.
pub fn interrupted(py: Python<'_>, error: &PyErr) {
    if error.is_instance_of::<PyKeyboardInterrupt>(py) {
        pass_on(py, "interrupted", error.clone_ref(py));
    }
}

fn pass_on(py: Python<'_>, how: &str, error: PyErr) {
    let called = PyModule::import(py, "tidewire._runtime.loop")
        .and_then(|module| module.getattr(how)?.call1((error.into_value(py),)).map(drop));
    if let Err(failure) = called {
        failure.write_unraisable(py, None);
    }
}

/// Notes that coroutine actors run on this thread.
pub fn has_coroutines() {
    COROUTINES.set(true);
}

/// True once a coroutine actor has run on this thread.
pub fn runs_coroutines() -> bool {
    COROUTINES.get()
}

/// The line of the loop that runs on this thread, if it has one already.
pub fn known_line(py: Python<'_>) -> Option<Arc<LoopHandle>> {
    still_running(py).or_else(|| line_of(&running_loop(py).ok()?))
}

/// The line of the loop that runs on this thread. `tidewire._runtime.loop` makes it if there is
/// none yet.
pub fn line_here(py: Python<'_>) -> PyResult<Arc<LoopHandle>> {
    if let Some(line) = still_running(py) {
        return Ok(line);
    }
    let running = running_loop(py)?;
    let line = match line_of(&running) {
        Some(line) => line,
        None => {
            let bridge = PyModule::import(py, "tidewire._runtime.loop")?.getattr("bridge_of")?.call1((&running,))?;
            Arc::clone(&bridge.cast::<Bridge>()?.get().line)
        }
    };
    LastLoop::note(&running, Arc::clone(&line));
    Ok(line)
}

/// The line of the loop that ran last, if that runs on this thread now. asyncio itself is not
/// asked: up to CPython 3.11 it asks the system for the number of the process before it answers.
fn still_running(py: Python<'_>) -> Option<Arc<LoopHandle>> {
    HERE.with_borrow(|here| {
        let last = here.as_ref()?.mine()?;
        let note = last.note.as_ref()?;
        note_of_asyncio(py)?.is(&**note).then(|| Arc::clone(&last.line))
    })
}

/// The line of a loop, if it is the one that ran last.
fn line_of(running: &Bound<'_, PyAny>) -> Option<Arc<LoopHandle>> {
    let at = running.as_ptr() as usize;
    HERE.with_borrow(|here| here.as_ref()?.mine().filter(|last| last.at == at).map(|last| Arc::clone(&last.line)))
}

/// The running-loop note of asyncio for this thread, which changes whenever a loop begins or ends
/// here. Up to CPython 3.11 the note is a new object each time, then the loop itself or None.
/// CPython 3.14 and later have no such note.
fn note_of_asyncio(py: Python<'_>) -> Option<Bound<'_, PyAny>> {
    of_this_thread(py)?.get_item(intern!(py, "__asyncio_running_event_loop__")).ok()?
}

/// A source of work for a loop, outside of the engine.
pub trait LoopSource: Send + Sync {
    /// Does what has come in. On the loop's thread.
    fn run(&self, py: Python<'_>);
}

/// The reason and the fix where handlers wait for a loop that nobody runs.
pub const NOT_RUNNING: &str = "the event loop of its handlers does not run, because run_until_complete() has \
     returned or the loop was stopped: run the loop as long as others call, with run_forever() or in asyncio.run()";

impl LoopHandle {
    /// True unless the loop is open and does not run.
    pub fn is_running(&self, py: Python<'_>) -> bool {
        let Some(event_loop) = self.event_loop(py) else { return true };
        event_loop.call_method0("is_running").and_then(|running| running.is_truthy()).unwrap_or(true)
    }

    /// Runs an source whenever the loop is woken.
    pub fn add_source(&self, source: Arc<dyn LoopSource>) {
        self.inlets.lock().push(source);
    }

    /// Runs it no more.
    pub fn remove_source(&self, source: &Arc<dyn LoopSource>) {
        self.inlets.lock().retain(|other| !Arc::ptr_eq(other, source));
    }

    /// The loop, as long as it is open.
    pub fn event_loop<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.event_loop.lock().as_ref().map(|running| running.bind(py).clone())
    }

    /// Schedules a call, if this is the thread of the loop and the loop is open. Returns true if it
    /// will be called.
    pub fn soon(&self, py: Python<'_>, what: Py<PyAny>) -> bool {
        let soon = self.call_soon.lock().as_ref().map(|(soon, _)| soon.clone_ref(py));
        soon.is_some_and(|soon| in_no_context(py, (&*soon, what)).is_ok())
    }

    /// Registers a callback of the loop for a readable descriptor. On the loop's thread.
    ///
    /// # Errors
    /// The exception of the loop if it can't watch the descriptor, or an error if the loop is
    /// closed.
    pub fn watch(&self, py: Python<'_>, descriptor: i32, call: Py<PyAny>) -> PyResult<()> {
        let add = self.watching.lock().as_ref().map(|(add, _)| add.clone_ref(py));
        let Some(add) = add else { return Err(PyRuntimeError::new_err("the event loop is closed")) };
        in_no_context(py, (&*add, descriptor, call)).map(drop)
    }

    /// Removes the callback of a descriptor. On the loop's thread.
    pub fn unwatch(&self, py: Python<'_>, descriptor: i32) {
        let remove = self.watching.lock().as_ref().map(|(_, remove)| remove.clone_ref(py));
        if let Some(Err(error)) = remove.map(|remove| remove.call1(py, (descriptor,))) {
            raised(py, error);
        }
    }

    /// Does what has come in by `act`, on the loop's own thread, without a wake-up for it.
    pub fn take_in<T: Send>(&self, py: Python<'_>, act: impl FnOnce() -> T + Send) -> PyResult<T> {
        self.woken.store(true, Ordering::SeqCst);
        let done = crate::interpreter::attach::detach(py, act);
        self.run(py).map(|()| done)
    }

    /// Hands a pending over that can be looked at again, from any thread.
    pub fn complete(&self, pending: PyRef<Pending>) {
        self.completed.lock().push(pending);
        self.wake();
    }

    /// Wakes the loop, once per burst.
    pub fn wake(&self) {
        if self.woken.swap(true, Ordering::SeqCst) {
            return;
        }
        let here = HERE.with_borrow(|here| here.as_ref().is_some_and(|last| std::ptr::eq(last.line.as_ref(), self)));
        if here && attach(|py| self.call_soon(py)) {
            return;
        }
        // A full pipe wakes the loop as well as an empty one.
        let _ = rustix::io::write(&self.writer, &[1]);
    }

    /// Looks at what is complete, and runs the actors that are ready.
    fn run(&self, py: Python<'_>) -> PyResult<()> {
        // This pass also handles changes that this thread makes meanwhile: they need no wake-up.
        self.woken.store(true, Ordering::SeqCst);
        self.pass(py);
        self.woken.store(false, Ordering::SeqCst);
        // Another thread that added work before this store sent no wake-up.
        self.pass(py);
        if !self.completed.lock().is_empty() {
            self.wake();
        }
        Ok(())
    }

    fn pass(&self, py: Python<'_>) {
        collect(py);
        let completed = {
            let mut completed = self.completed.lock();
            let n = completed.len().min(PASS);
            let rest = completed.split_off(n);
            std::mem::replace(&mut *completed, rest)
        };
        for pending in completed {
            Pending::poll_and_call_back(&pending, py);
        }
        // Inbound frames make actors ready.
        let inlets = self.inlets.lock().clone();
        for source in inlets {
            source.run(py);
        }
        let externals = self.externals.lock().clone();
        for external in externals {
            external.run_ready();
        }
    }

    /// On the loop's own thread a callback is cheaper than the pipe.
    fn call_soon(&self, py: Python<'_>) -> bool {
        let call = self.call_soon.lock().as_ref().map(|(soon, run)| (soon.clone_ref(py), run.clone_ref(py)));
        call.is_some_and(|(soon, run)| in_no_context(py, (&*soon, &*run)).is_ok())
    }
}

/// Schedules a callback of a loop in an empty context. The loop would otherwise copy the context of
/// the caller, which may be a running actor: all woken work would run as that actor's.
fn in_no_context<'py>(py: Python<'py>, call: impl PyCallArgs<'py>) -> PyResult<Bound<'py, PyAny>> {
    static CONTEXT: Once<Py<PyType>> = Once::new();
    CONTEXT.of(py, "contextvars", "Context")?.call0()?.call_method1(intern!(py, "run"), call)
}

/// The end of the bridge on the event loop. `tidewire._runtime.loop` makes one per loop.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct Bridge {
    pub line: Arc<LoopHandle>,
}

#[pymethods]
impl Bridge {
    #[new]
    fn new() -> PyResult<Self> {
        let (reader, writer) = nonblocking_pipe()?;
        let line = LoopHandle {
            completed: Mutex::default(),
            externals: Mutex::default(),
            inlets: Mutex::default(),
            woken: AtomicBool::new(false),
            writer,
            reader,
            event_loop: Mutex::new(None),
            call_soon: Mutex::new(None),
            watching: Mutex::new(None),
        };
        Ok(Self { line: Arc::new(line) })
    }

    /// The file descriptor that is readable when the loop shall call `drain`.
    fn fileno(&self) -> i32 {
        self.line.reader.as_raw_fd()
    }

    /// Says whose it is, how to run `drain` soon, and how to watch a descriptor, from the loop's
    /// own thread.
    fn open(
        &self,
        event_loop: Py<PyAny>,
        call_soon: Py<PyAny>,
        run: Py<PyAny>,
        add_reader: Py<PyAny>,
        remove_reader: Py<PyAny>,
    ) {
        *self.line.event_loop.lock() = Some(event_loop.into());
        *self.line.call_soon.lock() = Some((call_soon.into(), run.into()));
        *self.line.watching.lock() = Some((add_reader.into(), remove_reader.into()));
    }

    /// Releases the loop.
    fn close(&self) {
        let line = &self.line;
        let functions = (line.event_loop.lock().take(), line.call_soon.lock().take(), line.watching.lock().take());
        drop(functions);
        let last = HERE.with_borrow_mut(|here| here.take_if(|last| Arc::ptr_eq(&last.line, line)));
        drop(last);
    }

    /// Marks this thread as the one that runs the loop.
    fn enter(&self, running: &Bound<'_, PyAny>) {
        LastLoop::note(running, Arc::clone(&self.line));
    }

    /// Empties the pipe, then does what `run` does.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        let mut rung = [0; 64];
        while matches!(rustix::io::read(&self.line.reader, &mut rung), Ok(n) if n == rung.len()) {}
        self.run(py)
    }

    /// Looks at what is complete, and runs the actors that are ready.
    fn run(&self, py: Python<'_>) -> PyResult<()> {
        self.line.run(py)
    }
}

/// The place of a node's coroutine actors: a dispatcher whose loop becomes known later.
#[derive(Clone, Default)]
pub struct DeferredLoop {
    line: Arc<Mutex<Option<Arc<LoopHandle>>>>,
}

impl DeferredLoop {
    /// A dispatcher that wakes the loop bound to this place.
    pub fn external(&self) -> Arc<External> {
        let (place, of_hint) = (self.clone(), self.clone());
        let wakeup = Box::new(move || {
            let line = place.line.lock().clone();
            if let Some(line) = line {
                line.wake();
            }
        });
        let hint = Box::new(move || {
            let line = of_hint.line.lock().clone()?;
            crate::interpreter::attach::attach(|py| (!line.is_running(py)).then(|| NOT_RUNNING.to_owned()))
        });
        External::explained(wakeup, hint)
    }

    /// Binds the loop. Actors that became ready before are run now.
    pub fn bind(&self, line: &Arc<LoopHandle>, external: &Arc<External>) {
        line.externals.lock().push(Arc::clone(external));
        *self.line.lock() = Some(Arc::clone(line));
        line.wake();
    }

    /// Releases the loop.
    pub fn unbind(&self, external: &Arc<External>) {
        let line = self.line.lock().take();
        if let Some(line) = line {
            line.externals.lock().retain(|other| !Arc::ptr_eq(other, external));
        }
    }

    pub fn is_bound(&self) -> bool {
        self.line.lock().is_some()
    }
}
