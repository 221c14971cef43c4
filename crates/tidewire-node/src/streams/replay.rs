//! Replays: the events of a stream, page by page, without stored state.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tidewire_backend::home::{Home, HomeError, HomeResult, Page, Read, Start};

use super::conventions::{PAGE, PAGE_BYTES, patterns, texts_of};
use super::event::Event;
use super::fetcher::{Fetcher, Reader, Reads, Timeout};
use crate::error::Error;
use crate::pending::wait;

/// Range and filter of a read. By default all stored events, to the newest one.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    start: Start,
    stop: Option<u64>,
    filter: Vec<String>,
    follows: bool,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self { start: Start::All, stop: None, filter: Vec::new(), follows: false }
    }
}

impl ReadOptions {
    /// Which subjects: patterns. All without it.
    pub fn filter<T: Into<String>>(mut self, patterns: impl IntoIterator<Item = T>) -> Self {
        self.filter = texts_of(patterns);
        self
    }

    /// Waits for more at the end.
    pub fn follow(mut self) -> Self {
        self.follows = true;
        self
    }
}

setters! {
    ReadOptions:
    /// Where to begin.
    start(start: Start) => start = start;
    /// The last sequence.
    stop(sequence: u64) => stop = Some(sequence);
}

/// The events of a stream: a `futures_core::Stream` for any runtime, or read by
/// [`next`](Replay::next) and [`next_blocking`](Replay::next_blocking). An error is the last.
#[derive(derive_more::Debug)]
#[must_use = "nothing is read before it is asked for an event"]
#[debug("Replay({stream:?})")]
pub struct Replay {
    home: Arc<dyn Home>,
    stream: Arc<str>,
    read: Result<Read, Error>,
    ready: VecDeque<Event>,
    fetcher: Fetcher<Page>,
    follows: bool,
    is_over: bool,
}

impl Replay {
    /// A replay in a storage backend that another part of the process owns.
    pub fn of(reads: &Reads, stream: &str, options: ReadOptions) -> Self {
        let ReadOptions { start, stop, filter, follows } = options;
        let read = patterns("filter", &filter).map(|filter| Read {
            start,
            stop,
            filter,
            max_messages: PAGE,
            max_bytes: PAGE_BYTES,
            wait_us: 0,
        });
        let (home, stream, fetcher) = (Arc::clone(&reads.home), stream.into(), reads.fetcher());
        Self { home, stream, read, ready: VecDeque::new(), fetcher, follows, is_over: false }
    }

    /// The next event, if it is here.
    pub fn take(&mut self) -> Option<Event> {
        self.ready.pop_front()
    }

    /// Waits for the next event. None: there are no more.
    ///
    /// # Errors
    /// `not_found` if the stream was deleted, `data_corrupt` at an event whose checksum is wrong.
    /// `home_unavailable` if the storage backend cannot be reached, `invalid_subject` if a filter
    /// is invalid.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub async fn next(&mut self) -> Option<Result<Event, Error>> {
        poll_fn(|context| self.poll(context)).await
    }

    /// Blocks this thread until the next event is there. None: there are no more.
    ///
    /// # Errors
    /// As for [`next`](Replay::next).
    pub fn next_blocking(&mut self) -> Option<Result<Event, Error>> {
        wait(self.next())
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Event, Error>>> {
        let result = ready!(self.poll_ready(context, None));
        self.is_over |= result.is_err();
        let error = |error: HomeError| self.read.as_ref().err().cloned().unwrap_or_else(|| error.into());
        Poll::Ready(result.map_err(error).map(|_| self.ready.pop_front()).transpose())
    }
}

impl Reader for Replay {
    fn poll_ready(&mut self, context: &Context<'_>, mut timeout: Option<&mut Timeout>) -> Poll<HomeResult<bool>> {
        while self.ready.is_empty() && !self.is_over {
            let read = self.read.as_mut().map_err(|error| HomeError::from(error.clone()))?;
            // The first page of new events only tells the position, which has to survive an outage.
            let waits = self.follows && read.start != Start::New;
            let begin = |wait_us| {
                let read = Read { wait_us: if waits { wait_us } else { 0 }, ..read.clone() };
                self.home.read(&self.stream, read).into()
            };
            let Some(page) = ready!(self.fetcher.poll(context, &mut timeout, begin))? else { break };
            read.start = Start::Sequence(page.next);
            let is_stopped = read.stop.is_some_and(|stop| page.next > stop);
            self.is_over = is_stopped || (!self.follows && page.next > page.last);
            self.ready.extend(page.events.into_iter().map(Event::new));
        }
        Poll::Ready(Ok(!self.ready.is_empty()))
    }

    fn give_back(&mut self) {
        self.fetcher.cancel();
    }
}

impl futures_core::Stream for Replay {
    type Item = Result<Event, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll(context)
    }
}
