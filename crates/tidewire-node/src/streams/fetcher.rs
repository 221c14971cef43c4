//! Fetches of one reader: one at a time, and again after an outage.

pub(super) mod outage;

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use tidewire_backend::home::pending_answer::PendingAnswer;
use tidewire_backend::home::{Home, HomeError, HomeErrorKind, HomeResult};
use tidewire_engine::EngineHandle;

use self::outage::{OnOutage, Outage};
use super::conventions::{LONG_WAIT, micros};
use crate::delay::Delay;
use crate::error::Error;
use crate::node::core::{Core, Node};
use crate::node::runner::Runner;
use crate::pending::Wakers;
use tidewire_engine::raw::clock;

/// How long the answer of a fetch may take beyond the wait of the fetch.
const GRACE: Duration = Duration::from_secs(1);

/// The storage backend of consumers, replays and watches.
#[derive(Clone)]
pub struct Reads {
    pub(crate) home: Arc<dyn Home>,
    /// For timeouts and pauses.
    pub(super) runner: Arc<Runner>,
    /// The node whose hub has the storage backend.
    pub(super) node: Option<Weak<Core>>,
    /// Without it, errors of an outage are reported.
    pub(super) on_outage: Option<OnOutage>,
}

impl Reads {
    /// A storage backend of another part of the process. The engine watches times. `node` is the
    /// one whose hub has the storage backend, if a hub has it.
    pub fn of(home: &Arc<dyn Home>, engine: EngineHandle, node: Option<&Node>, on_outage: Option<OnOutage>) -> Self {
        let node = node.map(|node| Arc::downgrade(node.core()));
        Self { node, on_outage, ..Self::new(Arc::clone(home), &Arc::new(Runner::inline(engine))) }
    }

    pub(crate) fn new(home: Arc<dyn Home>, runner: &Arc<Runner>) -> Self {
        Self { home, runner: Arc::clone(runner), node: None, on_outage: None }
    }

    pub(super) fn on_outage(&self, notify: impl Fn(Option<&Error>) + Send + Sync + 'static) -> Self {
        let notify = move |error: Option<&HomeError>| notify(error.cloned().map(Error::from).as_ref());
        Self { on_outage: Some(Arc::new(notify)), ..self.clone() }
    }

    pub(super) fn fetcher<T>(&self) -> Fetcher<T> {
        Fetcher::new(Outage::new(self.clone(), |error| error.kind() == HomeErrorKind::Unreachable))
    }
}

/// A consumer, a replay or a watch that several tasks share. Each has a method `take`.
pub trait Reader: Send {
    /// Fetches until an item is here. Ready with false: the timeout is over, or no more comes.
    ///
    /// # Errors
    /// As for `next` of the reader.
    fn poll_ready(&mut self, context: &Context<'_>, timeout: Option<&mut Timeout>) -> Poll<HomeResult<bool>>;

    /// Ends the running fetch. A consumer also returns the events that are here.
    fn give_back(&mut self);
}

/// Fetches pages of a consumer, a replay or a watch. Several tasks may wait for one page.
pub(super) struct Fetcher<T> {
    pub outage: Outage,
    /// The running fetch, and the end of its wait. A dropped one returns what it brings.
    pending: Option<(PendingAnswer<T>, Instant)>,
    waiters: Arc<Wakers>,
}

impl<T> Fetcher<T> {
    pub fn new(outage: Outage) -> Self {
        Self { outage, pending: None, waiters: Arc::default() }
    }

    pub fn is_fetching(&self) -> bool {
        self.pending.is_some()
    }

    /// Drops the running fetch. Those who wait for it look again.
    pub fn cancel(&mut self) {
        self.pending = None;
        self.waiters.wake();
    }

    /// Fetches a page. `begin` begins a fetch that waits so many microseconds. None: the timeout is
    /// over. An error may be an outage.
    pub fn poll_once(
        &mut self,
        context: &Context<'_>,
        timeout: Option<&mut Timeout>,
        begin: impl FnOnce(u64) -> PendingAnswer<T>,
    ) -> Poll<HomeResult<Option<T>>> {
        self.waiters.add(context.waker());
        let waker = Waker::from(Arc::clone(&self.waiters));
        let shared = &mut Context::from_waker(&waker);
        let until = timeout.as_ref().map(|timeout| timeout.until);
        if self.pending.is_none() && self.outage.is_due(shared) {
            let (now, most) = (clock::now(), if self.outage.has_begun() { Duration::ZERO } else { LONG_WAIT });
            let wait = until.map_or(most, |until| until.saturating_duration_since(now).min(most));
            self.pending = Some((begin(micros(wait)), now + wait));
        }
        let mut is_longer = true;
        if let Some((answer, end)) = &mut self.pending {
            if let Poll::Ready(page) = Pin::new(answer).poll(shared) {
                self.pending = None;
                if page.is_ok() {
                    self.outage.end();
                }
                return Poll::Ready(page.map(Some));
            }
            is_longer = until.is_some_and(|until| *end > until);
        }
        let runner = &self.outage.reads.runner;
        let is_over = timeout.is_some_and(|timeout| timeout.is_over(runner, context, is_longer));
        if is_over { Poll::Ready(Ok(None)) } else { Poll::Pending }
    }

    /// The same, again after each attempt that an outage has ended.
    pub fn poll(
        &mut self,
        context: &Context<'_>,
        timeout: &mut Option<&mut Timeout>,
        mut begin: impl FnMut(u64) -> PendingAnswer<T>,
    ) -> Poll<HomeResult<Option<T>>> {
        loop {
            match ready!(self.poll_once(context, timeout.as_deref_mut(), &mut begin)) {
                Err(error) if self.outage.outlasts(&error) => {}
                fetched => return Poll::Ready(fetched),
            }
        }
    }
}

/// The timeout of one wait.
pub struct Timeout {
    until: Instant,
    delay: Option<Delay>,
}

impl Timeout {
    /// A timeout that begins now, of 136 years at most.
    pub fn after(time: Duration) -> Self {
        Self { until: clock::now() + time.min(Duration::from_secs(1 << 32)), delay: None }
    }

    pub(super) fn is_past(&self) -> bool {
        self.until <= clock::now()
    }

    /// `is_longer`: the running fetch waits longer. Else it ends by itself, unless its storage
    /// backend is away.
    fn is_over(&mut self, runner: &Runner, context: &Context<'_>, is_longer: bool) -> bool {
        let end = self.until + if is_longer { Duration::ZERO } else { GRACE };
        let left = end.saturating_duration_since(clock::now());
        left.is_zero() || self.delay.get_or_insert_with(|| Delay::begin(runner, left)).is_over(context)
    }
}
