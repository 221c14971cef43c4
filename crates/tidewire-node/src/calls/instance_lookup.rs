//! Instance lookup of a call: the call is sent as soon as its instance is known, polled or not.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tidewire_engine::raw::Mutex;
use tidewire_link::{CallKey, ReplyWaiter};
use tidewire_proto::generated::errors::ErrorCode;

use crate::calls::prepared_call::PreparedCall;
use crate::error::Error;

/// Instance lookup of a call, for its caller.
pub(crate) struct InstanceLookup(Arc<LookupSlot>);

/// A call that was sent, or why it could not be.
pub(crate) type LookupResult = (PreparedCall, Result<CallKey, Error>);

/// The lock protects where the call is; it is sent under no lock.
struct LookupSlot(Mutex<State>);

struct State {
    call: Where,
    waker: Option<Waker>,
}

enum Where {
    /// It is not known yet where it goes.
    Waits(Box<PreparedCall>),
    /// The task is sending the call. If the caller gives up meanwhile, the task ends the call.
    Sends {
        is_given_up: bool,
    },
    Sent(Box<LookupResult>),
    /// The owner of the lookup has taken the call back.
    Gone,
}

impl InstanceLookup {
    pub fn begin(prepared: PreparedCall, credit: u32, waiting: Arc<dyn ReplyWaiter>) -> Result<Self, Error> {
        let (core, target) = (prepared.core()?, prepared.lookup_target());
        let (runner, task_runner) = (Arc::clone(&core.runner), Arc::clone(&core.runner));
        let slot = Arc::new(LookupSlot(Mutex::new(State { call: Where::Waits(Box::new(prepared)), waker: None })));
        let task = LookupTask(Arc::clone(&slot));
        runner.spawn(Box::pin(async move {
            task_runner.beat();
            let found = match target {
                Some((service, instance)) => core.directory.found(&core, &service, instance.as_deref()).await,
                None => Ok(()),
            };
            task.0.send(found, credit, waiting);
        }));
        Ok(Self(slot))
    }

    pub fn poll(&self, context: &Context<'_>) -> Poll<LookupResult> {
        let mut state = self.0.0.lock();
        match std::mem::replace(&mut state.call, Where::Gone) {
            Where::Sent(found) => Poll::Ready(*found),
            other => {
                state.call = other;
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// True once the instance is resolved: the reply may arrive before the task hands the call
    /// over.
    pub fn is_pending(&self) -> bool {
        !matches!(self.0.0.lock().call, Where::Waits(_))
    }

    /// Takes the call back, as it is. One that was not sent is not sent any more, and one that is
    /// being sent is ended.
    pub fn take_back(self) -> Option<(PreparedCall, Option<CallKey>)> {
        let mut state = self.0.0.lock();
        match std::mem::replace(&mut state.call, Where::Gone) {
            Where::Waits(prepared) => Some((*prepared, None)),
            Where::Sends { .. } => {
                state.call = Where::Sends { is_given_up: true };
                None
            }
            Where::Sent(found) => Some((found.0, found.1.ok())),
            Where::Gone => None,
        }
    }
}

/// The task's side. If the node ends before the task runs, dropping it reports that.
struct LookupTask(Arc<LookupSlot>);

impl Drop for LookupTask {
    fn drop(&mut self) {
        let ending = || Error::new(ErrorCode::NodeStopped, "the node is stopping or has stopped: make a new one");
        if let Some(prepared) = self.0.take() {
            self.0.finish_send(prepared, Err(ending()));
        }
    }
}

impl LookupSlot {
    /// Takes the call out, to send it.
    fn take(&self) -> Option<Box<PreparedCall>> {
        let mut state = self.0.lock();
        match std::mem::replace(&mut state.call, Where::Sends { is_given_up: false }) {
            Where::Waits(prepared) => Some(prepared),
            other => {
                state.call = other;
                None
            }
        }
    }

    fn send(&self, found: Result<(), Error>, credit: u32, waiting: Arc<dyn ReplyWaiter>) {
        let Some(mut prepared) = self.take() else { return };
        let sent = found.and_then(|()| {
            prepared.choose_instance();
            prepared.send(credit, waiting)
        });
        self.finish_send(prepared, sent);
    }

    /// Hands the call over, or ends it if its caller has left.
    fn finish_send(&self, mut prepared: Box<PreparedCall>, sent: Result<CallKey, Error>) {
        let waker = {
            let mut state = self.0.lock();
            if let Where::Sends { is_given_up: true } = state.call {
                drop(state);
                return prepared.cancel(sent.ok());
            }
            state.call = Where::Sent(Box::new((*prepared, sent)));
            state.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}
