//! Stop signal of a node for the calls that wait in its storage backend.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll};

use tidewire_backend::home::{HomeError, HomeErrorKind, HomeResult};
use tidewire_engine::raw::Mutex;

use crate::pending::Signal;

/// Stop signal of the node: waiting calls end, and their callers retry elsewhere or later.
#[derive(Default)]
pub(crate) struct StopSignal {
    leaving: Signal,
    /// The waits that can be ended, by their tokens.
    waits: Mutex<HashMap<u64, Arc<Signal>>>,
}

/// The wait of a running call.
pub(crate) struct LongPoll {
    leaving: Arc<StopSignal>,
    token: u64,
    end: Arc<Signal>,
}

impl LongPoll {
    pub fn poll(&self, context: &Context<'_>) -> Poll<()> {
        self.end.poll(context)
    }
}

impl Drop for LongPoll {
    fn drop(&mut self) {
        self.leaving.waits.lock().remove(&self.token);
    }
}

impl StopSignal {
    pub fn leave(&self) {
        self.leaving.set();
    }

    pub fn wait(self: &Arc<Self>, token: u64) -> LongPoll {
        let end = Arc::<Signal>::default();
        // A call without a token cannot be ended.
        if token != 0 {
            self.waits.lock().insert(token, Arc::clone(&end));
        }
        LongPoll { leaving: Arc::clone(self), token, end }
    }

    /// Ends the wait of a call. True if there was one.
    pub fn end_wait(&self, token: u64) -> bool {
        let end = self.waits.lock().get(&token).map(Arc::clone);
        end.inspect(|end| end.set()).is_some()
    }

    /// The result of a wait, unless the node stops first.
    pub async fn until<T>(&self, wait: impl Future<Output = HomeResult<T>>) -> HomeResult<T> {
        self.leaving.unless(wait).await.unwrap_or_else(|| {
            let text = "the hub with the streams is stopping: ask again when it is back";
            Err(HomeError::new(HomeErrorKind::Unreachable, text))
        })
    }
}
