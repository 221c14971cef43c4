//! Tasks without an executor: the thread that wakes a task polls it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use tidewire_engine::raw::Mutex;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A short task that never blocks, such as the end of a call. A thread switch would cost more than
/// its work.
pub(crate) struct InlineTask {
    /// No task is polled or dropped under the lock.
    state: Mutex<State>,
}

enum State {
    Waiting(Task),
    /// A thread polls the task. True: it was woken meanwhile, and is polled again.
    Polled(bool),
    Over,
}

impl InlineTask {
    /// Polls a task now, and then whenever it is woken.
    pub fn spawn(task: Task) {
        Arc::new(Self { state: Mutex::new(State::Waiting(task)) }).run();
    }

    fn run(self: Arc<Self>) {
        let Some(mut task) = self.take() else { return };
        let waker = Waker::from(Arc::clone(&self));
        let mut context = Context::from_waker(&waker);
        while task.as_mut().poll(&mut context).is_pending() {
            match self.put_back(task) {
                Some(again) => task = again,
                None => return,
            }
        }
        *self.state.lock() = State::Over;
    }

    /// The task, if no other thread polls it.
    fn take(&self) -> Option<Task> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Polled(false)) {
            State::Waiting(task) => return Some(task),
            State::Polled(_) => *state = State::Polled(true),
            State::Over => *state = State::Over,
        }
        None
    }

    /// Stores the task until it is woken. Some: it was woken already.
    fn put_back(&self, task: Task) -> Option<Task> {
        let mut state = self.state.lock();
        if let State::Polled(true) = *state {
            *state = State::Polled(false);
            return Some(task);
        }
        *state = State::Waiting(task);
        None
    }
}

impl Wake for InlineTask {
    fn wake(self: Arc<Self>) {
        self.run();
    }
}

#[cfg(test)]
mod tests;
