//! Dispatcher without threads of its own: it wakes an external event loop, which runs the ready
//! actors.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::{self, ThreadId};

use tidewire_sync::Mutex;

use super::Task;
use crate::guard::guarded;

/// Wakes the event loop that serves an [`External`] dispatcher. Called once per burst, from any
/// thread.
pub type Wakeup = Box<dyn Fn() + Send + Sync>;

/// Explains why an event loop does not run its ready actors, if there is a reason that it would not
/// find itself.
pub type Hint = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// A run queue that an event loop serves by calling [`run_ready`](External::run_ready) after each
/// wake-up.
pub struct External {
    line: Mutex<ReadyQueue>,
    wakeup: Wakeup,
    hint: Option<Hint>,
}

#[derive(Default)]
struct ReadyQueue {
    ready: VecDeque<Task>,
    /// The loop has been woken and has not run yet.
    woken: bool,
    /// The thread that ran what was ready.
    served_by: Option<ThreadId>,
    /// Nothing is run here any more.
    is_taken_over: bool,
}

impl External {
    /// A dispatcher whose loop is woken by `wakeup`.
    pub fn new(wakeup: Wakeup) -> Arc<Self> {
        Arc::new(Self { line: Mutex::default(), wakeup, hint: None })
    }

    /// As [`new`](Self::new), with an explanation for asks whose time was up.
    #[doc(hidden)]
    pub fn explained(wakeup: Wakeup, hint: Hint) -> Arc<Self> {
        Arc::new(Self { line: Mutex::default(), wakeup, hint: Some(hint) })
    }

    pub(crate) fn hint(&self) -> Option<String> {
        self.hint.as_ref().and_then(|hint| hint())
    }

    /// Runs what is ready now, and answers how many turns that were. Actors that become ready
    /// meanwhile cause another wake-up.
    pub fn run_ready(&self) -> usize {
        let ready = {
            let mut line = self.line.lock();
            line.woken = false;
            if line.is_taken_over {
                return 0;
            }
            line.served_by = Some(thread::current().id());
            std::mem::take(&mut line.ready)
        };
        let turns = ready.len();
        for task in ready {
            guarded(|| task.run());
        }
        turns
    }

    /// True if this thread may run the actors itself, as no other thread serves them. A thread that
    /// has not begun to serve them will not begin later. Two serving threads would wait for each
    /// other: one with the lock of an actor, the other with the interpreter lock of a binding.
    pub(crate) fn take_over(&self) -> bool {
        let mut line = self.line.lock();
        let ready = match line.served_by {
            Some(thread) => return thread == thread::current().id(),
            None => {
                line.is_taken_over = true;
                std::mem::take(&mut line.ready)
            }
        };
        drop(line);
        drop(ready);
        true
    }

    pub(crate) fn schedule(&self, task: Task) {
        let wake = {
            let mut line = self.line.lock();
            if line.is_taken_over {
                return;
            }
            line.ready.push_back(task);
            !std::mem::replace(&mut line.woken, true)
        };
        if wake {
            (self.wakeup)();
        }
    }
}
