//! Timers: one thread that sleeps until the next deadline of a timing wheel.

pub mod clock;
pub mod deadlines;
pub mod timer;
pub mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use tidewire_core::wheel::{Key, Wheel};
use tidewire_sync::clock as sync_clock;

use crate::actor::id::ActorId;
use crate::guard::guarded;
use crate::short_mutex::ShortMutex;
use crate::timers::deadlines::{CancelOutcome, DeadlineKey, Deadlines};

/// Action at a deadline. Called on the timer thread, outside of its lock.
pub trait Fire: Send + Sync {
    /// The time has come.
    fn fire(self: Arc<Self>);

    /// Notifies a waiter that the actor is abandoned. Called on any thread, outside of all locks.
    fn abandoned(&self, _actor: ActorId) {}
    /// The engine ends before it: the time never comes.
    fn never(self: Arc<Self>) {}

    /// State of the deadline since its insertion. For watched deadlines, the call runs under locks
    /// of the engine.
    #[doc(hidden)]
    fn due(&self) -> Due {
        Due::AsSaid
    }

    /// True while somebody waits for the deadline.
    #[doc(hidden)]
    fn waits(&self) -> bool {
        true
    }
}

/// State of a deadline since its insertion.
pub enum Due {
    /// It is as it was.
    AsSaid,
    /// It is later, or earlier.
    Later(Instant),
    /// Nothing is to happen any more.
    Never,
}

pub(crate) type TimerKey = Key;

/// The timers of one engine.
pub(crate) struct Timers {
    start: Instant,
    state: ShortMutex<State>,
    deadlines: Deadlines,
    /// Until when the thread sleeps, in microseconds; 0 while it is awake.
    asleep_until: AtomicU64,
}

struct State {
    wheel: Wheel<Arc<dyn Fire>>,
    thread: Option<JoinHandle<()>>,
    hiring: bool,
    ended: bool,
}

impl Timers {
    pub fn new() -> Arc<Self> {
        let state = State { wheel: Wheel::default(), thread: None, hiring: false, ended: false };
        let timers = Arc::new(Self {
            start: sync_clock::now(),
            state: ShortMutex::new(state),
            deadlines: Deadlines::new(),
            asleep_until: AtomicU64::new(u64::MAX),
        });
        sync_clock::register(&timers);
        timers
    }

    /// Lets `fire` happen at `at`, or as soon as possible after it. None: the engine has ended, and
    /// nothing happens any more.
    pub fn insert(self: &Arc<Self>, at: Instant, fire: Arc<dyn Fire>) -> Option<TimerKey> {
        let micros = self.micros(at);
        let (key, sleeper) = {
            let mut state = self.state.lock();
            if state.ended {
                return None;
            }
            let key = state.wheel.insert(micros, fire);
            (key, self.sleeper(&mut state, micros))
        };
        self.rouse(sleeper);
        Some(key)
    }

    /// As [`insert`](Timers::insert), for something that is usually taken back long before its
    /// time. It must be taken back by [`unwatch`](Timers::unwatch) in the end, whether it has fired
    /// or not.
    #[inline]
    pub fn watch(self: &Arc<Self>, at: Instant, fire: Arc<dyn Fire>) -> DeadlineKey {
        let micros = self.micros(at);
        let key = self.deadlines.insert(micros, fire);
        if micros < self.asleep_until.load(Ordering::Relaxed) {
            let sleeper = self.sleeper(&mut self.state.lock(), micros);
            self.rouse(sleeper);
        }
        key
    }

    /// Ends a watch.
    #[inline]
    pub fn unwatch(&self, key: DeadlineKey) {
        if let CancelOutcome::InWheel(key) = self.deadlines.remove(key) {
            self.remove(key);
        }
    }

    /// Tells all who wait for an actor, until a deadline, that it is abandoned.
    pub fn abandoned(&self, actor: ActorId) {
        let (mut waiting, in_wheel) = self.deadlines.all();
        {
            let state = self.state.lock();
            waiting.extend(in_wheel.into_iter().filter_map(|key| state.wheel.get(key).cloned()));
        }
        waiting.iter().for_each(|one| one.abandoned(actor));
    }

    /// Takes a timer out. It answers with what would have happened, if it has not begun to.
    pub fn remove(&self, key: TimerKey) -> Option<Arc<dyn Fire>> {
        self.state.lock().wheel.remove(key)
    }

    /// How many timers and watches there are.
    pub fn len(&self) -> usize {
        let watches = self.deadlines.waiting();
        self.state.lock().wheel.len() + watches
    }

    /// Ends the thread and all timers.
    pub fn end(&self) {
        let (thread, mut wheel) = {
            let mut state = self.state.lock();
            state.ended = true;
            (state.thread.take(), std::mem::take(&mut state.wheel))
        };
        if let Some(thread) = thread {
            thread.thread().unpark();
            if thread.thread().id() != thread::current().id() {
                // A panic on that thread was reported when it happened.
                let _ = thread.join();
            }
        }
        while let Some((_, fire)) = wheel.poll(u64::MAX) {
            guarded(|| fire.never());
        }
    }

