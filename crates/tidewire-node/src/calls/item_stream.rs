//! Item streams: credit, deadline and end at their reader, and items encoded for the wire.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use serde::Serialize;
use serde::de::{Deserialize, DeserializeOwned, Deserializer};
use tidewire_engine::raw::{Fire, Mutex, Watch};
use tidewire_link::{CallKey, Failure, Message, ReplyWaiter};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::generated::limits;

use crate::calls::client::CallOptions;
use crate::calls::instance_lookup::InstanceLookup;
use crate::calls::prepared_call::{CallTarget, PreparedCall};
use crate::calls::reply_slot::{CallOutcome, Payload};
use crate::error::Error;
use crate::objects::{ImportHandle, Kind, TAKE, Target};
use crate::pending::wait;
use crate::services::failure::Failure as HandlerFailure;
use crate::services::service::result;
use crate::values::{self, Blob, references};

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
#[debug("Items({:?})", self.prepared.as_ref().map_or("stream", |prepared| &prepared.title))]
pub struct Items<T> {
    prepared: Option<PreparedCall>,
    /// A stream of the caller that was not begun yet.
    late: Option<Arc<ImportHandle>>,
    finding: Option<InstanceLookup>,
    problem: Option<Error>,
    /// Reason of the end, while the streams among the arguments are being dropped.
    end: Option<End>,
    place: Arc<ItemBuffer>,
    key: Option<CallKey>,
    /// Items that were read without credit for them yet.
    taken: u32,
    watch: Option<Watch>,
    of: PhantomData<fn() -> T>,
}

#[derive(Default)]
struct ItemBuffer {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    items: VecDeque<Payload>,
    /// Items that may still come.
    credit: u32,
    end: Option<End>,
    waker: Option<Waker>,
}

enum End {
    Over,
    /// One value came instead.
    NoStream,
    Failed(u16, Option<Payload>),
    Late,
    /// More items came than there was credit for.
    TooMany,
}

impl End {
    /// The outcome for statistics of calls.
    fn outcome(&self) -> CallOutcome {
        match self {
            Self::Failed(number, _) => CallOutcome::Failed(*number, None),
            Self::Over => CallOutcome::Over,
            Self::NoStream | Self::Late | Self::TooMany => CallOutcome::Late,
        }
    }
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
        let place = Arc::new(ItemBuffer::default());
        place.state.lock().credit = CREDIT;
        Self {
            prepared: None,
            late,
            finding: None,
            problem: None,
            end: None,
            place,
            key: None,
            taken: 0,
            watch: None,
            of: PhantomData,
        }
    }

    fn begin(&mut self, mut prepared: PreparedCall) {
        self.watch = prepared.watched(Arc::clone(&self.place) as Arc<dyn Fire>);
        let waiting = Arc::clone(&self.place) as Arc<dyn ReplyWaiter>;
        if !prepared.is_found() {
            match InstanceLookup::begin(prepared, CREDIT, waiting) {
                Ok(finding) => self.finding = Some(finding),
                Err(problem) => self.problem = Some(problem),
            }
            return;
        }
        let sent = prepared.send(CREDIT, waiting);
        self.sent(prepared, sent);
    }

    fn sent(&mut self, prepared: PreparedCall, sent: Result<CallKey, Error>) {
        self.prepared = Some(prepared);
        match sent {
            Ok(key) => self.key = Some(key),
            Err(problem) => self.problem = Some(problem),
        }
    }

    /// Begins a stream of the caller.
    fn begin_late(&mut self, holding: Arc<ImportHandle>) -> Result<(), Error> {
        let core = holding.check()?.core().ok_or_else(|| holding.gone("its node has ended"))?;
        let (title, nothing) = (holding.title.clone(), values::write("arguments", &[(); 0])?);
        let aim = CallTarget::Object(holding, TAKE.to_owned());
        self.begin(PreparedCall::new(&core, aim, title, nothing, &CallOptions::default(), None)?);
        Ok(())
    }

    /// Has it begun, if it has not.
    fn look_found(&mut self, context: &Context<'_>) -> Result<(), Error> {
        if let Some(holding) = self.late.take() {
            self.begin_late(holding)?;
        }
        let Some(finding) = &self.finding else { return Ok(()) };
        if let Poll::Ready((prepared, sent)) = finding.poll(context) {
            self.finding = None;
            self.sent(prepared, sent);
        }
        Ok(())
    }

    /// Grants the writer more credit, once half of its window has been read.
    fn took_one(&mut self) {
        self.taken += 1;
        if self.taken < CREDIT.div_ceil(2) {
            return;
        }
        let items = std::mem::take(&mut self.taken);
        self.place.state.lock().credit += items;
        if let (Some(key), Some(Ok(core))) = (self.key, self.prepared.as_ref().map(PreparedCall::core)) {
            core.link.want(key, items);
        }
    }

    fn close(&mut self) {
        if let Some((prepared, key)) = self.finding.take().and_then(InstanceLookup::take_back) {
            (self.prepared, self.key) = (Some(prepared), key);
        }
        let Some(prepared) = &mut self.prepared else { return };
        prepared.cancel(self.key.take());
    }

    fn error(&self, end: End) -> Option<Error> {
        let title = self.prepared.as_ref().map_or("stream", |prepared| &prepared.title);
        match end {
            End::Over => None,
            End::NoStream => Some(Error::invalid(format!("{title}: it gives one value, and no stream: use call()"))),
            End::Failed(number, Some(payload)) => Some(match &self.prepared {
                Some(prepared) => prepared.reply_error(number, payload.bytes()),
                None => values::read_error(title, number, payload.bytes()),
            }),
            End::Failed(_, None) => Some(Error::lost(title)),
            End::Late => Some(Error::new(ErrorCode::AskTimeout, format!("{title}: its time is over before its end"))),
            End::TooMany => {
                let text = format!("{title}: more items came than there was credit for: run versions that fit");
                Some(Error::new(ErrorCode::WireError, text))
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
            return self.over(problem);
        }
        if self.end.is_none() {
            // The first items may arrive before the instance lookup hands the call over.
            if self.finding.is_some() {
                std::task::ready!(self.place.poll_any(context));
                if self.finding.as_ref().is_some_and(InstanceLookup::is_pending) {
                    let found = self.look_found(context);
                    if let Some(problem) = self.problem.take().or(found.err()) {
                        return self.over(problem);
                    }
                    if self.finding.is_some() {
                        return Poll::Pending;
                    }
                }
            }
            match std::task::ready!(self.place.poll(context)) {
                Ok(item) => return Poll::Ready(Some(self.read(item))),
                Err(end) => self.end = Some(end),
            }
        }
        self.poll_end(context)
    }

    fn read(&mut self, item: Payload) -> Result<T, Error> {
        self.took_one();
        match &self.prepared {
            Some(prepared) => values::read_for(&prepared.core()?.objects, &prepared.title, item.bytes()),
            None => values::read("stream", item.bytes()),
        }
    }

    /// The stream could not be opened: the error is returned once, and then the stream is over.
    fn over(&mut self, problem: Error) -> Poll<Option<Result<T, Error>>> {
        self.close();
        self.place.over();
        Poll::Ready(Some(Err(problem)))
    }

    /// The end, once the streams among the arguments are dropped.
    fn poll_end(&mut self, context: &Context<'_>) -> Poll<Option<Result<T, Error>>> {
        // The other side still runs, unless it has ended the stream itself.
        if matches!(self.end, Some(End::Late | End::TooMany)) {
            self.close();
        }
        self.key = None;
        if let (Some(prepared), Some(end)) = (&mut self.prepared, &self.end) {
            prepared.ended(&end.outcome());
            std::task::ready!(prepared.poll_closed(context));
        }
        let end = self.end.take();
        Poll::Ready(end.and_then(|end| self.error(end)).map(Err))
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
            Target::Held(holding) if holding.kind == Kind::Items => Ok(Self::unopened(Some(holding))),
            _ => Err("a function or an object was given, and a stream is wanted"),
        })
    }
}

