//! Thread pool with work stealing; its threads start one by one on demand.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_deque::{Injector, Steal, Stealer};
use tidewire_sync::{Condvar, Mutex, RwLock, clock};

use super::Task;
use super::parker::ParkedThreads;
use super::worker::{self, WorkerState};
use crate::actor::id::ActorId;
use crate::dispatch::starvation::Starvation;
use crate::guard::guarded;

/// Must run what it is given, once, on the same thread.
pub type ThreadWrapper = Box<dyn Fn(&mut (dyn FnMut() + Send)) + Send + Sync>;

/// Wraps the life and the idle times of dispatcher threads, for hosts that have a lock of their own
/// to hold meanwhile.
pub struct ThreadHooks {
    /// Runs the whole life of a thread.
    pub live: ThreadWrapper,
    /// Runs what the thread does while it has no actor to run.
    pub idle: ThreadWrapper,
}

impl Default for ThreadHooks {
    fn default() -> Self {
        Self { live: Box::new(|run| run()), idle: Box::new(|run| run()) }
    }
}

pub(crate) struct PoolOptions {
    pub name: String,
    pub threads: usize,
    pub spare_threads: usize,
    pub spin: Duration,
    pub stall: Duration,
    /// Wake a further thread as soon as more than one actor waits, rather than when the first is
    /// stuck.
    pub eager: bool,
    pub hooks: Arc<ThreadHooks>,
}

/// A thread that was in a handler when the pool had to end.
#[derive(Clone, Debug)]
pub(crate) struct StuckThread {
    pub thread: String,
}

pub(crate) struct Pool {
    pub options: PoolOptions,
    injector: Injector<Task>,
    posts: RwLock<Vec<Arc<WorkerState>>>,
    pub sleepers: ParkedThreads,
    /// Threads that look for work without having any.
    searching: AtomicUsize,
    /// How many calls for help with a growing line are passed over after one that was heard, and
    /// how many still are.
    pause: AtomicU32,
    pause_left: AtomicU32,
    /// Somebody shall watch for actors that wait behind a stuck one.
    watched: AtomicBool,
    /// Somebody does.
    watching: AtomicBool,
    workers: Mutex<Workers>,
    thread_ended: Condvar,
    started: AtomicBool,
    ending: AtomicBool,
    /// There are as many threads as there may be; only a hint, set under the workers's lock.
    complete: AtomicBool,
    /// The last time at which the pool was seen without a free thread, and who held them.
    pub last_starved: Mutex<Option<(Instant, Starvation)>>,
    /// Since when no turn has ended while the pool was without a free thread, and how many had.
    stalled: Mutex<Option<(u64, Instant)>>,
}

/// A pool of which all threads are in handlers while other actors wait.
pub(crate) struct HeldThreads {
    pub actors: Vec<ActorId>,
    /// Threads that wait through the engine.
    pub blocked: usize,
}

#[derive(Default)]
struct Workers {
    alive: usize,
    blocked: usize,
    born: usize,
    handles: Vec<(Arc<WorkerState>, JoinHandle<()>)>,
}

impl Pool {
    pub fn new(options: PoolOptions) -> Arc<Self> {
        Arc::new(Self {
            options,
            injector: Injector::new(),
            posts: RwLock::default(),
            sleepers: ParkedThreads::default(),
            searching: AtomicUsize::new(0),
            pause: AtomicU32::new(0),
            pause_left: AtomicU32::new(0),
            watched: AtomicBool::new(false),
            watching: AtomicBool::new(false),
            workers: Mutex::default(),
            thread_ended: Condvar::new(),
            started: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            complete: AtomicBool::new(false),
            last_starved: Mutex::default(),
            stalled: Mutex::default(),
        })
    }

    /// Lets threads run; what was scheduled before is run now.
    pub fn start(self: &Arc<Self>) {
        self.started.store(true, Ordering::SeqCst);
        if !self.injector.is_empty() {
            self.rouse();
        }
    }

    #[inline]
    pub fn schedule(self: &Arc<Self>, task: Task) {
        if let Some(task) = worker::push_local(self, task) {
            self.inject(task);
        }
    }

    /// Puts a task in the common line.
    pub fn inject(self: &Arc<Self>, task: Task) {
        self.injector.push(task);
        self.rouse_for_injected();
    }

    /// Called after a thread of the pool put a task in its own line, which now holds `waiting`.
    pub fn pushed_local(self: &Arc<Self>, waiting: usize) {
        if self.is_alone() {
            return;
        }
        if self.options.eager && waiting > 1 {
            if waiting.is_power_of_two() && self.searching.load(Ordering::Relaxed) == 0 && self.may_rouse_again() {
                self.rouse();
            }
        } else {
            // Either this sees that the watch has ended, or the one who ends it sees the task.
            fence(Ordering::SeqCst);
            if !self.watched.load(Ordering::Relaxed) {
                self.watch();
            }
        }
    }

