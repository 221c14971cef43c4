use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use serde::de::DeserializeOwned;
use tidewire_engine::raw::{Fire, Mutex, Watch};
use tidewire_link::{CallKey, Failure, Message, Waiting};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::generated::limits;

use crate::client::Shot;
use crate::error::Error;
use crate::pending::wait;
use crate::place::Payload;
use crate::values;

/// How far the writer of a stream may be ahead of its reader.
const CREDIT: u32 = limits::STREAM_CREDIT.default as u32;

/// The items of a stream: a `Stream` for any runtime, or read by [`next`](Items::next) and [`next_blocking`](Items::next_blocking).
/// The service is at most 64 items ahead of the reader.
///
/// Dropping it closes the stream of the service. An error comes after the items before it, and is the last.
#[must_use = "dropping a stream closes it"]
pub struct Items<T> {
    shot: Option<Shot>,
    problem: Option<Error>,
    place: Arc<Place>,
    key: Option<CallKey>,
    /// Items that were read, and that the writer was not given credit for yet.
    taken: u32,
    watch: Option<Watch>,
    of: PhantomData<fn() -> T>,
}

#[derive(Default)]
struct Place {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    items: VecDeque<Payload>,
    /// Items that may still come.
    room: u32,
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

impl<T> Items<T> {
    pub(crate) fn open(shot: Result<Shot, Error>) -> Self {
        let place = Arc::new(Place::default());
        place.state.lock().room = CREDIT;
        let mut items = Self { shot: None, problem: None, place, key: None, taken: 0, watch: None, of: PhantomData };
        if let Err(problem) = items.send(shot) {
            items.problem = Some(problem);
        }
        items
    }

    fn send(&mut self, shot: Result<Shot, Error>) -> Result<(), Error> {
        let mut shot = shot?;
        self.key = Some(shot.send(CREDIT, Arc::clone(&self.place) as Arc<dyn Waiting>)?);
        if let Some(at) = shot.deadline {
            self.watch = Some(shot.core.runner.watch(at, Arc::clone(&self.place) as Arc<dyn Fire>));
        }
        self.shot = Some(shot);
        Ok(())
    }

    /// Lets the writer go on, once half of what it may be ahead has been read.
    fn took_one(&mut self) {
        self.taken += 1;
        if self.taken < CREDIT.div_ceil(2) {
            return;
        }
        let items = std::mem::take(&mut self.taken);
        self.place.state.lock().room += items;
        if let (Some(key), Some(shot)) = (self.key, &self.shot) {
            shot.core.link.want(key, items);
        }
    }

    fn close(&mut self) {
        if let (Some(key), Some(shot)) = (self.key.take(), &self.shot) {
            shot.core.link.cancel(key);
        }
    }

    fn error(&self, end: End) -> Option<Error> {
        let title = self.shot.as_ref().map_or("stream", |shot| &shot.title);
        match end {
            End::Over => None,
            End::NoStream => Some(Error::invalid(format!("{title}: it gives one value, and no stream: use call()"))),
            End::Failed(number, Some(payload)) => Some(Error::told(title, number, payload.bytes())),
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
    /// The error that ended the stream, once; or that an item is not a `T`, after which others follow.
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

    fn poll_item(&mut self, context: &Context<'_>) -> Poll<Option<Result<T, Error>>> {
        if let Some(problem) = self.problem.take() {
            return Poll::Ready(Some(Err(problem)));
        }
        let taken = self.place.poll(context);
        match taken {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(item)) => {
                self.took_one();
                let title = self.shot.as_ref().map_or("stream", |shot| &shot.title);
                Poll::Ready(Some(values::read(title, item.bytes())))
            }
            Poll::Ready(Err(end)) => {
                // The other side goes on, if it was not the one that ended it.
                if matches!(end, End::Late | End::TooMany) {
                    self.close();
                }
                self.key = None;
                Poll::Ready(self.error(end).map(Err))
            }
        }
    }
}

impl<T: DeserializeOwned> Stream for Items<T> {
    type Item = Result<T, Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_item(context)
    }
}

impl<T> Drop for Items<T> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<T> fmt::Debug for Items<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Items({:?})", self.shot.as_ref().map_or("stream", |shot| &shot.title))
    }
}

impl Place {
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

    /// The next item, or the end: what failed is told once, and then it is over.
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

impl Waiting for Place {
    fn replied(&self, _: Message) {
        self.change(|state| state.end = Some(End::NoStream));
    }

    fn failed(&self, failure: Failure) {
        self.change(|state| state.end = Some(End::Failed(failure.number, failure.message.map(Payload::from))));
    }

    fn item(&self, item: Message) {
        self.change(|state| match state.room.checked_sub(1) {
            Some(room) => {
                state.room = room;
                state.items.push_back(item.into());
            }
            None => state.end = Some(End::TooMany),
        });
    }

    fn over(&self) {
        self.change(|state| state.end = Some(End::Over));
    }

    fn credited(&self, _: u32) {}
}

impl Fire for Place {
    fn fire(self: Arc<Self>) {
        self.change(|state| state.end = Some(End::Late));
    }
}
