//! The session of a worker at one campaign: a thread with the connection to the store, which
//! claims, commits and renews while the worker runs the function.
//!
//! While a range runs, the results of the one before are committed and the next one is claimed.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidewire_backend::{CampaignId, Campaigns, Claim, ErrorKind, Lease, RangeResults, State, StoreError, WorkerId};
use tidewire_core::backoff::Backoff;

/// Interval of checks during a wait for the store's changes, so that a worker ends soon after its
/// stop.
const LOOK_US: u64 = 500_000;
/// A worker that shall end waits so long for a store that is away.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
const RETRY_FIRST_US: u64 = 20_000;
const RETRY_MOST_US: u64 = 1_000_000;

/// The next action of a worker.
pub enum Next {
    /// Runs this range.
    Range(Lease),
    /// Nothing: the campaign has ended, or has had no work for as long as the worker waits.
    Leave(State),
}

/// The session of a worker: its thread claims, commits and renews.
pub struct Session {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    state: Mutex<Exchange>,
    changed: Condvar,
    /// The number of the lease that was lost last.
    lost: AtomicU64,
    /// Set when the worker shall end.
    stop: AtomicBool,
}

/// State shared between the worker and its thread.
#[derive(Default)]
struct Exchange {
    /// The number of a lease, and results of its runs.
    commit: Option<(u64, RangeResults)>,
    /// True while the thread commits.
    committing: bool,
    wants_range: bool,
    /// True if there was no range: the next request follows once the worker is idle.
    postponed: bool,
    next: Option<Result<Next, StoreError>>,
    leave: bool,
    /// The time that the thread has waited for work since the worker asked.
    waited_us: u64,
    leases: Vec<HeldLease>,
    waker: Option<Waker>,
    /// The store can't be used any more.
    failure: Option<StoreError>,
}

struct HeldLease {
    lease: Lease,
    renew_at: Instant,
}

/// Waiting times of a session.
#[derive(Clone, Copy)]
pub struct SessionTimeouts {
    /// For a store that is away.
    pub store: Duration,
    /// For a campaign that has nothing to run; none: as long as it has not ended.
    pub work: Option<Duration>,
}

impl Session {
    /// Begins a session of a worker that has joined.
    ///
    /// # Errors
    ///
    /// The system has no thread left.
    pub fn start(
        store: Box<dyn Campaigns>,
        campaign: CampaignId,
        worker: WorkerId,
        patience: SessionTimeouts,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            lost: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let keeper =
            StoreThread { store, campaign, worker, patience, shared: Arc::clone(&shared), overhead_us: (0, 0) };
        let thread = std::thread::Builder::new().name("tidewire-store".to_owned()).spawn(move || {
            tidewire_sync::leave_signals();
            keeper.run();
        })?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Asks for a range. [`Session::next`] has it as soon as it is there.
    pub fn ask(&self) {
        let mut state = self.shared.lock();
        if !state.wants_range && state.next.is_none() {
            (state.wants_range, state.postponed) = (true, false);
            self.shared.changed.notify_all();
        }
    }

    /// The range that was asked for, and the microseconds that the thread has waited for work
    /// meanwhile. Fails once the store can't be used.
    pub fn next(&self) -> impl Future<Output = Result<(Next, u64), StoreError>> + Send + 'static {
        Wait {
            shared: Arc::clone(&self.shared),
            take: |state| {
                let next = state.next.take()?;
                Some(next.map(|next| (next, std::mem::take(&mut state.waited_us))))
            },
        }
    }

    /// Ends once no results are on their way to the store. Fails once the store can't be used.
    pub fn committed(&self) -> impl Future<Output = Result<(), StoreError>> + Send + 'static {
        Wait { shared: Arc::clone(&self.shared), take: |state| (!state.is_committing()).then_some(Ok(())) }
    }

    /// Hands over results of a lease. No others may be on their way. Results of a lost lease are
    /// dropped, even if the worker holds the same runs by another lease: it repeats those runs from
    /// their beginning.
    pub fn commit(&self, lease: u64, results: RangeResults) {
        let mut state = self.shared.lock();
        debug_assert!(!state.is_committing());
        state.commit = Some((lease, results));
        self.shared.changed.notify_all();
    }

    /// True if the lease was lost, so that its results are not wanted.
    #[inline]
    pub fn has_lost(&self, lease: u64) -> bool {
        self.shared.lost.load(Ordering::Relaxed) == lease
    }

    /// Ends the worker after its present run.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.changed.notify_all();
    }

    /// True once the worker shall end.
    #[inline]
    pub fn stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    /// Gives back held leases and leaves, once everything is committed. Waits for the thread.
    ///
    /// # Errors
    ///
    /// The failure of the store that has ended the session.
    pub fn leave(&self) -> Result<(), StoreError> {
        self.shared.lock().leave = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
        self.shared.lock().failure.take().map_or(Ok(()), Err)
    }
}