    /// Takes a task for an idle thread: from the common queue first, then from the queues of other
    /// threads.
    ///
    /// A task stays with a thread in the middle of a turn that will get to it within microseconds:
    /// that thread will be there first and with warm caches. A pool that is not eager leaves all
    /// tasks to the thread that is awake. Neither rule holds for a thread that is stuck.
    pub fn find(&self, me: &WorkerState, line: &crossbeam_deque::Worker<Task>) -> Option<Task> {
        let posts = self.posts.read();
        if self.may_take_injected(me, &posts)
            && let Some(task) = retry(|| self.injector.steal_batch_with_limit_and_pop(line, 16))
        {
            return Some(task);
        }
        let start = posts.iter().position(|post| std::ptr::eq(post.as_ref(), me)).map_or(0, |at| at + 1);
        (0..posts.len())
            .map(|i| &posts[(start + i) % posts.len()])
            .filter(|post| self.may_take_from(me, post))
            .find_map(|post| retry(|| post.stealer.steal_batch_with_limit_and_pop(line, 16)))
    }

    /// Looks how fast the busy threads get through their lines: one that needs longer than a look
    /// is apart lags.
    pub fn observe(&self, samples: &mut Vec<(usize, u64, Instant)>) {
        let now = Instant::now();
        for post in self.posts.read().iter() {
            let turns = post.turns();
            match samples.iter_mut().find(|(number, ..)| *number == post.number) {
                None => samples.push((post.number, turns, now)),
                Some((_, before, since)) if now - *since >= LOOK => {
                    let done = u32::try_from(turns.wrapping_sub(*before) / 2).unwrap_or(u32::MAX);
                    post.set_lags(lags(done, now - *since, post.stealer.len()));
                    (*before, *since) = (turns, now);
                }
                Some(_) => {}
            }
        }
    }

    /// True if `find` would return a task.
    pub fn available(&self, me: &WorkerState) -> bool {
        let posts = self.posts.read();
        (!self.injector.is_empty() && self.may_take_injected(me, &posts))
            || posts.iter().any(|post| self.may_take_from(me, post))
    }

    pub fn injected(&self) -> bool {
        !self.injector.is_empty()
    }

    /// Marks the threads whose turn has not ended since `turns` was read, and moves their queued
    /// tasks to the common queue. Returns true if a task waits that no moving thread will take.
    /// Updates `turns`.
    pub fn unblock_stalled(&self, turns: &mut Vec<(usize, u64)>) -> bool {
        let posts = self.posts.read();
        let mut stalled = false;
        for post in posts.iter().filter(|post| post.in_turn() && turns.contains(&(post.number, post.turns()))) {
            post.mark_stuck(true);
            stalled = true;
            while let Some(task) = retry(|| post.stealer.steal()) {
                self.injector.push(task);
            }
        }
        turns.clear();
        turns.extend(posts.iter().map(|post| (post.number, post.turns())));
        stalled && !self.injector.is_empty()
    }

    /// True if any actor waits for a thread.
    pub fn anything_waits(&self) -> bool {
        !self.injector.is_empty() || self.posts.read().iter().any(|post| !post.stealer.is_empty())
    }

    /// The holders of all threads that the pool may have now, if an actor waits for a thread.
    pub fn held_threads(&self) -> Option<HeldThreads> {
        if !self.anything_waits() {
            return None;
        }
        let blocked = {
            let workers = self.workers.lock();
            if !self.is_complete(&workers) {
                return None;
            }
            workers.blocked
        };
        let actors: Vec<_> = self.posts.read().iter().map(|post| post.runs()).collect::<Option<_>>()?;
        (!actors.is_empty()).then_some(HeldThreads { actors, blocked })
    }

    /// For how long all threads have been in the same turns, as seen by calls of this.
    pub fn stalled_for(&self) -> Duration {
        let ended = self.posts.read().iter().map(|post| post.turns()).fold(0, u64::wrapping_add);
        let is_held = self.held_threads().is_some();
        let mut stalled = self.stalled.lock();
        *stalled = match *stalled {
            _ if !is_held => None,
            Some(stall) if stall.0 == ended => Some(stall),
            _ => Some((ended, Instant::now())),
        };
        stalled.map_or(Duration::ZERO, |(_, since)| since.elapsed())
    }

    /// True if all threads are idle or stuck.
    pub fn quiet(&self) -> bool {
        self.posts.read().iter().all(|post| !post.is_busy())
    }

    pub fn start_search(&self) {
        self.searching.fetch_add(1, Ordering::SeqCst);
    }