    /// Microseconds since the start, rounded up so that nothing fires early.
    fn micros(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.start);
        since.as_secs().saturating_mul(1_000_000).saturating_add(u64::from(since.subsec_nanos().div_ceil(1000)))
    }

    /// The time of so many microseconds; None if the clock cannot count it.
    fn instant(&self, micros: u64) -> Option<Instant> {
        (micros != u64::MAX).then(|| self.start.checked_add(Duration::from_micros(micros)))?
    }

    /// Starts the thread. Engines without timers have none.
    fn hire(self: &Arc<Self>) {
        let timers = Arc::clone(self);
        let hired = thread::Builder::new().name("tidewire-timers".into()).spawn(move || timers.run());
        let mut state = self.state.lock();
        // Without a thread the next insertion tries again.
        state.hiring = false;
        let Ok(thread) = hired else { return };
        let ended = state.ended;
        if !ended {
            // Insertions before this line knew of no thread to wake.
            thread.thread().unpark();
            state.thread = Some(thread);
            return;
        }
        drop(state);
        // The thread sees the end by itself.
        drop(thread);
    }

    fn run(&self) {
        let mut due = Vec::new();
        loop {
            let now = u64::try_from(sync_clock::since(self.start).as_micros()).unwrap_or(u64::MAX);
            self.deadlines.move_due(now, |at| self.micros(at), |at, fire| self.state.lock().wheel.insert(at, fire));
            let until = {
                let mut state = self.state.lock();
                if state.ended {
                    // A later watch looks for a thread, and finds the end.
                    return self.asleep_until.store(u64::MAX, Ordering::Relaxed);
                }
                while due.len() < BURST
                    && let Some((_, fire)) = state.wheel.poll(now)
                {
                    due.push(fire);
                }
                let until = if due.is_empty() { state.wheel.next_deadline().unwrap_or(u64::MAX) } else { 0 };
                self.asleep_until.store(until, Ordering::Relaxed);
                until
            };
            if due.is_empty() {
                self.sleep(until);
            }
            due.drain(..).for_each(|fire| _ = guarded(|| fire.fire()));
        }
    }

    /// Sleeps until the next deadline, or until an earlier one is inserted.
    fn sleep(&self, wheel: u64) {
        // An insertion that this does not see yet has seen what `run` wrote, and wakes this thread.
        let until = self.deadlines.earliest().min(wheel);
        self.asleep_until.store(until, Ordering::Relaxed);
        match self.instant(until) {
            Some(until) => thread::park_timeout(until.saturating_duration_since(sync_clock::now())),
            None => thread::park(),
        }
    }

    fn rouse(self: &Arc<Self>, sleeper: Sleeper) {
        match sleeper {
            Sleeper::Sleeps => {}
            Sleeper::Wakes(thread) => thread.unpark(),
            Sleeper::Missing => self.hire(),
            Sleeper::Ended(micros) => self.watch_late(micros),
        }
    }

    /// A thread for one watch: the end of a node has a time limit, and waits for other things than
    /// its engine.
    #[cold]
    fn watch_late(self: &Arc<Self>, micros: u64) {
        let Some(until) = self.instant(micros) else { return };
        let timers = Arc::clone(self);
        let run = move || {
            thread::sleep(until.saturating_duration_since(sync_clock::now()));
            let now = timers.micros(sync_clock::now());
            let insert = |at, fire| timers.state.lock().wheel.insert(at, fire);
            timers.deadlines.move_due(now, |at| timers.micros(at), insert);
            loop {
                let due = timers.state.lock().wheel.poll(now);
                let Some((_, fire)) = due else { return };
                guarded(|| fire.fire());
            }
        };
        drop(thread::Builder::new().name("tidewire-timers".into()).spawn(run));
    }

    /// Looks whether the thread has to wake earlier than it would, for something at `micros`.
    fn sleeper(&self, state: &mut State, micros: u64) -> Sleeper {
        let Some(thread) = &state.thread else {
            return match state.ended {
                true => Sleeper::Ended(micros),
                false if std::mem::replace(&mut state.hiring, true) => Sleeper::Sleeps,
                false => Sleeper::Missing,
            };
        };
        if micros >= self.asleep_until.load(Ordering::Relaxed) {
            return Sleeper::Sleeps;
        }
        self.asleep_until.store(0, Ordering::Relaxed);
        Sleeper::Wakes(thread.thread().clone())
    }
}

impl sync_clock::Sleeper for Timers {
    fn sleeps_until(&self) -> Option<Instant> {
        let until = self.asleep_until.load(Ordering::Relaxed);
        if until == 0 { None } else { self.instant(until) }
    }

    fn wake(&self) {
        if let Some(thread) = &self.state.lock().thread {
            thread.thread().unpark();
        }
    }
}

/// Most timers that fire before newer ones are looked at.
const BURST: usize = 1024;

/// Duty of an insertion towards the timer thread.
enum Sleeper {
    /// It is awake, or wakes early enough.
    Sleeps,
    /// It must be woken.
    Wakes(Thread),
    /// There is none yet, and this insertion is to start it.
    Missing,
    /// There is none any more, and something is to happen after so many microseconds.
    Ended(u64),
}
