//! A call for which it is learned first where it goes. It is sent as soon as that is known, whether anybody polls it or not.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tidewire_engine::raw::Mutex;
use tidewire_link::{CallKey, Waiting};
use tidewire_proto::generated::errors::ErrorCode;

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
        let sends = Sends(Arc::clone(&slot));
        runner.spawn(Box::pin(async move {
            begins.beat();
            let found = finding.await;
            sends.0.send(found, credit, waiting);
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

/// The task's side. One that never comes to send it, as the node is ending, says so.
struct Sends(Arc<Slot>);

impl Drop for Sends {
    fn drop(&mut self) {
        let ending = || Error::new(ErrorCode::NodeStopped, "the node is stopping or has stopped: make a new one");
        self.0.change(|state| {
            if state.shot.is_some() {
                state.sent.get_or_insert_with(|| Err(ending()));
            }
        });
    }
}

impl Slot {
    fn change(&self, change: impl FnOnce(&mut State)) {
        let waker = {
            let mut state = self.0.lock();
            change(&mut state);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn send(&self, found: Result<(), Error>, credit: u32, waiting: Arc<dyn Waiting>) {
        self.change(|state| {
            let Some(shot) = &mut state.shot else { return };
            state.sent = Some(found.and_then(|()| {
                shot.is_found();
                shot.send(credit, waiting)
            }));
        });
    }
}
