//! Worker thread of a dispatcher: it finds an actor, runs its turn, looks again, spins a little and
//! sleeps.

use std::cell::RefCell;
use std::hint::spin_loop;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::yield_now;
use std::time::Instant;

use crossbeam_deque::Worker as Line;

use super::parker::Parker;
use super::pool::{Pool, TaskStealer};
use super::{DispatcherKind, Task};
use crate::actor::id::ActorId;
use crate::guard::guarded;

/// State of one worker thread that other threads see.
pub(crate) struct WorkerState {
    pub number: usize,
    pub stealer: TaskStealer,
    bed: Arc<Parker>,
    /// Odd while a turn runs; grows by two per turn.
    turns: AtomicU64,
    /// The actor of the present turn, or of the last one.
    actor: AtomicU64,
    /// It has found nothing to do, and looks or sleeps.
    resting: AtomicBool,
    /// The present turn was found not to move.
    stuck: AtomicBool,
    /// Its line is long for the pace at which it works.
    lags: AtomicBool,
    has_left: AtomicBool,
}

impl WorkerState {
    pub fn new(number: usize) -> (Arc<Self>, Line<Task>) {
        let line = Line::new_fifo();
        let post = Self {
            number,
            stealer: line.stealer(),
            bed: Parker::new(),
            turns: AtomicU64::new(0),
            actor: AtomicU64::new(0),
            resting: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
            lags: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
        };
        (Arc::new(post), line)
    }

    pub fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// The actor whose turn it is on the thread, if one has a turn.
    pub fn runs(&self) -> Option<ActorId> {
        self.in_turn().then(|| ActorId::new(self.actor.load(Ordering::Relaxed)))
    }

    pub fn in_turn(&self) -> bool {
        self.turns() % 2 == 1
    }

    /// True during a turn and between two turns.
    pub fn is_at_work(&self) -> bool {
        !self.resting.load(Ordering::Relaxed)
    }

    /// At work, and moving as far as is known.
    pub fn is_busy(&self) -> bool {
        self.is_at_work() && !self.stuck.load(Ordering::Relaxed)
    }

    pub fn lags(&self) -> bool {
        self.lags.load(Ordering::Relaxed)
    }

    pub fn set_lags(&self, lags: bool) {
        self.lags.store(lags, Ordering::Relaxed);
    }

    pub fn mark_stuck(&self, stuck: bool) {
        self.stuck.store(stuck, Ordering::Relaxed);
    }

    /// Marks the thread as ended. False: it was marked before.
    pub fn leave(&self) -> bool {
        !self.has_left.swap(true, Ordering::AcqRel)
    }

    pub fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Acquire)
    }

    fn step(&self) {
        self.turns.store(self.turns.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        if self.stuck.load(Ordering::Relaxed) {
            self.stuck.store(false, Ordering::Relaxed);
        }
    }
}

struct WorkerContext {
    pool: Arc<Pool>,
    post: Arc<WorkerState>,
    line: Line<Task>,
}

impl WorkerContext {
    fn push(&self, task: Task) {
        self.line.push(task);
        self.pool.pushed_local(self.line.len());
    }
}

thread_local! {
    static SEAT: RefCell<Option<WorkerContext>> = const { RefCell::new(None) };
}

/// Puts a task in the line of this thread if it belongs to the pool; else gives it back.
#[inline]
pub(crate) fn push_local(pool: &Arc<Pool>, task: Task) -> Option<Task> {
    SEAT.with_borrow(|seat| match seat {
        Some(seat) if Arc::ptr_eq(&seat.pool, pool) => {
            seat.push(task);
            None
        }
        _ => Some(task),
    })
}

/// As [`push_local`], for the pool that the task runs in.
#[inline]
pub(crate) fn push_where_it_runs(task: Task) -> Option<Task> {
    let runs_in = |task: &Task, pool: &Arc<Pool>| matches!(&task.dispatcher().place, DispatcherKind::Threads(its) if Arc::ptr_eq(its, pool));
    SEAT.with_borrow(|seat| match seat {
        Some(seat) if runs_in(&task, &seat.pool) => {
            seat.push(task);
            None
        }
        _ => Some(task),
    })
}

/// True if another actor waits for this thread.
pub(crate) fn others_wait() -> bool {
    SEAT.with_borrow(|seat| seat.as_ref().is_none_or(|seat| !seat.line.is_empty() || seat.pool.injected()))
}

/// Runs something that may block this thread. If it is a dispatcher thread, others look after its
/// actors meanwhile.
pub fn blocking<R: Send>(wait: impl FnOnce() -> R + Send) -> R {
    let seat = SEAT.with_borrow(|seat| {
        seat.as_ref().map(|seat| {
            seat.pool.give_back(&seat.line);
            (Arc::clone(&seat.pool), Arc::clone(&seat.post))
        })
    });
    let Some((pool, post)) = seat else { return wait() };
    pool.block(&post);
    let mut wait = Some(wait);
    let mut result = None;
    (pool.options.hooks.idle)(&mut || result = wait.take().map(|wait| wait()));
    pool.unblock(&post);
    match result {
        Some(result) => result,
        None => unreachable!("the idle hook of a dispatcher thread must run what it is given"),
    }
}

