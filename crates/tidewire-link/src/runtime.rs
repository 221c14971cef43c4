//! The link thread: an async runtime with one thread for sockets and deadlines.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;

/// The thread that waits for sockets and deadlines. It ends when the last clone is dropped.
#[derive(Clone)]
pub struct Runtime {
    inner: Arc<Inner>,
}

struct Inner {
    handle: Handle,
    end: Arc<Notify>,
}

impl Runtime {
    /// Starts the thread.
    ///
    /// # Errors
    /// The error of the system if it has no thread or no descriptor left.
    pub fn start(name: &str) -> io::Result<Self> {
        // Begun before there is a thread: a fork never finds the clock half begun.
        crate::clock::now_us();
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let (handle, end) = (runtime.handle().clone(), Arc::new(Notify::new()));
        let ends = Arc::clone(&end);
        thread::Builder::new().name(format!("{name}-links")).spawn(move || {
            tidewire_sync::leave_signals();
            runtime.block_on(ends.notified());
            // Tasks that are left hold sockets only; there is nothing to wait for.
            runtime.shutdown_background();
        })?;
        Ok(Self { inner: Arc::new(Inner { handle, end }) })
    }

    /// Runs a task on the thread.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.inner.handle.spawn(task);
    }

    /// Runs something on the thread, and blocks until it is done.
    pub fn block_on<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let (send, receive) = std::sync::mpsc::sync_channel(1);
        self.spawn(async move {
            let _ = send.send(task.await);
        });
        receive.recv().ok()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.end.notify_one();
    }
}
