//! Blocking wait of a thread for a future, which Ctrl-C can interrupt.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tidewire_engine::raw::{generation, of_this_process};

use super::past;

/// A pipe that neither blocks nor reaches programs and children of this process: its reader and
/// writer.
pub fn nonblocking_pipe() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = std::io::pipe()?;
    // Not by `pipe2`, which Apple systems lack.
    rustix::io::ioctl_fionbio(&reader, true)?;
    rustix::io::ioctl_fionbio(&writer, true)?;
    Ok((of_this_process(reader.into()), of_this_process(writer.into())))
}

/// A boxed operation of the engine.
pub type Operation = Pin<Box<dyn Future<Output = PyResult<Py<PyAny>>> + Send>>;

/// Blocks this thread until `operation` ends, without the interpreter. Signals are handled
/// meanwhile.
pub fn wait(py: Python<'_>, mut operation: Operation) -> PyResult<Py<PyAny>> {
    let notifier = BorrowedNotifier::take()?;
    let waker = Waker::from(Arc::clone(&notifier.0));
    let mut context = Context::from_waker(&waker);
    let mut most = FIRST_LOOK;
    loop {
        BLOCKS.set(true);
        let polled = operation.as_mut().poll(&mut context);
        BLOCKS.set(false);
        if let Poll::Ready(result) = polled {
            return result;
        }
        // Signals are handled by the main thread, which is never a dispatcher's.
        let limit = (!on_dispatcher()).then_some(most);
        idle(py, || notifier.0.listen(limit))?;
        most = (most * 10).min(LAST_LOOK);
        py.check_signals()?;
        if notifier.0.generation != generation() {
            // A signal handler has forked: what this waits for is the parent's.
            let _leaked = ManuallyDrop::new(operation);
            return Err(past(py));
        }
    }
}

thread_local! {
    static BLOCKS: Cell<bool> = const { Cell::new(false) };
    /// The generation of the process in which this thread became a dispatcher thread.
    static DISPATCHER_OF: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Notes that this is a dispatcher thread.
pub fn enter_dispatcher() {
    DISPATCHER_OF.set(Some(generation()));
}

/// True on a dispatcher thread of this process.
fn on_dispatcher() -> bool {
    DISPATCHER_OF.get() == Some(generation())
}

/// True if the operation polled on this thread blocks the thread until it ends.
pub fn blocks() -> bool {
    BLOCKS.get()
}

/// First interval of signal checks. A signal that comes just before the thread falls asleep does
/// not wake it.
const FIRST_LOOK: Duration = Duration::from_millis(10);
/// Longest interval of signal checks, which become rarer.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// Releases the interpreter while `what` runs. On a dispatcher thread, other threads take over its
/// actors meanwhile.
pub fn idle<R: Send>(py: Python<'_>, what: impl FnOnce() -> R + Send) -> R {
    if on_dispatcher() {
        // The engine's idle hook releases the interpreter.
        tidewire_engine::raw::blocking(what)
    } else {
        crate::interpreter::attach::detach(py, what)
    }
}

/// The waker of one blocked thread.
struct ThreadNotifier {
    reader: OwnedFd,
    writer: OwnedFd,
    /// The pipe belongs to this process, and not to a child of it.
    generation: u32,
    /// The program closed the pipe: its numbers may belong to other files by now.
    is_broken: AtomicBool,
}

thread_local! {
    /// The notifier of this thread while it does not block. It is closed with the thread.
    static BELL: RefCell<Option<Arc<ThreadNotifier>>> = const { RefCell::new(None) };
}

/// The notifier of this thread, while it blocks. A signal handler that blocks meanwhile gets
/// another one.
struct BorrowedNotifier(Arc<ThreadNotifier>);

impl BorrowedNotifier {
    fn take() -> PyResult<Self> {
        let cached = BELL.try_with(RefCell::take).ok().flatten();
        match cached
            .filter(|notifier| notifier.generation == generation() && !notifier.is_broken.load(Ordering::Relaxed))
        {
            Some(notifier) => Ok(Self(notifier)),
            None => ThreadNotifier::new().map(|notifier| Self(Arc::new(notifier))),
        }
    }
}

impl Drop for BorrowedNotifier {
    fn drop(&mut self) {
        // A late wake-up, for an operation that was given up, only causes one more look by the next
        // one.
        let _ = BELL.try_with(|cached| cached.replace(Some(Arc::clone(&self.0))));
    }
}

impl ThreadNotifier {
    fn new() -> PyResult<Self> {
        let (reader, writer) = nonblocking_pipe()?;
        Ok(Self { reader, writer, generation: generation(), is_broken: AtomicBool::new(false) })
    }

    /// Sleeps until a wake-up, a signal, or the end of `limit`.
    fn listen(self: &Arc<Self>, limit: Option<Duration>) -> PyResult<()> {
        let mut fds = [PollFd::new(&self.reader, PollFlags::IN)];
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        match poll(&mut fds, limit.as_ref()) {
            Ok(0) => Ok(()),
            Ok(_) => self.clear(),
            Err(Errno::INTR) => Ok(()),
            Err(error) => Err(self.broken(error)),
        }
    }

    /// Reads all rings. Only a pipe that is intact has some.
    fn clear(self: &Arc<Self>) -> PyResult<()> {
        let mut rung = [0; 64];
        loop {
            match rustix::io::read(&self.reader, &mut rung) {
                Ok(0) => return Err(self.broken(Errno::PIPE)),
                Ok(count) if count == rung.len() => (),
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(error) => return Err(self.broken(error)),
            }
        }
    }

    /// The error of a wait whose pipe was closed or replaced. Its numbers may belong to other files
    /// now, so they are never closed.
    fn broken(self: &Arc<Self>, error: Errno) -> PyErr {
        if !self.is_broken.swap(true, Ordering::Relaxed) {
            let _ = ManuallyDrop::new(Arc::clone(self));
        }
        let (reader, writer) = (self.reader.as_raw_fd(), self.writer.as_raw_fd());
        PyOSError::new_err((
            error.raw_os_error(),
            format!(
                "file descriptors {reader} and {writer} of this runtime: {}: close only descriptors that your code opened",
                std::io::Error::from(error)
            ),
        ))
    }
}

impl Wake for ThreadNotifier {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // A full pipe wakes the thread as well as an empty one.
        let _ = rustix::io::write(&self.writer, &[1]);
    }
}
