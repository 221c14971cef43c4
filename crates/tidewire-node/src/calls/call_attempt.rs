//! State machine of one attempt of a call: instance lookup, wait for the reply, end.

use std::sync::Arc;
use std::task::{Context, Poll};

use tidewire_engine::raw::{Fire, Watch};
use tidewire_link::{CallKey, ReplyWaiter};

use crate::calls::instance_lookup::InstanceLookup;
use crate::calls::prepared_call::PreparedCall;
use crate::error::Error;

/// A call as its caller has it. Dropping it does not cancel it.
#[derive(Default)]
pub(crate) struct CallAttempt {
    /// None: its instance is being result up, it could not be sent, or it has ended.
    pub prepared: Option<PreparedCall>,
    /// None: it is not in flight now.
    pub key: Option<CallKey>,
    lookup: Option<InstanceLookup>,
    pub watch: Option<Watch>,
}

impl CallAttempt {
    pub fn new(prepared: Option<PreparedCall>) -> Self {
        Self { prepared, ..Self::default() }
    }

    /// Sends it now, or once its instance is known; its deadline is watched meanwhile.
    pub fn send<W: ReplyWaiter + Fire + 'static>(&mut self, credit: u32, waiting: &Arc<W>) -> Result<(), Error> {
        let Some(prepared) = &mut self.prepared else { return Ok(()) };
        let is_found = prepared.choose_instance();
        if !is_found {
            self.watch_deadline(waiting);
        }
        let Some(mut prepared) = self.prepared.take() else { return Ok(()) };
        let waiting = Arc::clone(waiting) as Arc<dyn ReplyWaiter>;
        if !is_found {
            self.lookup = Some(InstanceLookup::begin(prepared, credit, waiting)?);
            return Ok(());
        }
        let sent = prepared.send(credit, waiting);
        self.finish_send(prepared, sent)
    }

    fn finish_send(&mut self, prepared: PreparedCall, sent: Result<CallKey, Error>) -> Result<(), Error> {
        self.prepared = Some(prepared);
        self.key = Some(sent?);
        Ok(())
    }

    /// Takes the call back from its lookup once the lookup has sent it.
    pub fn poll_lookup(&mut self, context: &Context<'_>) -> Result<(), Error> {
        let Some(Poll::Ready((prepared, sent))) = self.lookup.as_ref().map(|lookup| lookup.poll(context)) else {
            return Ok(());
        };
        self.lookup = None;
        self.finish_send(prepared, sent)
    }

    pub fn is_looked_up(&self) -> bool {
        self.lookup.is_some()
    }

    /// Ready unless the lookup sends the call now, and has not handed it back: a reply may be here
    /// before.
    pub fn poll_handed_over(&mut self, context: &Context<'_>) -> Poll<Result<(), Error>> {
        if !self.lookup.as_ref().is_some_and(InstanceLookup::is_pending) {
            return Poll::Ready(Ok(()));
        }
        let result = self.poll_lookup(context);
        if result.is_ok() && self.lookup.is_some() { Poll::Pending } else { Poll::Ready(result) }
    }

    /// Has the deadline watched, if there is one.
    pub fn watch_deadline<W: Fire + 'static>(&mut self, waiting: &Arc<W>) {
        if let (Some(prepared), None) = (&self.prepared, &self.watch) {
            self.watch = prepared.watch_deadline(Arc::clone(waiting) as Arc<dyn Fire>);
        }
    }

    /// Records the error of a call that could not be sent.
    pub fn record_error(&mut self, error: &Error) {
        if let Some(prepared) = &mut self.prepared {
            prepared.record_end(Some(error));
        }
    }

    /// Ends the lookup.
    pub fn take_back(&mut self) {
        if let Some((prepared, key)) = self.lookup.take().and_then(InstanceLookup::take_back) {
            (self.prepared, self.key) = (Some(prepared), key);
        }
    }

    /// Ends it, on the other side too if that is still at it.
    pub fn cancel(&mut self) {
        self.take_back();
        if let Some(prepared) = &mut self.prepared {
            prepared.cancel(self.key.take());
        }
    }
}
