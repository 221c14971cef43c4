//! Item streams: credit, deadline and end at their reader.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use serde::de::{Deserialize, DeserializeOwned, Deserializer};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::generated::limits;

use crate::calls::call_attempt::CallAttempt;
use crate::calls::call_options::CallOptions;
use crate::calls::call_record::CallRecord;
use crate::calls::item_buffer::{ItemBuffer, ItemWait};
use crate::calls::prepared_call::{CallTarget, PreparedCall};
use crate::calls::reply_slot::{CallOutcome, Payload};
use crate::error::Error;
use crate::objects::{ImportHandle, Kind, TAKE, Target};
use crate::pending::wait;
use crate::values::{self, references};

/// How far the writer of a stream may be ahead of its reader.
const CREDIT: u32 = limits::STREAM_CREDIT.default as u32;

/// The items of a stream: a `Stream` for any runtime, or read by [`next`](Items::next) and
/// [`next_blocking`](Items::next_blocking). The service is at most 64 items ahead of the reader.
///
/// Dropping it closes the stream of the service. An error comes after the items before it, and is
/// the last.
///
/// As an argument of a handler it is the stream that the caller passed: a [`Feed`](crate::Feed) of
/// Rust, a generator of Python. Such a stream begins when its first item is requested, and can be
/// read while its call runs. Dropping the argument closes it.
#[derive(derive_more::Debug)]
#[must_use = "dropping a stream closes it"]
#[debug("Items({:?})", self.attempt.prepared.as_ref().map_or("stream", |prepared| &prepared.title))]
pub struct Items<T> {
    attempt: CallAttempt,
    /// A stream of the caller that was not begun yet.
    late: Option<Arc<ImportHandle>>,
    problem: Option<Error>,
    /// Reason of the end, while the streams among the arguments are being dropped.
    end: Option<CallOutcome>,
    place: Arc<ItemBuffer>,
    wait: ItemWait,
    of: PhantomData<fn() -> T>,
}

impl<T> Items<T> {
    pub(crate) fn open(prepared: Result<PreparedCall, Error>) -> Self {
        let mut items = Self::unopened(None);
        match prepared {
            Ok(prepared) => items.begin(prepared),
            Err(problem) => items.problem = Some(problem),
        }
        items
    }

    fn unopened(late: Option<Arc<ImportHandle>>) -> Self {
        Self {
            attempt: CallAttempt::default(),
            late,
            problem: None,
            end: None,
            place: ItemBuffer::new(CREDIT),
            wait: ItemWait::default(),
            of: PhantomData,
        }
    }

    fn begin(&mut self, prepared: PreparedCall) {
        self.attempt = CallAttempt::new(Some(prepared));
        self.attempt.watch_deadline(&self.place);
        self.problem = self.attempt.send(CREDIT, &self.place).err();
    }

    /// Begins a stream of the caller.
    fn begin_late(&mut self, handle: Arc<ImportHandle>) -> Result<(), Error> {
        let core = handle.check()?.core().ok_or_else(|| handle.gone_error("its node has ended"))?;
        let (title, nothing) = (handle.title.clone(), values::write("arguments", &[(); 0])?);
        let aim = CallTarget::Object(handle, TAKE.to_owned());
        self.begin(PreparedCall::new(&core, aim, title, nothing, &CallOptions::default(), None, CallRecord::none())?);
        Ok(())
    }

    /// Has it begun, if it has not.
    fn look_found(&mut self, context: &Context<'_>) -> Result<(), Error> {
        if let Some(handle) = self.late.take() {
            self.begin_late(handle)?;
        }
        self.attempt.poll_lookup(context)
    }

    /// Grants the writer more credit.
    fn grant(&self, items: u32) {
        if let (Some(key), Some(Ok(core))) = (self.attempt.key, self.attempt.prepared.as_ref().map(PreparedCall::core))
        {
            core.link.want(key, items);
        }
    }

