//! Durable streams of one hub at another: the events of a source follow its mirror in order, from
//! the position that the mirror itself has.

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Wake};

use tidewire_backend::home::{Page, StreamInfo};
use tidewire_core::federation::SharedName;
use tidewire_proto::generated::errors::ErrorCode;

use crate::delay::RetryPause;
use crate::error::Error;
use crate::federation::direction::Direction;
use crate::pending::{Signal, Wakers};
use crate::streams::explained;
use crate::streams::mirrors::{MirrorStream, SourceStream};

/// A mirror of one stream.
pub(super) struct StreamMirror {
    direction: Arc<Direction>,
    shared: SharedName,
    source: SourceStream,
    mirror: MirrorStream,
    /// The first attempt to open the mirror is over.
    opened: Arc<Signal>,
    returns: Arc<Returns>,
}

/// Counter of the times that a lost link is back.
#[derive(Default)]
struct Returns {
    count: AtomicU64,
    wakers: Wakers,
}

impl Wake for Returns {
    fn wake(self: Arc<Self>) {
        self.count.fetch_add(1, Ordering::AcqRel);
        self.wakers.wake();
    }
}

impl StreamMirror {
    pub fn new(direction: Arc<Direction>, shared: SharedName, opened: Arc<Signal>) -> Self {
        let source = SourceStream::new(&direction.source, &shared.name, &direction.hubs.1);
        let mirror = MirrorStream::new(&direction.target, &shared.seen_as, &direction.hubs, &shared.name);
        Self { direction, shared, source, mirror, opened, returns: Arc::default() }
    }

    /// Copies events until the federation ends.
    pub async fn run(self) {
        let (mut pause, mut last_error) = (RetryPause::default(), String::new());
        loop {
            let failed = self.direction.closing.unless(self.copy(&mut pause, &mut last_error)).await;
            let Some((hub, error)) = failed else { return };
            let text = format!("{hub}: {}", explained(&error));
            self.note(Some(text.clone()));
            self.opened.set();
            // A hub that is started again is away for a moment.
            let is_passing = error.is_retryable() && pause.is_first();
            if !is_passing && last_error != text {
                self.log(&format!("it is not mirrored for now: {text}"));
                last_error = text;
            }
            if self.direction.closing.unless(self.pause(&error, &mut pause)).await.is_none() {
                return;
            }
        }
    }

    /// Copies events until an attempt fails at one of the hubs.
    async fn copy(&self, pause: &mut RetryPause, last_error: &mut String) -> (&str, Error) {
        match self.try_copy(pause, last_error).await {
            Ok(never) => match never {},
            Err(failure) => failure,
        }
    }

    async fn try_copy(&self, pause: &mut RetryPause, last_error: &mut String) -> Result<Infallible, (&str, Error)> {
        let (from, to) = (&*self.direction.hubs.0, &*self.direction.hubs.1);
        let (_, info) = self.source.look().await.map_err(|error| (from, error))?;
        let mut position = self.mirror.open(&info).await.map_err(|error| (to, error))?;
        self.check(position, &info)?;
        self.note(None);
        self.opened.set();
        let SharedName { name, seen_as: mirror } = &self.shared;
        let text = format!("the stream {name:?} of the hub {from:?} is mirrored as {mirror:?} at {to:?}");
        (self.direction.source.changes)(&format!("{text}, from event {} on", position + 1));
        let mut reading = self.source.read(position + 1);
        loop {
            let (page, info) = reading.await.map_err(|error| (from, error))?;
            self.check(position, &info)?;
            self.report_gap(position, &page, &info);
            if page.events.is_empty() {
                reading = self.source.read(position + 1);
                continue;
            }
            let appending = self.mirror.append(position, &page);
            // The next page is on its way while this one is stored.
            reading = self.source.read(page.next);
            position = appending.await.map_err(|error| (to, error))?;
            self.direction.counts.messages.fetch_add(page.events.len() as u64, Ordering::Relaxed);
            if position + 1 != page.next {
                reading = self.source.read(position + 1);
            }
            (*pause, *last_error) = (RetryPause::default(), String::new());
        }
    }

    /// Fails for a source that has fewer events than the mirror has of it.
    fn check(&self, position: u64, info: &StreamInfo) -> Result<(), (&str, Error)> {
        if position <= info.last {
            return Ok(());
        }
        let fix = "give it a mirror of another name";
        let text =
            format!("the source has {} events, and its mirror has read {position}: it was made anew: {fix}", info.last);
        Err((&self.direction.hubs.0, Error::new(ErrorCode::SettingsDiffer, text)))
    }

    /// Logs events that the source has dropped before they were read. Replaced events of a
    /// compacted stream are none.
    fn report_gap(&self, position: u64, page: &Page, info: &StreamInfo) {
        let Some(event) = page.events.first() else { return };
        let first = event.sequence.min(info.first);
        if position > 0 && first > position + 1 && info.settings.compact.is_none() {
            let range = format!("{} to {}", position + 1, first - 1);
            self.log(&format!("the source has dropped its events {range} before they were mirrored"));
        }
    }

    /// Notes for statistics that the mirror follows its source, or why not.
    fn note(&self, problem: Option<String>) {
        self.direction.counts.mirrors.lock().insert(self.shared.seen_as.clone(), problem);
    }

    fn log(&self, text: &str) {
        self.direction.log(&format!("stream {:?} as {:?}: {text}", self.shared.name, self.shared.seen_as));
    }

    /// Waits before the next attempt. A restored link ends the wait; a refusal waits for nothing
    /// else.
    async fn pause(&self, error: &Error, pause: &mut RetryPause) {
        let Direction { source, target, .. } = &*self.direction;
        let returns = &self.returns;
        let seen = returns.count.load(Ordering::Acquire);
        [source, target].into_iter().for_each(|core| core.rejoined.add(&Arc::clone(returns).into()));
        let is_refused = [ErrorCode::Unauthorized, ErrorCode::NoSuchTarget].contains(&error.code());
        let delay = (!is_refused).then(|| pause.begin(&source.runner));
        poll_fn(|context| {
            returns.wakers.add(context.waker());
            let is_back = returns.count.load(Ordering::Acquire) != seen;
            let is_over = delay.as_ref().is_some_and(|delay| delay.is_over(context));
            if is_back || is_over { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}
