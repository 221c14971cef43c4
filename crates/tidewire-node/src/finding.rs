//! A call for which it is learned first where it goes. It is sent as soon as that is known, whether anybody polls it or not.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tidewire_engine::raw::Mutex;
use tidewire_link::{CallKey, Waiting};

use crate::error::Error;
use crate::shot::Shot;

/// The call on its way, for the one who made it.
pub(crate) struct Finding(Arc<Slot>);

/// A call that was sent, or why it could not be.
pub(crate) type Found = (Shot, Result<CallKey, Error>);

/// The lock protects the call while two have it: the task that sends it, and the one who made it.
struct Slot(Mutex<State>);

struct State {
    shot: Option<Shot>,
    sent: Option<Result<CallKey, Error>>,
    waker: Option<Waker>,
}

impl Finding {
    pub fn begin(shot: Shot, credit: u32, waiting: Arc<dyn Waiting>) -> Self {
        let (runner, finding) = (Arc::clone(&shot.core.runner), shot.find());
        let begins = Arc::clone(&runner);
        let slot = Arc::new(Slot(Mutex::new(State { shot: Some(shot), sent: None, waker: None })));
        let sends = Arc::clone(&slot);
        runner.spawn(Box::pin(async move {
            begins.beat();
            let found = finding.await;
            sends.send(found, credit, waiting);
        }));
        Self(slot)
    }

    pub fn poll(&self, context: &Context<'_>) -> Poll<Found> {
        let mut state = self.0.0.lock();
        let sent = state.sent.take();
        match (sent, state.shot.take()) {
            (Some(sent), Some(shot)) => Poll::Ready((shot, sent)),
            (_, shot) => {
                state.shot = shot;
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Takes the call back, as it is. One that was not sent is not sent any more.
    pub fn take_back(self) -> Option<(Shot, Option<CallKey>)> {
        let mut state = self.0.0.lock();
        let key = state.sent.take().and_then(Result::ok);
        state.shot.take().map(|shot| (shot, key))
    }
}

impl Slot {
    fn send(&self, found: Result<(), Error>, credit: u32, waiting: Arc<dyn Waiting>) {
        let waker = {
            let mut state = self.0.lock();
            let Some(shot) = &mut state.shot else { return };
            let sent = found.and_then(|()| {
                shot.is_found();
                shot.send(credit, waiting)
            });
            state.sent = Some(sent);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
