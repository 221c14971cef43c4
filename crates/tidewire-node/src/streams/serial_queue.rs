//! Serial queue: each job begins when the one before has ended.
//!
//! A hub may handle concurrent calls in any order. Calls that publish must stay in order.

use std::collections::VecDeque;
use std::sync::Arc;

use tidewire_engine::raw::Mutex;

/// Begins an operation. The operation drops its permit when it has ended.
type Job = Box<dyn FnOnce(SerialPermit) + Send>;

#[derive(Default)]
pub(super) struct SerialQueue {
    /// Protects the waiting jobs. Nothing is called under it.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    is_busy: bool,
    /// A thread begins jobs now, and looks again before it leaves.
    is_pumping: bool,
}

/// Permit of a running job, until it is dropped.
pub(super) struct SerialPermit(Arc<SerialQueue>);

impl SerialQueue {
    /// Runs a job now, or when those before it have ended.
    pub fn take(self: &Arc<Self>, job: impl FnOnce(SerialPermit) + Send + 'static) {
        self.state.lock().waiting.push_back(Box::new(job));
        self.pump();
    }

    fn pump(self: &Arc<Self>) {
        if std::mem::replace(&mut self.state.lock().is_pumping, true) {
            return;
        }
        loop {
            let job = {
                let mut state = self.state.lock();
                let job = if state.is_busy { None } else { state.waiting.pop_front() };
                state.is_pumping = job.is_some();
                state.is_busy |= job.is_some();
                job
            };
            match job {
                Some(job) => job(SerialPermit(Arc::clone(self))),
                None => return,
            }
        }
    }
}

impl Drop for SerialPermit {
    fn drop(&mut self) {
        self.0.state.lock().is_busy = false;
        self.0.pump();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::sync_channel;

    use super::{SerialPermit, SerialQueue};

    #[test]
    fn one_runs_after_the_other_however_each_ends() {
        let turns = Arc::<SerialQueue>::default();
        let (say, begun) = sync_channel(10_000);
        let mut held: Vec<SerialPermit> = Vec::new();
        let (keep, permits) = sync_channel(10_000);
        for number in 0..3 {
            let (say, keep) = (say.clone(), keep.clone());
            turns.take(move |turn| {
                say.send(number).expect("it is heard");
                keep.send(turn).expect("it is stored");
            });
        }
        for number in 0..3 {
            assert_eq!((begun.try_recv().ok(), begun.try_recv().ok()), (Some(number), None), "one at a time");
            held.push(permits.try_recv().expect("it runs"));
            held.clear();
        }
        for number in 0..10_000 {
            let say = say.clone();
            turns.take(move |turn| {
                say.send(number).expect("it is heard");
                drop(turn);
            });
        }
        assert_eq!(begun.try_iter().collect::<Vec<_>>(), (0..10_000).collect::<Vec<_>>());
    }
}