/// In the child of a fork: the pool of this thread stayed in the parent, and its locks may be taken
/// for ever.
pub(crate) fn leave_seat() {
    SEAT.with(|seat| {
        if let Ok(mut seat) = seat.try_borrow_mut() {
            let _leaked = ManuallyDrop::new(seat.take());
        }
    });
}

pub(crate) fn post_of_this_thread() -> Option<Arc<WorkerState>> {
    SEAT.with_borrow(|seat| seat.as_ref().map(|seat| Arc::clone(&seat.post)))
}

/// The life of a thread.
pub(crate) fn work(pool: Arc<Pool>, post: Arc<WorkerState>, line: Line<Task>) {
    post.bed.mine();
    SEAT.set(Some(WorkerContext { pool: Arc::clone(&pool), post: Arc::clone(&post), line }));
    let mut rested = true;
    while !pool.ending() {
        match next(&pool, &post) {
            Some(task) => {
                if std::mem::take(&mut rested) {
                    pool.pass_watch_on();
                }
                post.actor.store(task.actor().get(), Ordering::Relaxed);
                post.step();
                guarded(|| task.run());
                post.step();
            }
            None => match rest(&pool, &post) {
                IdleResult::Look => rested = true,
                IdleResult::Leave => break,
            },
        }
    }
    if let Some(seat) = SEAT.take() {
        pool.give_back(&seat.line);
    }
    if pool.ending() {
        pool.discard();
    }
    pool.sign_off(&post);
}

enum IdleResult {
    Look,
    Leave,
}

fn next(pool: &Pool, post: &WorkerState) -> Option<Task> {
    SEAT.with_borrow(|seat| {
        let line = &seat.as_ref()?.line;
        // Now and then the common line goes first, so that a busy pair of actors cannot keep others
        // out.
        if post.turns() % 128 == 126
            && let Some(task) = pool.find(post, line)
        {
            return Some(task);
        }
        line.pop().or_else(|| pool.find(post, line))
    })
}

/// Nothing to do: spin a little, then sleep until woken.
fn rest(pool: &Arc<Pool>, post: &Arc<WorkerState>) -> IdleResult {
    let mut rest = IdleResult::Look;
    post.resting.store(true, Ordering::Relaxed);
    (pool.options.hooks.idle)(&mut || {
        if !spin(pool, post) {
            rest = park(pool, post);
        }
    });
    post.resting.store(false, Ordering::Relaxed);
    rest
}

/// Looks for work again and again for a short time. Answers whether there is some.
fn spin(pool: &Pool, post: &WorkerState) -> bool {
    if pool.options.spin.is_zero() {
        return false;
    }
    pool.start_search();
    let start = Instant::now();
    let mut found = false;
    let mut pauses = 4;
    let mut samples = Vec::new();
    while !found && start.elapsed() < pool.options.spin && !pool.ending() {
        for _ in 0..pauses {
            spin_loop();
        }
        pauses = (pauses * 2).min(16);
        // A thread that was woken by the last turn may have been put on this very core: let it run.
        yield_now();
        pool.observe(&mut samples);
        found = pool.available(post);
    }
    pool.end_search(found);
    // A producer that saw this thread searching woke nobody: look once more now that it does not
    // search any more.
    found || pool.available(post)
}

/// How many quiet looks in a row end a watch.
const QUIET_LOOKS: u32 = 8;

fn park(pool: &Arc<Pool>, post: &Arc<WorkerState>) -> IdleResult {
    pool.sleepers.announce(&post.bed);
    if pool.available(post) || pool.ending() {
        pool.sleepers.retract(&post.bed);
        return IdleResult::Look;
    }
    if pool.leave_if_surplus(post) {
        // Somebody may have chosen this thread for work in the meantime: that work needs another
        // one.
        if !pool.sleepers.retract(&post.bed) {
            pool.rouse();
        }
        return IdleResult::Leave;
    }
    if pool.start_watching() {
        return watch(pool, post);
    }
    pool.sleepers.sleep(&post.bed, None);
    IdleResult::Look
}

/// Sleeps, and looks from time to time whether an actor waits behind a stuck one.
fn watch(pool: &Arc<Pool>, post: &Arc<WorkerState>) -> IdleResult {
    let mut turns = Vec::new();
    let mut samples = Vec::new();
    let mut quiet = 0;
    pool.unblock_stalled(&mut turns);
    pool.observe(&mut samples);
    while quiet < QUIET_LOOKS {
        if pool.sleepers.sleep(&post.bed, Some(pool.options.stall)) {
            break;
        }
        if pool.unblock_stalled(&mut turns) {
            break;
        }
        pool.observe(&mut samples);
        quiet = if pool.quiet() || !pool.anything_waits() { quiet + 1 } else { 0 };
        pool.sleepers.announce(&post.bed);
        if pool.available(post) || pool.ending() {
            pool.sleepers.retract(&post.bed);
            break;
        }
    }
    if quiet >= QUIET_LOOKS {
        pool.sleepers.retract(&post.bed);
    }
    pool.stop_watching(quiet < QUIET_LOOKS);
    IdleResult::Look
}
