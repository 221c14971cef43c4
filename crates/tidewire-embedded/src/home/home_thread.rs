//! Thread of a storage backend: runs all queued calls, writes and syncs once, and replies.

use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidewire_backend::home::{Commits, HomeError, HomeErrorKind, HomeResult, Teller};
use tidewire_proto::generated::limits;
use tidewire_sync::clock::{self, Sleeper};

use super::clock::Clock;
use super::open_folder;
use super::waiting_calls::WaitingCalls;
use crate::folder::{Folder, Sizes};

/// Interval of the search for expired events.
const RETIRE_EVERY_US: u64 = 1_000_000;
/// A wait that a clock of the system can count; nothing happens after it.
const LONGEST_WAIT_US: u64 = 3_600_000_000;
/// Shortest time between two attempts to reopen a failed folder.
const REOPEN_EVERY_US: u64 = 500_000;

/// An operation on the folder, or the error if the folder cannot be used.
pub type Call = Box<dyn FnOnce(HomeResult<&mut CallContext<'_>>) + Send>;
/// A callback after the folder was synced, or failed to sync.
type SyncCallback = Box<dyn FnOnce(HomeResult<()>) + Send>;

/// State shared by callers and the thread.
#[derive(Default)]
pub struct Shared {
    queue: Mutex<Queue>,
    wakeup: Condvar,
    /// Bytes that wait to be stored.
    intake_bytes: AtomicU64,
    commits: Mutex<Commits>,
}

#[derive(Default)]
struct Queue {
    calls: Vec<Call>,
    closing: Vec<Teller<()>>,
    closed: bool,
    sleeps: bool,
    /// The end of the sleep, if it has one.
    until: Option<Instant>,
}

impl Shared {
    /// Adds a call. False if the storage backend is closed.
    pub fn call(&self, call: Call) -> bool {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.closed {
            return false;
        }
        queue.calls.push(call);
        self.wake_thread(&mut queue);
        true
    }

    /// Asks the thread to end; answers when it has.
    pub fn close(&self, teller: Teller<()>) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.closed && queue.closing.is_empty() {
            drop(queue);
            drop(teller.tell(Ok(())));
            return;
        }
        queue.closed = true;
        queue.closing.push(teller);
        self.wake_thread(&mut queue);
    }

    fn wake_thread(&self, queue: &mut Queue) {
        if std::mem::take(&mut queue.sleeps) {
            self.wakeup.notify_one();
        }
    }

    /// Takes capacity for bytes that wait to be stored.
    ///
    /// # Errors
    ///
    /// `Busy`.
    pub fn reserve_intake(&self, bytes: u64) -> HomeResult<()> {
        let most = limits::HOME_INTAKE_BYTES.default;
        let before = self.intake_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before > 0 && before + bytes > most {
            self.release_intake(bytes);
            let text = format!(
                "publish: {before} bytes wait to be stored, of at most {most} (home_intake_bytes); try again after a pause"
            );
            return Err(HomeError::new(HomeErrorKind::Busy, text));
        }
        Ok(())
    }

    /// Releases the capacity.
    pub fn release_intake(&self, bytes: u64) {
        self.intake_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub fn commits(&self) -> Commits {
        *self.commits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sleeper for Shared {
    fn sleeps_until(&self) -> Option<Instant> {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.until.filter(|_| queue.sleeps)
    }

    fn wake(&self) {
        self.wake_thread(&mut self.queue.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Context in which a call runs.
pub struct CallContext<'a> {
    /// The folder.
    pub folder: &'a mut Folder,
    /// Calls that wait for something.
    pub waiting: &'a mut WaitingCalls,
    /// The time.
    pub now_us: u64,
    /// Time of the system clock.
    pub wall_us: u64,
    /// Callbacks after the next write, which survives the end of the process.
    pub soon: &'a mut Vec<SyncCallback>,
    /// Callbacks after the next sync.
    pub synced: &'a mut Vec<SyncCallback>,
}

/// The thread.
pub struct HomeThread {
    /// None after a failed write, until the folder is reopened.
    folder: Option<Folder>,
    /// Why it can't be used.
    failed: Option<HomeError>,
    reopen_at_us: u64,
    path: PathBuf,
    sizes: Sizes,
    clock: Clock,
    shared: Arc<Shared>,
    waiting: WaitingCalls,
    retire_at_us: u64,
    /// No other process writes as long as it is open.
    lock: File,
}

impl HomeThread {
    pub fn new(folder: Folder, (path, lock): (PathBuf, File), sizes: Sizes, clock: Clock, shared: Arc<Shared>) -> Self {
        let waiting = WaitingCalls::new(Arc::clone(&shared));
        let retire_at_us = clock.now_us() + RETIRE_EVERY_US;
        Self {
            folder: Some(folder),
            failed: None,
            reopen_at_us: 0,
            path,
            sizes,
            clock,
            shared,
            waiting,
            retire_at_us,
            lock,
        }
    }

    /// Runs until the storage backend is closed.
    pub fn run(mut self) {
        let mut calls = Vec::new();
        loop {
            let closing = self.take(&mut calls);
            self.turn(&mut calls);
            if let Some(closing) = closing {
                self.end(closing);
                return;
            }
        }
    }

    /// Waits for calls or for a deadline. Some: the storage backend is to be closed, and these
    /// callers wait for the end.
    fn take(&self, calls: &mut Vec<Call>) -> Option<Vec<Teller<()>>> {
        let mut queue = self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let wait_us = self.next_us().saturating_sub(self.clock.now_us()).min(LONGEST_WAIT_US);
        if queue.calls.is_empty() && !queue.closed && wait_us > 0 {
            queue.sleeps = true;
            queue.until = (wait_us < LONGEST_WAIT_US).then(|| clock::now() + Duration::from_micros(wait_us));
            // A spurious wake costs a turn without work.
            let slept = self.shared.wakeup.wait_timeout(queue, Duration::from_micros(wait_us));
            queue = slept.unwrap_or_else(PoisonError::into_inner).0;
            queue.sleeps = false;
        }
        std::mem::swap(calls, &mut queue.calls);
        // Later callers of close get their result when the thread has ended.
        queue.closed.then(|| std::mem::take(&mut queue.closing))
    }

    fn next_us(&self) -> u64 {
        if self.waiting.has_ready() {
            return 0;
        }
        let mut next = self.waiting.next_us();
        if let Some(folder) = &self.folder {
            next = if folder.has_aging() { next.min(self.retire_at_us) } else { next };
            next = next.min(folder.next_us(self.clock.now_us(), Clock::wall_us()));
        }
        next
    }

    fn turn(&mut self, calls: &mut Vec<Call>) {
        let now_us = self.clock.now_us();
        if self.folder.is_none() {
            self.reopen(now_us);
        }
        let Some(folder) = &mut self.folder else {
            self.refuse(calls);
            return;
        };
        let (mut soon, mut synced) = (Vec::new(), Vec::new());
        let waiting = &mut self.waiting;
        let wall_us = Clock::wall_us();
        let mut doing = CallContext { folder, waiting, now_us, wall_us, soon: &mut soon, synced: &mut synced };
        for call in calls.drain(..) {
            call(Ok(&mut doing));
        }
        let done = doing.tick().and_then(|()| {
            let retire = now_us >= self.retire_at_us;
            if retire { doing.folder.retire(now_us) } else { Ok(()) }
        });
        if now_us >= self.retire_at_us {
            self.retire_at_us = now_us + RETIRE_EVERY_US;
        }
        doing.serve();
        let done = done.and_then(|()| doing.folder.write(now_us));
        tell(&mut soon, &done);
        let has_urgent = folder.has_urgent();
        let began = Instant::now();
        let done = done.and_then(|()| if has_urgent { folder.commit(now_us) } else { Ok(Vec::new()) });
        if has_urgent {
            let mut commits = self.shared.commits.lock().unwrap_or_else(PoisonError::into_inner);
            commits.times.record(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
            commits.calls += synced.len() as u64;
        }
        let result = done.as_ref().map(|_| ()).map_err(Clone::clone);
        tell(&mut synced, &result);
        match done {
            Ok(published) => published.iter().for_each(|stream| self.waiting.published(stream)),
            Err(error) => self.fail(error),
        }
    }

    /// Drops the folder, as only the state on the disk counts. The next call reopens it, unless the
    /// disk could not sync.
    fn fail(&mut self, error: HomeError) {
        self.folder = None;
        self.waiting.lose(&error);
        self.failed = Some(error);
        self.reopen_at_us = 0;
    }

    fn reopen(&mut self, now_us: u64) {
        let may = self.failed.as_ref().is_none_or(|error| error.kind() == HomeErrorKind::Disk);
        if !may || now_us < self.reopen_at_us {
            return;
        }
        self.reopen_at_us = now_us + REOPEN_EVERY_US;
        match open_folder(&self.path, self.sizes, now_us) {
            Ok(folder) => (self.folder, self.failed) = (Some(folder), None),
            Err(error) => self.failed = Some(error),
        }
    }

    /// Fails calls while the folder cannot be used.
    fn refuse(&mut self, calls: &mut Vec<Call>) {
        let error = self.failed.clone().unwrap_or_else(closed);
        calls.drain(..).for_each(|call| call(Err(error.clone())));
    }

    fn end(mut self, closing: Vec<Teller<()>>) {
        let mut calls = std::mem::take(&mut self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner).calls);
        self.turn(&mut calls);
        let now_us = self.clock.now_us();
        let result = self.folder.as_mut().map_or(Ok(()), |folder| folder.close(now_us));
        self.folder = None;
        self.waiting.lose(&closed());
        let shared = Arc::clone(&self.shared);
        // A notified caller may open the folder at once.
        drop(self.lock);
        let late = std::mem::take(&mut shared.queue.lock().unwrap_or_else(PoisonError::into_inner).closing);
        for teller in closing.into_iter().chain(late) {
            drop(teller.tell(result.clone()));
        }
    }
}

fn tell(callbacks: &mut Vec<SyncCallback>, result: &HomeResult<()>) {
    callbacks.drain(..).for_each(|tell| tell(result.clone()));
}

/// The error of a closed storage backend.
pub fn closed() -> HomeError {
    HomeError::new(HomeErrorKind::Closed, "the home was closed; open it again")
}
