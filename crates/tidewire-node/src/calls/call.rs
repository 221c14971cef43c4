//! Unary calls: resolve an instance, send, await the reply, and retry after a lost link or a
//! refusal.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use serde::de::DeserializeOwned;
use tidewire_proto::generated::errors::ErrorCode;

use crate::calls::call_attempt::CallAttempt;
use crate::calls::prepared_call::PreparedCall;
use crate::calls::reply_slot::{CallOutcome, ReplySlot};
use crate::delay::Delay;
use crate::error::Error;
use crate::pending::{WakerEntry, wait};
use crate::values;
use crate::values::references::within;

/// A running call: `.await` it on any runtime, or [`wait`](Call::wait) for it on a plain thread.
///
/// # Cancel safety
/// Dropping it cancels the call: its handler is dropped where it awaits.
#[derive(derive_more::Debug)]
#[must_use = "dropping a call cancels it"]
#[debug("Call({:?})", self.attempt.prepared.as_ref().map_or("call", |prepared| &prepared.title))]
pub struct Call<T> {
    attempt: CallAttempt,
    problem: Option<Error>,
    place: Arc<ReplySlot>,
    /// Before the next attempt.
    pause: Option<Delay>,
    rejoin: WakerEntry,
    /// A subscriber of this node has it, and nothing is sent.
    is_here: bool,
    /// The result, while the streams among its arguments are being dropped.
    result: Option<CallOutcome>,
    of: PhantomData<fn() -> T>,
}

impl<T> Call<T> {
    pub(crate) fn begin(prepared: Result<PreparedCall, Error>) -> Self {
        let mut call = Self::new(prepared);
        if let Err(problem) = call.attempt.send(0, &call.place) {
            call.attempt.record_error(&problem);
            (call.attempt.prepared, call.problem) = (None, Some(problem));
        }
        call
    }

    /// A request that a subscriber of this node has.
    pub(crate) fn here(prepared: PreparedCall, place: Arc<ReplySlot>) -> Self {
        let mut call = Self::new(Ok(prepared));
        (call.place, call.is_here) = (place, true);
        call
    }

    fn new(prepared: Result<PreparedCall, Error>) -> Self {
        let (prepared, problem) = prepared.map_or_else(|problem| (None, Some(problem)), |call| (Some(call), None));
        Self {
            attempt: CallAttempt::new(prepared),
            problem,
            place: Arc::default(),
            pause: None,
            rejoin: WakerEntry::default(),
            is_here: false,
            result: None,
            of: PhantomData,
        }
    }

    /// True if the call is retried after an error of this number; sets the pause before the retry.
    /// `was_sent`: the callee may have handled the call.
    fn plan_retry(&mut self, number: u16, was_sent: bool) -> bool {
        let is_one_of = |codes: &[ErrorCode]| codes.iter().any(|code| code.number() == number);
        let is_loss = is_one_of(&[ErrorCode::LinkLost]);
        let Some(prepared) = self.attempt.prepared.as_mut().filter(|prepared| !self.is_here && prepared.can_retry())
        else {
            return false;
        };
        let Some(core) = prepared.core().ok().filter(|core| core.check().is_ok()) else { return false };
        if !is_loss && !is_one_of(&[ErrorCode::NoResponders, ErrorCode::NodeStopped]) {
            return false;
        }
        if is_loss && was_sent {
            // A link that is lost is waited for.
            return prepared.lost(&core);
        }
        self.pause = prepared.retry_without_instance(&core).map(|wait| Delay::begin(&core.runner, wait));
        self.pause.is_some()
    }

    /// Sends it again, once the link is back and it need not wait any more.
    fn poll_retry(&mut self, context: &Context<'_>) -> Result<(), Error> {
        let Some(prepared) = &self.attempt.prepared else { return Ok(()) };
        let core = prepared.core()?;
        core.rejoined.keep(&mut self.rejoin, context.waker());
        if core.link.joined().is_none() {
            // A lost link may have taken exported arguments with it since the retry was decided.
            return if prepared.can_retry() { Ok(()) } else { Err(Error::lost(&prepared.title)) };
        }
        if self.pause.as_ref().is_some_and(|pause| !pause.is_over(context)) {
            return Ok(());
        }
        self.pause = None;
        self.attempt.send(0, &self.place)
    }

    /// The error if the call cannot be sent; None if the call is retried.
    fn fail_unsent(&mut self, error: Error) -> Option<Error> {
        if self.plan_retry(error.code().number(), false) {
            return None;
        }
        self.attempt.record_error(&error);
        self.finish();
        Some(error)
    }