    fn error(&self, end: CallOutcome) -> Option<Error> {
        let title = self.attempt.prepared.as_ref().map_or("stream", |prepared| &prepared.title);
        match end {
            CallOutcome::Over => None,
            CallOutcome::Replied(_) => {
                Some(Error::invalid(format!("{title}: it gives one value, and no stream: use call()")))
            }
            CallOutcome::Failed(number, payload) => {
                Some(PreparedCall::error(self.attempt.prepared.as_ref(), number, payload))
            }
            CallOutcome::Late => {
                Some(Error::new(ErrorCode::AskTimeout, format!("{title}: its time is over before its end")))
            }
        }
    }
}

impl<T: DeserializeOwned> Items<T> {
    /// The next item; None after the last.
    ///
    /// # Errors
    /// The error that ended the stream, once; or that an item is not a `T`, after which others
    /// follow.
    ///
    /// # Cancel safety
    /// Dropping the future loses no item.
    pub async fn next(&mut self) -> Option<Result<T, Error>> {
        poll_fn(|context| self.poll_item(context)).await
    }

    /// As [`next`](Items::next), and blocks this thread.
    ///
    /// # Errors
    /// As for `next`.
    pub fn next_blocking(&mut self) -> Option<Result<T, Error>> {
        wait(self.next())
    }

    fn poll_item(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<T, Error>>> {
        let found = self.look_found(context);
        if let Some(problem) = self.problem.take().or(found.err()) {
            return self.fail_open(problem);
        }
        if self.end.is_none() {
            // The first items may arrive before the instance lookup hands the call over.
            if self.attempt.is_looked_up() {
                std::task::ready!(self.place.poll_any(&mut self.wait, context));
                if let Err(problem) = std::task::ready!(self.attempt.poll_handed_over(context)) {
                    return self.fail_open(problem);
                }
            }
            match std::task::ready!(self.place.poll_next(&mut self.wait, context)) {
                Ok((item, more)) => {
                    if more > 0 {
                        self.grant(more);
                    }
                    return Poll::Ready(Some(self.read(&item)));
                }
                Err(end) => self.end = Some(end),
            }
        }
        self.poll_end(context)
    }

    fn read(&self, item: &Payload) -> Result<T, Error> {
        match &self.attempt.prepared {
            Some(prepared) => {
                references::within(Some(&prepared.core()?.objects), || values::read_any(&prepared.title, item.bytes()))
            }
            None => values::read("stream", item.bytes()),
        }
    }

    /// The stream could not be opened: the error is returned once, and then the stream is over.
    fn fail_open(&mut self, problem: Error) -> Poll<Option<Result<T, Error>>> {
        self.attempt.record_error(&problem);
        self.attempt.cancel();
        self.place.close();
        Poll::Ready(Some(Err(problem)))
    }

    /// The end, once the streams among the arguments are dropped.
    fn poll_end(&mut self, context: &Context<'_>) -> Poll<Option<Result<T, Error>>> {
        // The other side still runs, unless it has ended the stream itself.
        if self.end.as_ref().is_some_and(CallOutcome::leaves_callee) {
            self.attempt.cancel();
        }
        self.attempt.key = None;
        if let (Some(prepared), Some(end)) = (&mut self.attempt.prepared, &self.end) {
            prepared.end(end);
            std::task::ready!(prepared.poll_closed(context));
        }
        let Some(end) = self.end.take() else { return Poll::Ready(None) };
        let error = self.error(end);
        if let Some(prepared) = &mut self.attempt.prepared {
            prepared.record_end(error.as_ref());
        }
        Poll::Ready(error.map(Err))
    }
}

impl<T: DeserializeOwned> Stream for Items<T> {
    type Item = Result<T, Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_item(context)
    }
}

impl<'de, T> Deserialize<'de> for Items<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        references::deserialize("a stream of the caller", deserializer, |target| match target {
            Target::Import(handle) if handle.kind == Kind::Items => Ok(Self::unopened(Some(handle))),
            _ => Err("a function or an object was given, and a stream is wanted"),
        })
    }
}

impl<T> Drop for Items<T> {
    fn drop(&mut self) {
        self.attempt.cancel();
    }
}