impl<T> Drop for Items<T> {
    fn drop(&mut self) {
        self.close();
    }
}

impl ItemBuffer {
    fn change(&self, change: impl FnOnce(&mut State)) {
        let waker = {
            let mut state = self.state.lock();
            if state.end.is_none() {
                change(&mut state);
            }
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ready when there is an item, or the end.
    fn poll_any(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if !state.items.is_empty() || state.end.is_some() {
            return Poll::Ready(());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// The next item, or the end: an error is returned once, and then the stream is over.
    fn poll(&self, context: &Context<'_>) -> Poll<Result<Payload, End>> {
        let mut state = self.state.lock();
        if let Some(item) = state.items.pop_front() {
            return Poll::Ready(Ok(item));
        }
        if let Some(end) = state.end.take() {
            state.end = Some(End::Over);
            return Poll::Ready(Err(end));
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl ReplyWaiter for ItemBuffer {
    fn replied(&self, _: Message) {
        self.change(|state| state.end = Some(End::NoStream));
    }

    fn failed(&self, failure: Failure) {
        self.change(|state| state.end = Some(End::Failed(failure.number, failure.message.map(Payload::from))));
    }

    fn item(&self, item: Message) {
        self.change(|state| match state.credit.checked_sub(1) {
            Some(credit) => {
                state.credit = credit;
                state.items.push_back(item.into());
            }
            None => state.end = Some(End::TooMany),
        });
    }

    fn over(&self) {
        self.change(|state| state.end = Some(End::Over));
    }
}

impl Fire for ItemBuffer {
    fn fire(self: Arc<Self>) {
        self.change(|state| state.end = Some(End::Late));
    }
}

/// The items of a stream, written as they travel.
pub(crate) struct EncodedItems<S>(Pin<Box<S>>);

impl<S> EncodedItems<S> {
    pub fn new(items: S) -> Self {
        Self(Box::pin(items))
    }
}

impl<O: Serialize, S: Stream<Item = Result<O, HandlerFailure>>> Stream for EncodedItems<S> {
    type Item = Result<Blob, HandlerFailure>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.0.as_mut().poll_next(context);
        next.map(|item| item.map(|item| item.and_then(|item| result("an item", &item))))
    }
}
