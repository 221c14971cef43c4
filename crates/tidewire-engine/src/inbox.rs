//! Shared part of a mailbox for senders and the actor: plain data under one short lock.
//!
//! No code in this module calls user code: values to drop are handed out, and dropped after the
//! lock is released.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::actor::options::{Overflow, Priority};
use crate::actor::signal::Notice;
use crate::cell::envelope::Envelope;

/// Where an actor is between "nothing to do" and "on a thread".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// Nothing waits. The next message puts it on a run queue.
    Idle,
    /// On a run queue or on a thread.
    Active,
    /// Its handler waits for something outside; messages do not wake it, `resume` does.
    Awaiting,
}

/// State of a mailbox towards new messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcceptState {
    Open,
    /// No more messages; those accepted are still handled.
    Draining,
    /// No more messages, and none is begun any more.
    Closing,
    /// Terminated or abandoned.
    Closed,
}

pub(crate) enum PushOutcome<M> {
    /// Accepted; `wake` says that the actor must be put on a run queue.
    Accepted { wake: bool },
    /// Accepted, and this older one had to go.
    Evicted { wake: bool, old: Envelope<M> },
    /// Let go by policy.
    Dropped(Envelope<M>),
    /// The mailbox is full.
    Full(Envelope<M>),
    /// Takes no more messages.
    Stopped(Envelope<M>),
}

/// A queue that most actors never need: a box, so that one without takes a word.
#[allow(clippy::box_collection)]
pub(crate) type BoxedQueue<T> = Box<VecDeque<T>>;

/// The fields that change with every message come last; see [`ActorCell`](crate::cell::ActorCell)
/// for why their place matters.
#[repr(C)]
pub(crate) struct Inbox<M> {
    /// Urgent, high and low; most actors never need them.
    others: Option<Box<[VecDeque<Envelope<M>>; 3]>>,
    notices: Option<BoxedQueue<Notice>>,
    waiters: Option<BoxedQueue<Waker>>,
    pub dropped: u64,
    /// Accepted messages that were dropped for a newer one.
    pub evicted: u64,
    capacity: u32,
    /// How many the actor had taken and not begun when it was last looked at: never less than the
    /// truth.
    in_hand: u32,
    overflow: Overflow,
    pub state: AcceptState,
    pub run: Run,
    /// `resume` came while the actor was on a thread.
    pub resumed: bool,
    /// For how many messages that went first by their priority the high, the normal and the low
    /// lane have waited.
    passed: [u8; 3],
    normal: VecDeque<Envelope<M>>,
    pub accepted: u64,
    waiting: u32,
    pub high_water: u32,
    /// When the message with this number was accepted: a sample of the time in the queue.
    mark: Option<(NonZeroU64, u64)>,
}

/// Number of first messages that are all timed, unless a timed one still waits.
const SAMPLE_ALL: u64 = 64;
/// Sampling interval after that.
const SAMPLE_EVERY: u64 = 1024;

/// Nanoseconds since the first call, in one word.
pub(crate) fn nanos() -> NonZeroU64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let nanos = START.get_or_init(Instant::now).elapsed().as_nanos();
    u64::try_from(nanos).ok().and_then(|nanos| NonZeroU64::new(nanos + 1)).unwrap_or(NonZeroU64::MAX)
}

const URGENT: usize = 0;
const HIGH: usize = 1;
const LOW: usize = 2;

impl<M> Inbox<M> {
    pub fn new(capacity: u32, overflow: Overflow, run: Run) -> Self {
        Self {
            normal: VecDeque::new(),
            others: None,
            notices: None,
            waiters: None,
            accepted: 0,
            dropped: 0,
            evicted: 0,
            capacity,
            waiting: 0,
            in_hand: 0,
            high_water: 0,
            run,
            state: AcceptState::Open,
            overflow,
            resumed: false,
            passed: [0; 3],
            mark: None,
        }
    }