    /// Ends a search. After searches for nothing, threads with growing lines wake others less
    /// often.
    pub fn end_search(&self, found: bool) {
        self.searching.fetch_sub(1, Ordering::SeqCst);
        let pause = if found { 0 } else { (self.pause.load(Ordering::Relaxed) * 2 + 1).min(PAUSE_MAX) };
        self.pause.store(pause, Ordering::Relaxed);
    }

    /// Makes the caller the watcher, if one is wanted and there is none.
    pub fn start_watching(&self) -> bool {
        (self.watched.load(Ordering::Relaxed) || self.anything_waits()) && !self.watching.swap(true, Ordering::AcqRel)
    }

    /// Ends the caller's watch. Unless nothing has waited for a while, one is still wanted: the
    /// caller has found work, and passes the watch on, or comes back to it.
    pub fn stop_watching(&self, still_wanted: bool) {
        self.watched.store(still_wanted, Ordering::SeqCst);
        self.watching.store(false, Ordering::SeqCst);
    }

    /// A thread that rested, perhaps woken to watch, has found an actor to run: another one must
    /// watch what still waits.
    ///
    /// Together with `start_watching` this keeps the promise that whatever waits behind a handler
    /// that blocks is found: a thread goes to sleep only if nothing waits or somebody watches, and
    /// a thread that stops resting wakes another one to watch unless nothing waits or somebody
    /// does.
    pub fn pass_watch_on(self: &Arc<Self>) {
        if !self.is_alone() && !self.watching.load(Ordering::SeqCst) {
            self.watched.store(false, Ordering::SeqCst);
            if self.anything_waits() {
                self.watch();
            }
        }
    }

    pub fn ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    /// Wakes a sleeping thread, or starts one more.
    pub fn rouse(self: &Arc<Self>) {
        if self.started.load(Ordering::Relaxed) && !self.sleepers.wake_one() {
            self.hire();
        }
    }

    /// Announces that a thread is about to block in a handler. Another thread takes over the
    /// waiting tasks at once, not only when the thread is found to be stuck.
    pub fn block(self: &Arc<Self>, post: &WorkerState) {
        self.workers.lock().blocked += 1;
        self.complete.store(false, Ordering::Relaxed);
        post.mark_stuck(true);
        // Either this sees a thread that searches, or that thread sees what waits when it looks for
        // the last time.
        fence(Ordering::SeqCst);
        if self.searching.load(Ordering::SeqCst) == 0 && !self.sleepers.wake_one() {
            self.hire();
        }
    }

    pub fn unblock(&self, post: &WorkerState) {
        post.mark_stuck(false);
        self.workers.lock().blocked -= 1;
    }

    /// True if more threads are awake than needed, so that the calling thread may end.
    pub fn leave_if_surplus(&self, post: &Arc<WorkerState>) -> bool {
        let mut workers = self.workers.lock();
        let surplus = workers.alive > self.options.threads + workers.blocked;
        if surplus {
            self.leave(&mut workers, post);
        }
        surplus
    }

    /// Lets the threads end after their present turn, and waits for them.
    pub fn end(&self, deadline: Instant) -> Vec<StuckThread> {
        self.ending.store(true, Ordering::SeqCst);
        self.sleepers.wake_all();
        let mut workers = self.workers.lock();
        let mine = worker::post_of_this_thread();
        loop {
            let me = usize::from(
                mine.as_ref().is_some_and(|post| workers.handles.iter().any(|(other, _)| Arc::ptr_eq(other, post))),
            );
            if workers.alive <= me {
                break;
            }
            self.sleepers.wake_all();
            let late;
            (workers, late) = self.thread_ended.wait_for(workers, deadline.saturating_duration_since(clock::now()));
            if late {
                break;
            }
        }
        let handles = std::mem::take(&mut workers.handles);
        drop(workers);
        let mut stuck = Vec::new();
        for (post, handle) in handles {
            if mine.as_ref().is_some_and(|mine| Arc::ptr_eq(mine, &post)) {
                continue;
            }
            if post.has_left() {
                // The thread has signed off; what is left of it is its return.
                let _ = handle.join();
            } else {
                stuck.push(StuckThread { thread: handle.thread().name().unwrap_or("?").to_owned() });
            }
        }
        stuck
    }

    /// Releases the actors that are still queued when the pool ends, as no thread will run them.
    /// The future of an abandoned actor may hold the actor itself, and all that the actor holds,
    /// for ever. The release runs code of the user, and takes as long as that code.
    pub fn discard(&self) {
        loop {
            match self.injector.steal() {
                Steal::Success(task) => _ = guarded(|| task.discard()),
                Steal::Retry => {}
                Steal::Empty => return,
            }
        }
    }

    pub fn sign_off(&self, post: &Arc<WorkerState>) {
        let mut workers = self.workers.lock();
        self.leave(&mut workers, post);
    }

    pub fn threads_alive(&self) -> usize {
        self.workers.lock().alive
    }

