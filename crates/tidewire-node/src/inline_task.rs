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
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Poll, Waker};
    use std::thread;

    use tidewire_engine::raw::Mutex;

    use super::InlineTask;

    #[test]
    fn a_task_that_many_threads_wake_is_polled_by_one_at_a_time_and_misses_no_wake() {
        const WAKES: usize = 1_000;
        let (wakes, polls, wakers) =
            (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(())), Arc::new(Mutex::new(None)));
        let (seen, ended) = (Arc::clone(&wakes), Arc::new(AtomicUsize::new(0)));
        let (alone, set, end) = (Arc::clone(&polls), Arc::clone(&wakers), Arc::clone(&ended));
        InlineTask::spawn(Box::pin(poll_fn(move |context| {
            let _alone = alone.try_lock().expect("no other thread polls it");
            *set.lock() = Some(context.waker().clone());
            if seen.load(Ordering::Acquire) < 4 * WAKES {
                return Poll::Pending;
            }
            end.fetch_add(1, Ordering::AcqRel);
            Poll::Ready(())
        })));
        let waker: Waker = wakers.lock().clone().expect("it was polled");
        let threads = (0..4).map(|_| {
            let (waker, wakes) = (waker.clone(), Arc::clone(&wakes));
            thread::spawn(move || {
                for _ in 0..WAKES {
                    wakes.fetch_add(1, Ordering::AcqRel);
                    waker.wake_by_ref();
                }
            })
        });
        threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(ended.load(Ordering::Acquire), 1);
    }
}
