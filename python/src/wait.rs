//! Blocking a thread until a future is ready, in a way that Ctrl-C can interrupt.

use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use pyo3::prelude::*;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

/// What an operation of the engine becomes.
pub type Operation = Pin<Box<dyn Future<Output = PyResult<Py<PyAny>>> + Send>>;

/// Waits for `operation` on this thread, without the interpreter. Signals are handled meanwhile.
pub fn wait(py: Python<'_>, mut operation: Operation) -> PyResult<Py<PyAny>> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(std::io::Error::from)?;
    let waker = Waker::from(Arc::new(Bell { writer }));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(result) = operation.as_mut().poll(&mut context) {
            return result;
        }
        idle(py, || listen(&reader))?;
        py.check_signals()?;
    }
}

/// Lets go of the interpreter while `what` runs; on a dispatcher thread, lets others take over its actors too.
pub fn idle<R: Send>(py: Python<'_>, what: impl FnOnce() -> R + Send) -> R {
    if crate::engine::on_dispatcher() {
        // The engine's idle hook lets go of the interpreter.
        tidewire_engine::raw::blocking(what)
    } else {
        py.detach(what)
    }
}

struct Bell {
    writer: OwnedFd,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // A full pipe rings as well as an empty one.
        let _ = rustix::io::write(&self.writer, &[1]);
    }
}

/// Sleeps until the bell rings or a signal comes.
fn listen(reader: &OwnedFd) -> PyResult<()> {
    let mut fds = [PollFd::new(reader, PollFlags::IN)];
    match poll(&mut fds, None) {
        Ok(_) => {
            let mut rung = [0; 64];
            while matches!(rustix::io::read(reader, &mut rung), Ok(n) if n == rung.len()) {}
            Ok(())
        }
        Err(Errno::INTR) => Ok(()),
        Err(error) => Err(std::io::Error::from(error).into()),
    }
}