    /// Appends a message, or says why not. `in_hand` reads how many the actor has taken and not
    /// begun.
    #[inline]
    pub fn push(&mut self, envelope: Envelope<M>, priority: Priority, in_hand: impl Fn() -> u32) -> PushOutcome<M> {
        if self.state != AcceptState::Open {
            return PushOutcome::Stopped(envelope);
        }
        if self.waiting + self.in_hand >= self.capacity {
            self.in_hand = in_hand();
            if self.waiting + self.in_hand >= self.capacity {
                return self.overflow(envelope, priority);
            }
        }
        self.append(envelope, priority);
        PushOutcome::Accepted { wake: self.activate() }
    }

    /// Appends a notice of the engine; never refused. Answers whether the actor must be put on a
    /// run queue.
    pub fn notify(&mut self, notice: Notice) -> bool {
        self.notices.get_or_insert_default().push_back(notice);
        self.activate()
    }

    /// Makes an idle actor active, and answers whether it was idle.
    #[inline]
    pub fn activate(&mut self) -> bool {
        let idle = self.run == Run::Idle;
        if idle {
            self.run = Run::Active;
        }
        idle
    }

    /// Moves up to `most` messages of the normal lane into the actor's hand.
    pub fn take(&mut self, hand: &mut VecDeque<Envelope<M>>, most: usize) {
        let most = if self.overflow == Overflow::DropOld { 1 } else { most };
        if hand.is_empty() && self.normal.len() <= most {
            std::mem::swap(&mut self.normal, hand);
        } else {
            let n = most.min(self.normal.len());
            hand.extend(self.normal.drain(..n));
        }
        self.waiting -= hand.len() as u32;
        self.in_hand = hand.len() as u32;
    }

    /// Takes the next message by priority while lanes other than the normal one hold any. `burst`
    /// is how many messages of higher lanes may be handled in a row while a lower one waits.
    pub fn take_by_priority(&mut self, hand: &mut VecDeque<Envelope<M>>, burst: u8) -> Option<Envelope<M>> {
        let [urgent, high, low] = self.others_wait();
        let waits = [urgent, high, !hand.is_empty() || !self.normal.is_empty(), low];
        let due = (1..4).rev().find(|lane| waits[*lane] && self.passed[lane - 1] >= burst);
        let chosen = due.or_else(|| waits.iter().position(|waits| *waits))?;
        for (lane, passed) in (1..).zip(&mut self.passed) {
            // A due lane that goes first passes no other lane over: else a lane could be due twice
            // before another lane has its turn.
            *passed = match waits[lane] && lane != chosen {
                true => *passed + u8::from(due.is_none()),
                false => 0,
            };
        }
        match chosen {
            0 => self.pop_other(URGENT),
            1 => self.pop_other(HIGH),
            2 => self.pop_normal(hand),
            _ => self.pop_other(LOW),
        }
    }

    /// The time that the marked message has waited, if it was among those taken last.
    pub fn queueing(&mut self) -> Option<Duration> {
        let (since, number) = self.mark?;
        if number + u64::from(self.waiting) > self.accepted {
            return None;
        }
        self.mark = None;
        Some(Duration::from_nanos(nanos().get() - since.get()))
    }

    /// True if a notice waits, or a message in a lane other than the normal one.
    pub fn urgent(&self) -> bool {
        self.has_notice()
            || self.others_wait() != [false; 3]
            || matches!(self.state, AcceptState::Closing | AcceptState::Closed)
    }

    pub fn has_notice(&self) -> bool {
        self.notices.as_ref().is_some_and(|n| !n.is_empty())
    }

    pub fn take_notice(&mut self) -> Option<Notice> {
        let notices = self.notices.as_mut()?;
        let notice = notices.pop_front();
        if notices.is_empty() {
            // Most actors have one notice in their life, the one to start.
            self.notices = None;
        }
        notice
    }

    /// Open, with nothing for the actor to attend to.
    pub fn is_quiet(&self) -> bool {
        self.state == AcceptState::Open && !self.resumed && !self.urgent()
    }