impl Exchange {
    const fn is_committing(&self) -> bool {
        self.commit.is_some() || self.committing
    }

    /// True if the worker has something to run, or to commit.
    fn is_busy(&self) -> bool {
        self.is_committing() || !self.leases.is_empty()
    }
}

impl Shared {
    /// Nothing in it is left half done when a thread panics.
    fn lock(&self) -> MutexGuard<'_, Exchange> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until the thread has done something.
struct Wait<T> {
    shared: Arc<Shared>,
    take: fn(&mut Exchange) -> Option<Result<T, StoreError>>,
}

impl<T> Future for Wait<T> {
    type Output = Result<T, StoreError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.shared.lock();
        if let Some(failure) = &state.failure {
            return Poll::Ready(Err(failure.clone()));
        }
        if let Some(done) = (self.take)(&mut state) {
            return Poll::Ready(done);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// The thread of a session.
struct StoreThread {
    store: Box<dyn Campaigns>,
    campaign: CampaignId,
    worker: WorkerId,
    patience: SessionTimeouts,
    shared: Arc<Shared>,
    /// Time of the last claim and the last commit.
    overhead_us: (u64, u64),
}

enum Task {
    Commit,
    Claim,
    Renew(u64),
    Leave,
}

impl StoreThread {
    fn run(mut self) {
        loop {
            let done = match self.task() {
                Task::Commit => self.commit(),
                Task::Claim => self.claim(),
                Task::Renew(lease) => self.renew(lease),
                Task::Leave => {
                    let left = self.leave();
                    return self.give_up(left.err());
                }
            };
            if let Err(failure) = done {
                return self.give_up(Some(failure));
            }
        }
    }

    /// Sleeps until there is something to do.
    fn task(&self) -> Task {
        let mut state = self.shared.lock();
        loop {
            let now = Instant::now();
            if let Some(due) = state.leases.iter().find(|entry| entry.renew_at <= now) {
                return Task::Renew(due.lease.id);
            }
            if state.commit.is_some() {
                return Task::Commit;
            }
            if state.leave {
                return Task::Leave;
            }
            if state.wants_range {
                return Task::Claim;
            }
            let until = state.leases.iter().map(|entry| entry.renew_at).min();
            state = match until {
                Some(until) => {
                    let wait = self.shared.changed.wait_timeout(state, until - now);
                    wait.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        let (mut results, lease) = {
            let mut state = self.shared.lock();
            let Some((id, results)) = state.commit.take() else { return Ok(()) };
            state.committing = true;
            let lease = state.leases.iter().map(|entry| entry.lease).find(|lease| lease.id == id);
            (results, lease)
        };
        if let Some(lease) = lease {
            results.digest = tidewire_core::campaign::digest::digest(&results.rows);
            results.overhead_us = self.overhead_us.0 + self.overhead_us.1;
            let start = Instant::now();
            let mut moved = lease;
            let campaign = self.campaign;
            let stored = self.patiently(|store| store.commit(campaign, &mut moved, &results));
            self.overhead_us.1 = us(start.elapsed());
            match stored {
                Ok(standing) => self.keep(lease.id, (standing.left > 0).then_some(moved)),
                Err(failure) if failure.kind() == ErrorKind::Stale => self.lose(lease.id),
                Err(failure) => return Err(failure),
            }
        }
        self.tell(|state| {
            state.committing = false;
            if state.postponed && !state.is_busy() {
                (state.wants_range, state.postponed) = (true, false);
            }
        });
        Ok(())
    }

    fn claim(&mut self) -> Result<(), StoreError> {
        let leases: Vec<Lease> = self.shared.lock().leases.iter().map(|entry| entry.lease).collect();
        let start = Instant::now();
        let (campaign, worker) = (self.campaign, self.worker);
        let claim = self.patiently(|store| store.claim(campaign, worker, &leases))?;
        match claim {
            Claim::Lease(lease) => {
                self.overhead_us.0 = us(start.elapsed());
                self.tell(|state| {
                    state.leases.push(HeldLease { renew_at: renew_at(&lease), lease });
                    state.wants_range = false;
                    state.next = Some(Ok(Next::Range(lease)));
                });
            }
            Claim::Ended(ended) => self.answer(Next::Leave(ended)),
            Claim::Wait { state, hint_us } => self.wait(state, hint_us, start)?,
        }
        Ok(())
    }

    /// Waits until something has changed in the campaign. A worker that is still at a range waits
    /// for that first.
    fn wait(&mut self, state: State, hint_us: u64, start: Instant) -> Result<(), StoreError> {
        let waited = {
            let mut exchange = self.shared.lock();
            if exchange.is_busy() {
                (exchange.wants_range, exchange.postponed) = (false, true);
                return Ok(());
            }
            Duration::from_micros(exchange.waited_us)
        };
        if self.shared.stop.load(Ordering::Relaxed) || self.patience.work.is_some_and(|most| waited >= most) {
            self.answer(Next::Leave(state));
            return Ok(());
        }
        let began_us = us(start.elapsed());
        let most = self.patience.work.map_or(u64::MAX, |most| us(most.saturating_sub(waited)));
        let mut left = hint_us.clamp(1, most.max(1));
        while left > 0 && !self.shared.stop.load(Ordering::Relaxed) {
            let step = left.min(LOOK_US);
            if self.patiently(|store| store.wait(step))? {
                break;
            }
            left -= step;
        }
        self.shared.lock().waited_us += us(start.elapsed()).saturating_sub(began_us);
        Ok(())
    }

    fn renew(&mut self, id: u64) -> Result<(), StoreError> {
        let lease = self.shared.lock().leases.iter().map(|entry| entry.lease).find(|lease| lease.id == id);
        let Some(lease) = lease else { return Ok(()) };
        let campaign = self.campaign;
        match self.patiently(|store| store.renew(campaign, &lease)) {
            Ok(_) => self.keep(id, Some(lease)),
            Err(failure) if failure.kind() == ErrorKind::Stale => self.lose(id),
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    fn leave(&mut self) -> Result<(), StoreError> {
        let (campaign, worker) = (self.campaign, self.worker);
        self.patiently(|store| store.leave(campaign, worker))
    }

    /// Does something with the store, again and again while that is away.
    fn patiently<T>(
        &mut self,
        mut what: impl FnMut(&mut dyn Campaigns) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let start = Instant::now();
        let mut backoff = Backoff::new(RETRY_FIRST_US, RETRY_MOST_US, u64::from(std::process::id()));
        loop {
            let stopped = self.shared.stop.load(Ordering::Relaxed);
            let most = if stopped { self.patience.store.min(STOP_PATIENCE) } else { self.patience.store };
            match what(self.store.as_mut()) {
                Err(failure) if failure.retryable() && start.elapsed() < most => {
                    let pause = Duration::from_micros(backoff.next_delay_us());
                    let state = self.shared.lock();
                    let _ = self.shared.changed.wait_timeout(state, pause);
                }
                Err(failure) if failure.retryable() => {
                    let text = format!("{failure} (it was waited for, for {:.1} s)", start.elapsed().as_secs_f64());
                    return Err(StoreError::new(failure.kind(), text));
                }
                done => return done,
            }
        }
    }

    fn keep(&self, id: u64, lease: Option<Lease>) {
        let mut state = self.shared.lock();
        state.leases.retain(|entry| entry.lease.id != id);
        if let Some(lease) = lease {
            state.leases.push(HeldLease { renew_at: renew_at(&lease), lease });
        }
    }

    fn lose(&self, id: u64) {
        self.shared.lost.store(id, Ordering::Relaxed);
        self.keep(id, None);
    }

    fn answer(&self, next: Next) {
        self.tell(|state| {
            state.wants_range = false;
            state.next = Some(Ok(next));
        });
    }

    fn give_up(&self, failure: Option<StoreError>) {
        self.tell(|state| state.failure = failure);
    }

    fn tell(&self, what: impl FnOnce(&mut Exchange)) {
        let mut state = self.shared.lock();
        what(&mut state);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

fn renew_at(lease: &Lease) -> Instant {
    Instant::now() + Duration::from_micros(lease.valid_us / 3)
}

fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
