//! Replays: the events of a stream, page by page, without stored state.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tidewire_backend::home::{Answer, Home, Page, Read, Start};

use super::event::Event;
use super::{LONG_WAIT_US, PAGE, PAGE_BYTES, patterns, texts_of};
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
    /// Where to begin.
    pub fn start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// The last sequence.
    pub fn stop(mut self, sequence: u64) -> Self {
        self.stop = Some(sequence);
        self
    }

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
    pending: Option<Answer<Page>>,
    follows: bool,
    is_over: bool,
}

impl Replay {
    pub(super) fn new(home: &Arc<dyn Home>, stream: &Arc<str>, options: ReadOptions) -> Self {
        let ReadOptions { start, stop, filter, follows } = options;
        let read = patterns("filter", &filter).map(|filter| Read {
            start,
            stop,
            filter,
            max_messages: PAGE,
            max_bytes: PAGE_BYTES,
            wait_us: if follows { LONG_WAIT_US } else { 0 },
        });
        let (home, stream) = (Arc::clone(home), Arc::clone(stream));
        Self { home, stream, read, ready: VecDeque::new(), pending: None, follows, is_over: false }
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
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            if self.is_over {
                return Poll::Ready(None);
            }
            let read = match &mut self.read {
                Ok(read) => read,
                Err(error) => {
                    self.is_over = true;
                    return Poll::Ready(Some(Err(error.clone())));
                }
            };
            let pending = self.pending.get_or_insert_with(|| self.home.read(&self.stream, read.clone()));
            let page = std::task::ready!(Pin::new(pending).poll(context));
            self.pending = None;
            match page {
                Ok(page) => {
                    read.start = Start::Sequence(page.next);
                    let stopped = read.stop.is_some_and(|stop| page.next > stop);
                    self.is_over = stopped || (!self.follows && page.next > page.last);
                    self.ready.extend(page.events.into_iter().map(Event::new));
                }
                Err(error) => {
                    self.is_over = true;
                    return Poll::Ready(Some(Err(error.into())));
                }
            }
        }
    }
}

impl futures_core::Stream for Replay {
    type Item = Result<Event, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll(context)
    }
}
