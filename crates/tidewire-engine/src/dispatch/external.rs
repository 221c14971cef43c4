//! A dispatcher without threads of its own: an event loop elsewhere is woken, and runs what is ready.

use std::collections::VecDeque;
use std::sync::Arc;

use tidewire_sync::Mutex;

use super::Task;
use crate::guard::guarded;

/// Wakes the event loop that serves an [`External`] dispatcher. Called once per burst, from any thread.
pub type Wakeup = Box<dyn Fn() + Send + Sync>;

/// A run queue that an event loop serves by calling [`run_ready`](External::run_ready) after each wake-up.
pub struct External {
    line: Mutex<Line>,
    wakeup: Wakeup,
}

#[derive(Default)]
struct Line {
    ready: VecDeque<Task>,
    /// The loop has been woken and has not run yet.
    woken: bool,
}

impl External {
    /// A dispatcher whose loop is woken by `wakeup`.
    pub fn new(wakeup: Wakeup) -> Arc<Self> {
        Arc::new(Self { line: Mutex::default(), wakeup })
    }

    /// Runs what is ready now, and answers how many turns that were. Actors that become ready meanwhile cause another wake-up.
    pub fn run_ready(&self) -> usize {
        let ready = {
            let mut line = self.line.lock();
            line.woken = false;
            std::mem::take(&mut line.ready)
        };
        let turns = ready.len();
        for task in ready {
            guarded(|| task.run());
        }
        turns
    }

    pub(crate) fn schedule(&self, task: Task) {
        let wake = {
            let mut line = self.line.lock();
            line.ready.push_back(task);
            !std::mem::replace(&mut line.woken, true)
        };
        if wake {
            (self.wakeup)();
        }
    }
}
