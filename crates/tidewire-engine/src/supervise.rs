//! The supervision of one actor: restart limit and backoff of `tidewire-core`, put together.

use tidewire_core::backoff::Backoff;
use tidewire_core::restart::RestartWindow;

use crate::actor::id::ActorId;
use crate::actor::options::Supervision;

pub(crate) struct Restarts {
    window: RestartWindow,
    backoff: Backoff,
    due: u64,
}

impl Restarts {
    pub fn new(policy: &Supervision, id: ActorId) -> Self {
        let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Self {
            window: RestartWindow::new(policy.max_restarts, micros(policy.window)),
            backoff: Backoff::new(micros(policy.backoff), micros(policy.backoff_max), id.get()),
            due: 0,
        }
    }

    /// Counts a restart at `now` (microseconds), and answers whether it is allowed. It is due at
    /// [`due`](Self::due).
    pub fn allow(&mut self, now: u64) -> bool {
        let allowed = self.window.allow(now);
        if allowed {
            if self.window.count(now) <= 1 {
                self.backoff.reset();
            }
            self.due = now.saturating_add(self.backoff.next_delay_us());
        }
        allowed
    }

    pub fn due(&self) -> u64 {
        self.due
    }
}