    /// How many messages wait here.
    pub fn waiting(&self) -> u32 {
        self.waiting
    }

    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Takes out everything that waits, highest priority first.
    pub fn empty(&mut self) -> Vec<Envelope<M>> {
        let mut all = Vec::with_capacity(self.waiting as usize);
        if let Some(others) = &mut self.others {
            all.extend(others[URGENT].drain(..));
            all.extend(others[HIGH].drain(..));
        }
        all.extend(self.normal.drain(..));
        if let Some(others) = &mut self.others {
            all.extend(others[LOW].drain(..));
        }
        self.waiting = 0;
        all
    }

    /// Lets go of buffers that a burst left behind.
    pub fn shrink(&mut self, keep: usize) {
        if self.normal.is_empty() && self.normal.capacity() > keep {
            self.normal = VecDeque::new();
        }
    }

    /// True if senders wait for capacity instead of being refused.
    pub fn senders_wait(&self) -> bool {
        self.overflow == Overflow::Wait
    }

    /// Adds a sender that waits for capacity.
    pub fn wait(&mut self, waker: Waker) {
        let waiters = self.waiters.get_or_insert_default();
        if !waiters.iter().any(|known| known.will_wake(&waker)) {
            waiters.push_back(waker);
        }
    }

    /// Those to be woken now that `in_hand` messages are taken and not begun: all of them, once
    /// half of the mailbox is free.
    pub fn woken(&mut self, in_hand: u32) -> Option<BoxedQueue<Waker>> {
        self.waiters.as_ref()?;
        if self.waiting + in_hand <= self.capacity / 2 || self.state != AcceptState::Open {
            return self.waiters.take();
        }
        None
    }

    fn overflow(&mut self, envelope: Envelope<M>, priority: Priority) -> PushOutcome<M> {
        match self.overflow {
            Overflow::Wait | Overflow::Fail => PushOutcome::Full(envelope),
            Overflow::DropNew => {
                self.dropped += 1;
                PushOutcome::Dropped(envelope)
            }
            Overflow::DropOld => match self.pop_oldest() {
                Some(old) => {
                    self.evicted += 1;
                    self.append(envelope, priority);
                    PushOutcome::Evicted { wake: self.activate(), old }
                }
                None => PushOutcome::Full(envelope),
            },
        }
    }

    #[inline]
    fn append(&mut self, envelope: Envelope<M>, priority: Priority) {
        match priority {
            Priority::Normal => self.normal.push_back(envelope),
            Priority::Urgent => self.others.get_or_insert_default()[URGENT].push_back(envelope),
            Priority::High => self.others.get_or_insert_default()[HIGH].push_back(envelope),
            Priority::Low => self.others.get_or_insert_default()[LOW].push_back(envelope),
        }
        self.accepted += 1;
        self.waiting += 1;
        if self.mark.is_none() && (self.accepted < SAMPLE_ALL || self.accepted.is_multiple_of(SAMPLE_EVERY)) {
            self.mark = Some((nanos(), self.accepted));
        }
        if self.waiting > self.high_water {
            self.high_water = self.waiting;
        }
    }

    fn others_wait(&self) -> [bool; 3] {
        self.others.as_ref().map_or([false; 3], |others| others.each_ref().map(|lane| !lane.is_empty()))
    }

    fn pop_normal(&mut self, hand: &mut VecDeque<Envelope<M>>) -> Option<Envelope<M>> {
        if let Some(envelope) = hand.pop_front() {
            self.in_hand = hand.len() as u32;
            return Some(envelope);
        }
        let envelope = self.normal.pop_front();
        self.waiting -= u32::from(envelope.is_some());
        envelope
    }

    fn pop_other(&mut self, lane: usize) -> Option<Envelope<M>> {
        let envelope = self.others.as_mut()?[lane].pop_front();
        self.waiting -= u32::from(envelope.is_some());
        envelope
    }

    /// The oldest message of the lowest lane that holds any.
    fn pop_oldest(&mut self) -> Option<Envelope<M>> {
        if let Some(envelope) = self.pop_other(LOW) {
            return Some(envelope);
        }
        if let Some(envelope) = self.normal.pop_front() {
            self.waiting -= 1;
            return Some(envelope);
        }
        self.pop_other(HIGH).or_else(|| self.pop_other(URGENT))
    }
}