    /// Ends it, on the other side too if that is still at it.
    fn finish(&mut self) {
        self.attempt.cancel();
        self.attempt = CallAttempt::default();
    }
}

impl<T: DeserializeOwned> Call<T> {
    /// Blocks this thread until the reply arrives or the deadline passes.
    ///
    /// # Errors
    /// The same as awaiting the call: the error of the handler, or the reason for the missing
    /// reply.
    pub fn wait(self) -> Result<T, Error> {
        wait(self)
    }

    /// The outcome of the call, or None if the call is retried.
    fn settle(&mut self, outcome: CallOutcome) -> Option<CallOutcome> {
        self.attempt.take_back();
        let key = self.attempt.key;
        let Some(prepared) = &mut self.attempt.prepared else { return Some(outcome) };
        if let (CallOutcome::Late, Some(key), Ok(core)) = (&outcome, key, prepared.core()) {
            core.link.cancel(key);
        }
        if matches!(outcome, CallOutcome::Late) && key.is_none() && prepared.was_lost() {
            // It has not been sent again.
            return Some(CallOutcome::Failed(ErrorCode::LinkLost.number(), None));
        }
        self.attempt.key = None;
        let CallOutcome::Failed(number, _) = outcome else { return Some(outcome) };
        let retries = prepared.choose_another(number) || self.plan_retry(number, true);
        let Some(prepared) = &mut self.attempt.prepared else { return Some(outcome) };
        if !retries {
            return Some(prepared.cause(outcome));
        }
        prepared.keep_refusal(outcome);
        self.place = Arc::default();
        self.attempt.watch = None;
        None
    }

    /// The result, once the streams among its arguments are dropped.
    fn poll_ended(&mut self, context: &Context<'_>) -> Poll<Result<T, Error>> {
        if let (Some(prepared), Some(outcome)) = (&mut self.attempt.prepared, &self.result) {
            prepared.end(outcome);
            std::task::ready!(prepared.poll_closed(context));
        }
        let Some(outcome) = self.result.take() else { return Poll::Pending };
        let result = self.decode_result(outcome);
        if let Some(prepared) = &mut self.attempt.prepared {
            prepared.record_end(result.as_ref().err());
        }
        // It is over, and never sent again: also if it is polled once more.
        self.finish();
        Poll::Ready(result)
    }

    fn decode_result(&mut self, outcome: CallOutcome) -> Result<T, Error> {
        let title = self.attempt.prepared.as_ref().map_or("call", |prepared| &prepared.title);
        match outcome {
            CallOutcome::Replied(payload) => match &self.attempt.prepared {
                Some(prepared) => within(Some(&prepared.core()?.objects), || values::read_any(title, payload.bytes())),
                None => values::read(title, payload.bytes()),
            },
            CallOutcome::Failed(number, payload) => {
                Err(PreparedCall::error(self.attempt.prepared.as_ref(), number, payload))
            }
            CallOutcome::Over => Err(Error::invalid(format!("{title}: it gives a stream: read it with stream()"))),
            CallOutcome::Late => Err(Error::late(title, self.place.last_alive())),
        }
    }
}

impl<T: DeserializeOwned> Future for Call<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(problem) = this.problem.take() {
            return Poll::Ready(Err(problem));
        }
        while this.result.is_none() {
            if let Err(error) = this.attempt.poll_lookup(context)
                && let Some(error) = this.fail_unsent(error)
            {
                return Poll::Ready(Err(error));
            }
            match this.place.outcome.poll(context) {
                Poll::Ready(outcome) => match this.attempt.poll_handed_over(context) {
                    Poll::Ready(Ok(())) => this.result = this.settle(outcome),
                    Poll::Ready(Err(error)) => {
                        this.attempt.record_error(&error);
                        this.finish();
                        return Poll::Ready(Err(error));
                    }
                    Poll::Pending => {
                        this.place.outcome.end(outcome);
                        return Poll::Pending;
                    }
                },
                Poll::Pending => {
                    let is_lost = this.attempt.key.is_none() && !this.is_here && !this.attempt.is_looked_up();
                    if is_lost && let Err(error) = this.poll_retry(context) {
                        match this.fail_unsent(error) {
                            Some(error) => return Poll::Ready(Err(error)),
                            // The next turn of the loop registers the waker.
                            None => continue,
                        }
                    }
                    this.attempt.watch_deadline(&this.place);
                    return Poll::Pending;
                }
            }
        }
        this.poll_ended(context)
    }
}

impl<T> Drop for Call<T> {
    fn drop(&mut self) {
        self.finish();
    }
}