    /// The work of a thread that leaves or blocks, for the others.
    pub fn give_back(&self, local: &crossbeam_deque::Worker<Task>) {
        while let Some(task) = local.pop() {
            self.injector.push(task);
        }
    }

    fn leave(&self, workers: &mut Workers, post: &Arc<WorkerState>) {
        if post.leave() {
            workers.alive -= 1;
            self.complete.store(false, Ordering::Relaxed);
            self.posts.write().retain(|other| !Arc::ptr_eq(other, post));
            if !self.ending() {
                workers.handles.retain(|(other, _)| !Arc::ptr_eq(other, post));
            }
            self.thread_ended.notify_all();
        }
    }

    fn may_take_injected(&self, me: &WorkerState, posts: &[Arc<WorkerState>]) -> bool {
        self.options.eager || !posts.iter().any(|post| !std::ptr::eq(post.as_ref(), me) && post.is_busy())
    }

    fn may_take_from(&self, me: &WorkerState, post: &Arc<WorkerState>) -> bool {
        let waiting = post.stealer.len();
        let left_to_it = match (post.is_busy(), self.options.eager && post.lags()) {
            (false, _) => 0,
            (true, true) => 1,
            (true, false) => usize::MAX,
        };
        waiting > left_to_it && !std::ptr::eq(post.as_ref(), me)
    }

    fn may_rouse_again(&self) -> bool {
        // Two threads may count at once. The count is a hint: the watching thread checks the pace
        // of the others as well.
        let left = self.pause_left.load(Ordering::Relaxed);
        self.pause_left.store(if left == 0 { self.pause.load(Ordering::Relaxed) } else { left - 1 }, Ordering::Relaxed);
        left == 0
    }

    fn rouse_for_injected(self: &Arc<Self>) {
        fence(Ordering::SeqCst);
        if self.searching.load(Ordering::SeqCst) > 0 {
            return;
        }
        if self.options.eager || self.quiet() {
            self.rouse();
        } else if !self.watched.load(Ordering::Relaxed) {
            self.watch();
        }
    }

    /// True if the pool has one thread, and never another one.
    fn is_alone(&self) -> bool {
        self.options.threads == 1 && self.options.spare_threads == 0
    }

    fn watch(self: &Arc<Self>) {
        if !self.watched.swap(true, Ordering::SeqCst) {
            self.rouse();
        }
    }

    fn is_complete(&self, workers: &Workers) -> bool {
        workers.alive >= self.options.threads + workers.blocked.min(self.options.spare_threads)
    }

    /// Starts one more thread, if the pool may have one.
    fn hire(self: &Arc<Self>) {
        if self.ending() || self.complete.load(Ordering::Relaxed) {
            return;
        }
        let mut workers = self.workers.lock();
        if self.is_complete(&workers) {
            self.complete.store(true, Ordering::Relaxed);
            return;
        }
        workers.born += 1;
        let number = workers.born;
        let (post, line) = WorkerState::new(number);
        let pool = Arc::clone(self);
        let name = format!("{}-{number}", self.options.name);
        let at = Arc::clone(&post);
        let spawned = thread::Builder::new().name(name).spawn(move || {
            let hooks = Arc::clone(&pool.options.hooks);
            let mut work = Some((pool, at, line));
            (hooks.live)(&mut || {
                if let Some((pool, post, line)) = work.take() {
                    worker::work(pool, post, line);
                }
            });
        });
        // Without a thread the work waits for those that exist; with none at all the next schedule
        // tries again.
        if let Ok(handle) = spawned {
            workers.alive += 1;
            self.posts.write().push(Arc::clone(&post));
            workers.handles.push((post, handle));
        }
    }
}

/// A line that takes longer than this to work off is worth sharing.
const LOOK: Duration = Duration::from_micros(30);
/// A task that moves to another core has to fetch its memory from there. Turns shorter than this
/// cost less than that.
const SHORT_TURN: Duration = Duration::from_micros(4);
/// A line of short turns that takes longer than this is worth sharing all the same.
const LONG_LINE: Duration = Duration::from_micros(500);

/// Most calls for help that are passed over.
const PAUSE_MAX: u32 = 255;

/// True if a thread with so many turns in this time is too slow for its queue.
fn lags(turns: u32, time: Duration, line: usize) -> bool {
    let Some(turn) = time.checked_div(turns) else { return line > 0 };
    let backlog = turn.saturating_mul(u32::try_from(line).unwrap_or(u32::MAX));
    backlog > if turn < SHORT_TURN { LONG_LINE } else { LOOK }
}

pub(crate) type TaskStealer = Stealer<Task>;

fn retry(mut steal: impl FnMut() -> Steal<Task>) -> Option<Task> {
    loop {
        match steal() {
            Steal::Success(task) => return Some(task),
            Steal::Empty => return None,
            Steal::Retry => {}
        }
    }
}
