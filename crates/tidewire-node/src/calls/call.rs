//! Unary calls: resolve an instance, send, await the reply, and retry after a lost link or a
//! refusal.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use serde::de::DeserializeOwned;
use tidewire_engine::raw::{Fire, Watch};
use tidewire_link::{CallKey, ReplyWaiter};
use tidewire_proto::generated::errors::ErrorCode;

use crate::calls::instance_lookup::InstanceLookup;
use crate::calls::prepared_call::PreparedCall;
use crate::calls::reply_slot::{CallOutcome, ReplySlot};
use crate::delay::Delay;
use crate::error::Error;
use crate::pending::wait;
use crate::values;

/// A running call: `.await` it on any runtime, or [`wait`](Call::wait) for it on a plain thread.
///
/// # Cancel safety
/// Dropping it cancels the call: its handler is dropped where it awaits.
#[derive(derive_more::Debug)]
#[must_use = "dropping a call cancels it"]
#[debug("Call({:?})", self.prepared.as_ref().map_or("call", |prepared| &prepared.title))]
pub struct Call<T> {
    /// None: it could not be sent, or has been answered.
    prepared: Option<PreparedCall>,
    problem: Option<Error>,
    place: Arc<ReplySlot>,
    /// None: it is not in flight now.
    key: Option<CallKey>,
    /// Before the next attempt.
    pause: Option<Delay>,
    /// A subscriber of this node has it, and nothing is sent.
    is_here: bool,
    /// It is not known yet where it goes.
    finding: Option<InstanceLookup>,
    /// The result, while the streams among its arguments are being dropped.
    result: Option<CallOutcome>,
    watch: Option<Watch>,
    of: PhantomData<fn() -> T>,
}

impl<T> Call<T> {
    pub(crate) fn begin(prepared: Result<PreparedCall, Error>) -> Self {
        let (prepared, problem) = match prepared {
            Ok(prepared) => (Some(prepared), None),
            Err(problem) => (None, Some(problem)),
        };
        let mut call = Self {
            prepared,
            problem,
            place: Arc::default(),
            key: None,
            pause: None,
            is_here: false,
            finding: None,
            result: None,
            watch: None,
            of: PhantomData,
        };
        if let Err(problem) = call.send() {
            (call.prepared, call.problem) = (None, Some(problem));
        }
        call
    }

    /// A request that a subscriber of this node has.
    pub(crate) fn here(prepared: PreparedCall, place: Arc<ReplySlot>) -> Self {
        Self {
            prepared: Some(prepared),
            problem: None,
            place,
            key: None,
            pause: None,
            is_here: true,
            finding: None,
            result: None,
            watch: None,
            of: PhantomData,
        }
    }

    fn send(&mut self) -> Result<(), Error> {
        let Some(mut prepared) = self.prepared.take() else { return Ok(()) };
        let waiting = Arc::clone(&self.place) as Arc<dyn ReplyWaiter>;
        if !prepared.is_found() {
            self.watch = prepared.watched(Arc::clone(&self.place) as Arc<dyn Fire>);
            self.finding = Some(InstanceLookup::begin(prepared, 0, waiting)?);
            return Ok(());
        }
        let sent = prepared.send(0, waiting);
        self.prepared = Some(prepared);
        self.key = Some(sent?);
        Ok(())
    }

