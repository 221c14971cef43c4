//! Batcher of publishes and settlements: one batch is stored at a time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use tidewire_backend::home::{Answer, HomeResult};
use tidewire_core::stream::window::Window;
use tidewire_engine::raw::Mutex;

use crate::pending::{Pending, Wakers};

/// The results of one batch.
pub(super) type Results<R> = HomeResult<Vec<HomeResult<R>>>;

type Store<M, R> = Box<dyn Fn(Vec<M>) -> Answer<Vec<HomeResult<R>>> + Send + Sync>;
type Ended<K, R> = Box<dyn Fn(Vec<K>, Results<R>) + Send + Sync>;

/// Flush policy: plans the call of its argument, which sends the waiting items. An event loop calls
/// it at the end of a round, so that the items of a round share a batch.
pub type Flush = Arc<dyn Fn(Box<dyn FnOnce() + Send>) + Send + Sync>;

/// Queue of items of one kind, in order. Each item has a note, which comes back with its result.
pub(super) struct Batcher<M, K, R> {
    /// Protects the queue. Nothing is called under it.
    state: Mutex<State<M, K>>,
    store: Store<M, R>,
    ended: Ended<K, R>,
    /// Items are sent at once without it.
    flush: Option<Flush>,
    /// Woken when a batch has ended.
    wakers: Wakers,
}

struct State<M, K> {
    window: Window,
    items: VecDeque<(M, K)>,
    /// A thread begins batches now or as the flush policy plans, and looks again before it leaves.
    is_pumping: bool,
}

impl<M, K> State<M, K> {
    /// The oldest items and their notes. None for none.
    fn take(&mut self, count: usize) -> Option<(Vec<M>, Vec<K>)> {
        (count > 0).then(|| self.items.drain(..count).unzip())
    }
}

/// Each note with its result.
pub(super) fn each<K, R>(notes: Vec<K>, results: Results<R>) -> impl Iterator<Item = (K, HomeResult<R>)> {
    let results = results.unwrap_or_else(|error| notes.iter().map(|_| Err(error.clone())).collect());
    notes.into_iter().zip(results)
}

impl<M: Send + 'static, K: Send + 'static, R: 'static> Batcher<M, K, R> {
    pub fn new(
        most: usize,
        store: impl Fn(Vec<M>) -> Answer<Vec<HomeResult<R>>> + Send + Sync + 'static,
        ended: impl Fn(Vec<K>, Results<R>) + Send + Sync + 'static,
        flush: Option<Flush>,
    ) -> Arc<Self> {
        let state = State { window: Window::new(most), items: VecDeque::new(), is_pumping: false };
        Arc::new(Self {
            state: Mutex::new(state),
            store: Box::new(store),
            ended: Box::new(ended),
            flush,
            wakers: Wakers::default(),
        })
    }

    /// Takes an item of so many bytes, unless the queue is full.
    pub fn offer(self: &Arc<Self>, item: M, bytes: usize, note: K) -> Result<(), (M, K)> {
        self.insert(item, bytes, note, true)
    }

    /// Takes an item even if the queue is full: the caller has a limit of its own.
    pub fn push(self: &Arc<Self>, item: M, bytes: usize, note: K) {
        drop(self.insert(item, bytes, note, false));
    }

    fn insert(self: &Arc<Self>, item: M, bytes: usize, note: K, is_limited: bool) -> Result<(), (M, K)> {
        let (begins, early) = {
            let mut state = self.state.lock();
            if is_limited && state.window.is_full() {
                return Err((item, note));
            }
            state.window.push(bytes);
            state.items.push_back((item, note));
            let early = if self.flush.is_some() { state.window.begin_early() } else { 0 };
            (!std::mem::replace(&mut state.is_pumping, true), state.take(early))
        };
        if let Some(batch) = early {
            self.begin(batch);
        }
        match &self.flush {
            Some(flush) if begins => {
                let batcher = Arc::clone(self);
                flush(Box::new(move || batcher.pump()));
            }
            None if begins => self.pump(),
            _ => {}
        }
        Ok(())
    }

    /// Takes an item, as soon as the queue has capacity. Returns None if it has capacity now.
    pub fn put(self: &Arc<Self>, item: M, bytes: usize, note: K) -> Option<Pending<()>> {
        let mut unsent = Some(self.offer(item, bytes, note).err()?);
        let lane = Arc::clone(self);
        Some(Pending::new(async move {
            let offer = || {
                unsent = unsent.take().and_then(|(item, note)| lane.offer(item, bytes, note).err());
                unsent.is_none().then_some(())
            };
            lane.wakers.until(offer).await;
            Ok(())
        }))
    }

    /// True if everything has its result.
    pub fn is_idle(&self) -> bool {
        self.state.lock().window.is_idle()
    }

    /// Ready when everything has its result.
    pub fn poll_idle(&self, context: &Context<'_>) -> Poll<()> {
        self.wakers.add(context.waker());
        if self.is_idle() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Begins batches for as long as there is one to begin. `is_pumping` is this thread's.
    fn pump(self: &Arc<Self>) {
        loop {
            let batch = {
                let mut state = self.state.lock();
                let count = state.window.begin();
                let Some(batch) = state.take(count) else {
                    state.is_pumping = false;
                    return;
                };
                batch
            };
            self.begin(batch);
        }
    }

    fn begin(self: &Arc<Self>, (items, notes): (Vec<M>, Vec<K>)) {
        let lane = Arc::clone(self);
        (self.store)(items).then(move |results| lane.finish(notes, results));
    }

    fn finish(self: &Arc<Self>, notes: Vec<K>, results: Results<R>) {
        (self.ended)(notes, results);
        let begins = {
            let mut state = self.state.lock();
            state.window.ended();
            // A running pump finds the next batch; otherwise this thread pumps.
            !std::mem::replace(&mut state.is_pumping, true)
        };
        self.wakers.wake();
        if begins {
            self.pump();
        }
    }
}
