//! Stories that test the promises of spec/semantics.md.

// A test may let a channel grow: what goes through it is counted.
#![allow(clippy::disallowed_methods, missing_docs)]

#[path = "../support/mod.rs"]
mod support;

mod asking;
mod deadlines;
mod dispatchers;
mod ending;
mod failing;
mod mailboxes;
mod panics;
mod programs;
mod subjects;
mod tasks;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel, sync_channel};

use support::wait;
use tidewire_engine::*;

pub(crate) type Ctx<'a, M> = Context<'a, M>;

/// An actor that waits at its first message until it is let go, so that a test can fill its
/// mailbox.
pub(crate) fn held<M: Send + 'static>(
    engine: &Engine,
    options: SpawnOptions,
    first: M,
    mut handle: impl FnMut(M) + Send + 'static,
) -> (ActorRef<M>, std::sync::mpsc::SyncSender<()>) {
    let (gate, open) = sync_channel::<()>(0);
    let (entered, inside) = channel();
    let mut waiting = true;
    let actor = engine
        .spawn_fn_with(options, move |message: M, _: &mut Ctx<'_, M>| {
            if std::mem::take(&mut waiting) {
                entered.send(())?;
                open.recv()?;
            } else {
                handle(message);
            }
            Ok(())
        })
        .unwrap();
    actor.tell(first).unwrap();
    wait(&inside);
    (actor, gate)
}

pub(crate) fn collector<M: Send + 'static>() -> (impl FnMut(M) + Send + 'static, Receiver<M>) {
    let (sender, receiver) = channel();
    (move |message| sender.send(message).unwrap(), receiver)
}

/// Runs a future on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Wake(std::thread::Thread);
    impl std::task::Wake for Wake {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::task::Waker::from(Arc::new(Wake(std::thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            std::task::Poll::Ready(value) => return value,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}
