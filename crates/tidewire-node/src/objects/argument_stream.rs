//! Streams as arguments: the callee reads the items of the caller.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use serde::{Serialize, Serializer};
use tidewire_engine::raw::Mutex;
use tidewire_proto::generated::errors::ErrorCode;

use super::exportable::{Exportable, OutboundReference};
use crate::discovery::Visibility;
use crate::services::failure::Failure;
use crate::services::method::{EncodedItems, Method, MethodHandler, ReplyStream};
use crate::values::{Blob, references};

/// A stream as an argument of a call: the callee reads it item by item, on credit, while the call
/// runs.
///
/// The stream is polled where handlers of this node run, and only as far as its reader gives
/// credit. An error of it comes to the reader after the items before it. The stream is dropped
/// before the call has ended for its caller in any manner, and as soon as the callee stops reading.
/// A [`Call`](crate::Call) that is dropped does not wait for a thread that polls the stream: that
/// thread drops it.
///
/// A handler of Rust takes it as [`Items`](crate::Items), one of Python as an iterator. It can be
/// passed once.
///
/// ```
/// use tidewire_node::{Feed, Items, Node, NodeOptions, Service};
///
/// let hub = Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub")).wait()?;
/// let sums = Service::new("sums").method("sum", &["numbers"], |_, mut numbers: Items<i64>| async move {
///     let mut sum = 0;
///     while let Some(number) = numbers.next().await {
///         sum += number?;
///     }
///     Ok(sum)
/// });
/// hub.serve(sums).wait()?;
///
/// let sum: i64 = hub.client("sums").call("sum", &Feed::of(1..=100)).wait()?;
/// assert_eq!(sum, 5050);
/// # Ok::<(), tidewire_node::Error>(())
/// ```
#[derive(derive_more::Debug)]
#[debug("Feed")]
pub struct Feed(Arc<StreamSlot>);

impl Feed {
    /// A stream of items that may fail; an error ends it.
    pub fn new<T, S>(items: S) -> Self
    where
        T: Serialize,
        S: Stream<Item = Result<T, Failure>> + Send + 'static,
    {
        let items: ReplyStream = Box::pin(EncodedItems::new(items));
        let state = State { items: Where::Here(items), is_given: false, reader: None, closer: None };
        Self(Arc::new(StreamSlot(Mutex::new(state))))
    }

    /// A stream of the items of an iterator. The iterator is advanced on threads of the node, and
    /// must not block for long.
    pub fn of<T, I>(items: I) -> Self
    where
        T: Serialize,
        I: IntoIterator<Item = T>,
        I::IntoIter: Send + 'static,
    {
        Self::new(Iterated(items.into_iter()))
    }
}

impl Serialize for Feed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if std::mem::replace(&mut self.0.0.lock().is_given, true) {
            return Err(serde::ser::Error::custom("this stream was given before, and is read once: make another one"));
        }
        references::serialize(OutboundReference::Own(Exportable::Items(Arc::clone(&self.0))), serializer)
    }
}

struct Iterated<I>(I);

impl<I> Unpin for Iterated<I> {}

impl<I: Iterator> Stream for Iterated<I> {
    type Item = Result<I::Item, Failure>;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.get_mut().0.next().map(Ok))
    }
}

/// Where the stream is, for those who read it and those who end it. It is polled, and dropped,
/// under no lock.
pub(crate) struct StreamSlot(Mutex<State>);

struct State {
    items: Where,
    is_given: bool,
    reader: Option<Waker>,
    /// The task that waits until the stream is dropped.
    closer: Option<Waker>,
}

enum Where {
    Here(ReplyStream),
    /// A thread polls or drops it. If it is to be closed, the thread that polls it drops it.
    Polled {
        is_closed: bool,
    },
    Gone,
}

impl StreamSlot {
    /// Drops the stream, or has it dropped by the thread that polls it.
    pub fn close(&self) {
        let items = {
            let mut state = self.0.lock();
            match std::mem::replace(&mut state.items, Where::Polled { is_closed: true }) {
                Where::Here(items) => items,
                Where::Polled { .. } => return,
                Where::Gone => return state.items = Where::Gone,
            }
        };
        self.end(items);
    }

    /// Drops the stream, and then wakes those who wait for that, also if its destructor panics.
    fn end(&self, items: impl Sized) {
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(items)));
        let wakers = {
            let mut state = self.0.lock();
            state.items = Where::Gone;
            [state.reader.take(), state.closer.take()]
        };
        wakers.into_iter().flatten().for_each(Waker::wake);
        dropped.unwrap_or_else(|panic| resume_unwind(panic));
    }

    /// Ready when the stream was dropped.
    pub fn poll_closed(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        if matches!(state.items, Where::Gone) {
            return Poll::Ready(());
        }
        state.closer = Some(context.waker().clone());
        Poll::Pending
    }

    /// The method through which the callee reads the stream.
    pub fn method(self: &Arc<Self>) -> Arc<Method> {
        let slot = Arc::clone(self);
        let streams = move |_, _: &[u8]| {
            let items: ReplyStream = Box::pin(ArgumentStreamReader(Arc::clone(&slot)));
            Ok(items)
        };
        let (service, name) = ("an argument".into(), super::TAKE.into());
        Arc::new(Method {
            service,
            name,
            title: format!("an argument/{}", super::TAKE),
            handling: MethodHandler::Stream(Arc::new(streams)),
            visibility: Visibility::Private,
        })
    }

    /// Takes the stream out, to be polled.
    fn take_items(&self, context: &Context<'_>) -> Option<ReplyStream> {
        let mut state = self.0.lock();
        if !matches!(state.items, Where::Here(_)) {
            return None;
        }
        state.reader = Some(context.waker().clone());
        match std::mem::replace(&mut state.items, Where::Polled { is_closed: false }) {
            Where::Here(items) => Some(items),
            _ => None,
        }
    }

    /// Puts it back, unless it has ended or was closed meanwhile.
    fn put_back(&self, items: Option<ReplyStream>) {
        let over = {
            let mut state = self.0.lock();
            let is_closed = matches!(state.items, Where::Polled { is_closed: true });
            match items {
                Some(items) if !is_closed => return state.items = Where::Here(items),
                over => over,
            }
        };
        self.end(over);
    }
}

/// The stream as its reader's calls read it.
struct ArgumentStreamReader(Arc<StreamSlot>);

impl Stream for ArgumentStreamReader {
    type Item = Result<Blob, Failure>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(items) = self.0.take_items(context) else {
            let text = "the call that this stream belongs to is over, or it was read before";
            return Poll::Ready(Some(Err(Failure::refusal(ErrorCode::CallCancelled, text))));
        };
        let mut polling = Polling { slot: &self.0, items: Some(items) };
        let polled = polling.poll(context);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            polling.items = None;
        }
        polled
    }
}

impl Drop for ArgumentStreamReader {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Returns a stream after polling, or after a panic.
struct Polling<'a> {
    slot: &'a StreamSlot,
    items: Option<ReplyStream>,
}

impl Polling<'_> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Blob, Failure>>> {
        self.items.as_mut().map_or(Poll::Ready(None), |items| items.as_mut().poll_next(context))
    }
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        let items = self.items.take();
        self.slot.put_back(items.filter(|_| !std::thread::panicking()));
    }
}
