//! Deadline watches for code outside of the engine.

use std::sync::Arc;
use std::time::Instant;

use crate::core::Core;
use crate::engine::EngineHandle;
use crate::timers::Fire;
use crate::timers::deadlines::DeadlineKey;

/// A deadline that is watched. Dropping it ends the watch.
pub struct Watch {
    core: Arc<Core>,
    key: DeadlineKey,
}

impl EngineHandle {
    /// Calls `fire` at a time, on the timer thread, unless the watch is dropped before. It costs
    /// little where that is usual.
    pub fn watch(&self, at: Instant, fire: Arc<dyn Fire>) -> Watch {
        Watch { core: Arc::clone(&self.core), key: self.core.timers.watch(at, fire) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.core.timers.unwatch(self.key);
    }
}