    /// True if the call is retried after an error of this number; sets the pause before the retry.
    /// `was_sent`: the callee may have handled the call.
    fn goes_on(&mut self, number: u16, was_sent: bool) -> bool {
        let is_one_of = |codes: &[ErrorCode]| codes.iter().any(|code| code.number() == number);
        let is_loss = is_one_of(&[ErrorCode::LinkLost]);
        let Some(prepared) = self.prepared.as_mut().filter(|prepared| !self.is_here && prepared.may_again()) else {
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
        self.pause = prepared.nobody(&core).map(|wait| Delay::begin(&core.runner, wait));
        self.pause.is_some()
    }

    /// Sends it again, once the link is back and it need not wait any more.
    fn poll_again(&mut self, context: &Context<'_>) -> Result<(), Error> {
        let Some(prepared) = &self.prepared else { return Ok(()) };
        let core = prepared.core()?;
        core.rejoined.add(context.waker());
        if core.link.joined().is_none() {
            // A lost link may have taken exported arguments with it since the retry was decided.
            return if prepared.may_again() { Ok(()) } else { Err(Error::lost(&prepared.title)) };
        }
        if self.pause.as_ref().is_some_and(|pause| !pause.is_over(context)) {
            return Ok(());
        }
        self.pause = None;
        self.send()
    }

    /// The error if the call cannot be sent; None if the call is retried.
    fn unsent(&mut self, error: Error) -> Option<Error> {
        if self.goes_on(error.code().number(), false) {
            return None;
        }
        self.finish();
        Some(error)
    }

    /// Ends it, on the other side too if that is still at it.
    fn finish(&mut self) {
        self.take_back();
        if let Some(prepared) = &mut self.prepared {
            prepared.cancel(self.key.take());
        }
        (self.prepared, self.watch) = (None, None);
    }

    /// Ends the search for where it goes.
    fn take_back(&mut self) {
        if let Some((prepared, key)) = self.finding.take().and_then(InstanceLookup::take_back) {
            (self.prepared, self.key) = (Some(prepared), key);
        }
    }

    /// Takes the call back from its instance lookup once the lookup has sent it.
    fn look_found(&mut self, context: &Context<'_>) -> Result<(), Error> {
        let Some(finding) = &self.finding else { return Ok(()) };
        if let Poll::Ready((prepared, sent)) = finding.poll(context) {
            (self.prepared, self.finding) = (Some(prepared), None);
            self.key = Some(sent?);
        }
        Ok(())
    }

    fn is_handed_over_late(&self) -> bool {
        self.finding.as_ref().is_some_and(InstanceLookup::is_pending)
    }

    /// Ready once the instance lookup has sent the call and handed it back.
    fn poll_handed_over(&mut self, context: &Context<'_>) -> Poll<Result<(), Error>> {
        let looked = self.look_found(context);
        if looked.is_ok() && self.finding.is_some() { Poll::Pending } else { Poll::Ready(looked) }
    }

    fn watch(&mut self) {
        if let (Some(prepared), None) = (&self.prepared, &self.watch) {
            self.watch = prepared.watched(Arc::clone(&self.place) as Arc<dyn Fire>);
        }
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
    fn settled(&mut self, outcome: CallOutcome) -> Option<CallOutcome> {
        self.take_back();
        let Some(prepared) = &mut self.prepared else { return Some(outcome) };
        if let (CallOutcome::Late, Some(key), Ok(core)) = (&outcome, self.key, prepared.core()) {
            core.link.cancel(key);
        }
        if matches!(outcome, CallOutcome::Late) && self.key.is_none() && prepared.was_lost() {
            // It has not been sent again.
            return Some(CallOutcome::Failed(ErrorCode::LinkLost.number(), None));
        }
        self.key = None;
        let CallOutcome::Failed(number, _) = outcome else { return Some(outcome) };
        if !prepared.finds_another(number) && !self.goes_on(number, true) {
            return Some(outcome);
        }
        (self.place, self.watch) = (Arc::default(), None);
        None
    }

    /// The result, once the streams among its arguments are dropped.
    fn poll_ended(&mut self, context: &Context<'_>) -> Poll<Result<T, Error>> {
        if let (Some(prepared), Some(outcome)) = (&mut self.prepared, &self.result) {
            prepared.ended(outcome);
            std::task::ready!(prepared.poll_closed(context));
        }
        let Some(outcome) = self.result.take() else { return Poll::Pending };
        let result = self.ended(outcome);
        // It is over, and never sent again: also if it is polled once more.
        self.finish();
        Poll::Ready(result)
    }

    fn ended(&mut self, outcome: CallOutcome) -> Result<T, Error> {
        let title = self.prepared.as_ref().map_or("call", |prepared| &prepared.title);
        match outcome {
            CallOutcome::Replied(payload) => match &self.prepared {
                Some(prepared) => values::read_for(&prepared.core()?.objects, title, payload.bytes()),
                None => values::read(title, payload.bytes()),
            },
            CallOutcome::Failed(number, Some(payload)) => Err(match &self.prepared {
                Some(prepared) => prepared.reply_error(number, payload.bytes()),
                None => values::read_error(title, number, payload.bytes()),
            }),
            CallOutcome::Failed(_, None) => Err(Error::lost(title)),
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
            if let Err(error) = this.look_found(context)
                && let Some(error) = this.unsent(error)
            {
                return Poll::Ready(Err(error));
            }
            match this.place.poll(context) {
                // The reply arrived before the lookup handed the call over: the hand-over comes
                // next.
                Poll::Ready(outcome) if this.is_handed_over_late() => {
                    this.place.put_back(outcome);
                    if let Err(error) = std::task::ready!(this.poll_handed_over(context)) {
                        this.finish();
                        return Poll::Ready(Err(error));
                    }
                }
                Poll::Ready(outcome) => this.result = this.settled(outcome),
                Poll::Pending => {
                    let is_lost = this.key.is_none() && !this.is_here && this.finding.is_none();
                    if is_lost && let Err(error) = this.poll_again(context) {
                        match this.unsent(error) {
                            Some(error) => return Poll::Ready(Err(error)),
                            // The next turn of the loop registers the waker.
                            None => continue,
                        }
                    }
                    this.watch();
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
