//! Driver trait: the layer between a mailbox and the code that handles its messages.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::actor::options::OnFailure;
use crate::actor::signal::{Signal, StopReason};
use crate::ask_slot::{AskEnd, AskState};
use crate::cell::envelope::{Envelope, Meta};
use crate::cell::{ATTEND_LANES, ATTEND_WAITERS, ActorCell};
use crate::error::{DeadReason, Fault};
use crate::inbox::AcceptState;

/// Hands messages to user code. One per actor; the engine calls it on one thread at a time.
pub trait Driver<M>: Send {
    /// True if `started` must run before the first message. Actors without a start hook cost
    /// nothing until their first message.
    fn wants_start(&self) -> bool {
        false
    }

    /// Runs the start hook.
    ///
    /// # Errors
    /// If the hook fails; the actor then stops or is restarted.
    fn started(&mut self, turn: &mut Activation<'_, M>) -> Result<(), Fault> {
        let _ = turn;
        Ok(())
    }

    /// Handles messages from [`Activation::take`] until that gives none, and reports each one's
    /// end.
    fn turn(&mut self, turn: &mut Activation<'_, M>);

    /// Takes a notice about another actor.
    ///
    /// # Errors
    /// If the handler of notices fails.
    fn signal(&mut self, signal: Signal, turn: &mut Activation<'_, M>) -> Result<(), Fault> {
        let _ = (signal, turn);
        Ok(())
    }

    /// All accepted messages have been handed out and no more will come. Returns true if no handler
    /// runs any more.
    fn finish(&mut self, turn: &mut Activation<'_, M>) -> bool {
        let _ = turn;
        true
    }

    /// Runs the stop hook.
    ///
    /// # Errors
    /// If the hook fails; that is recorded, and the actor terminates all the same.
    fn stopped(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// True if [`restart`](Driver::restart) can make new state.
    fn can_restart(&self) -> bool {
        false
    }

    /// Replaces the state by a new one, behaviours included.
    ///
    /// # Errors
    /// If the factory fails.
    fn restart(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

/// How a turn ended.
pub(crate) enum End {
    /// As many messages as one turn may handle.
    Budget,
    /// Nothing is left.
    Empty,
    /// Look again at once.
    Again,
    /// A notice of the engine comes first.
    Notice,
    /// The mailbox is closed, and nothing is left to hand out.
    Drained,
    /// The handler waits for something outside.
    Awaiting,
    /// The handler failed, and the policy is not to resume.
    Failed(String),
    /// The actor's future ended.
    Finished(Result<(), String>),
}

/// One turn of one actor: where its driver takes messages from, and says how each one ended.
pub struct Activation<'a, M> {
    pub(crate) cell: &'a Arc<ActorCell<M>>,
    pub(crate) hand: &'a mut VecDeque<Envelope<M>>,
    pub(crate) budget: u32,
    pub(crate) end: End,
    pub(crate) on_failure: OnFailure,
    pub(crate) max_deliveries: u32,
    /// How many messages the last look into the mailbox brought.
    pub(crate) batch: usize,
}

impl<M: Send + 'static> Activation<'_, M> {
    /// The next message. None ends the turn.
    #[inline]
    pub fn take(&mut self) -> Option<Envelope<M>> {
        loop {
            if self.budget == 0 {
                self.end = End::Budget;
                return None;
            }
            let attention = self.cell.attention.load(Ordering::Relaxed);
            let envelope = if attention & ATTEND_LANES != 0 {
                self.next_by_priority()?
            } else {
                match self.hand.pop_front() {
                    Some(envelope) => envelope,
                    None => self.refill()?,
                }
            };
            self.cell.in_hand.store(self.hand.len() as u32, Ordering::Relaxed);
            if attention & ATTEND_WAITERS != 0 && self.hand.is_empty() {
                self.cell.admit_waiters();
            }
            self.budget -= 1;
            match self.expired(&envelope) {
                None => return Some(envelope),
                Some(reason) => self.cell.bury_taken(envelope, reason, None),
            }
        }
    }

    /// Reports that a message was handled.
    #[inline]
    pub fn handled(&mut self, meta: Option<Box<Meta<M>>>) {
        add(&self.cell.handled);
        if let Some(meta) = meta
            && let Some(ask) = meta.ask
        {
            ask.settle(AskEnd::Handled);
        }
    }

    /// Reports how long a handler took that was [timed](crate::raw::ActorCell::is_timed), with all
    /// that it awaited.
    pub fn timed(&mut self, took: Duration) {
        self.cell.with_aside(|aside| aside.timings.handling.record(took.as_nanos() as u64));
    }

    /// Reports that a handler failed. `message` is the message or a copy of it, if there is one.
    /// Returns true if the driver may go on with the next message.
    pub fn failed(&mut self, message: Option<M>, meta: Option<Box<Meta<M>>>, fault: Fault) -> bool {
        self.cell.count_failure();
        let error = fault.to_string();
        let failures = meta.as_ref().map_or(0, |meta| meta.failures) + 1;
        if failures < self.max_deliveries
            && let Some(message) = message
        {
            let meta = meta.map(|meta| *meta).unwrap_or_default();
            self.hand.push_front(Envelope::with(message, Meta { failures, ..meta }));
        } else {
            self.cell.bury_failed(message, meta, fault, &error);
        }
        self.after_failure(error)
    }

    /// Reports that a handler failed on a message that is not to be delivered again, whatever the
    /// policy is. Answers as [`failed`](Activation::failed) does.
    pub fn given_up(&mut self, message: Option<M>, meta: Option<Box<Meta<M>>>, fault: Fault) -> bool {
        self.cell.count_failure();
        let error = fault.to_string();
        self.cell.bury_failed(message, meta, fault, &error);
        self.after_failure(error)
    }

    /// Reports that a message was found to be out of date by its handler: it is given up as
    /// expired, which is no failure.
    pub fn expired_in_handler(&mut self, message: Option<M>, meta: Option<Box<Meta<M>>>, fault: Fault) {
        self.cell.bury_expired(message, &fault.to_string());
        if let Some(ask) = meta.and_then(|meta| meta.ask) {
            ask.settle(AskEnd::Failed(fault));
        }
    }

    /// Applies the policy after a failure that belongs to no message. Answers whether the driver
    /// may go on.
    pub fn after_failure(&mut self, error: String) -> bool {
        let resume = self.on_failure == OnFailure::Resume;
        if !resume {
            self.end = End::Failed(error);
        }
        resume
    }

    /// Ends the turn: the running handler calls
    /// [`ActorCell::resume`](crate::raw::ActorCell::resume) at its end.
    pub fn awaiting(&mut self) {
        self.end = End::Awaiting;
    }

    /// Ends the turn: the running handler takes the waiting messages, and calls
    /// [`ActorCell::resume_unless_idle`](crate::raw::ActorCell::resume_unless_idle) at its end.
    /// Without waiting messages the actor is idle.
    pub fn leave(&mut self) {
        let nothing = self.hand.is_empty() && {
            let inbox = self.cell.inbox.lock();
            inbox.waiting() == 0 && inbox.is_quiet()
        };
        self.end = if nothing { End::Empty } else { End::Awaiting };
    }

    /// Gives a message back, to be taken next.
    pub fn put_back(&mut self, envelope: Envelope<M>) {
        self.hand.push_front(envelope);
    }

    /// The actor itself.
    pub fn cell(&self) -> &Arc<ActorCell<M>> {
        self.cell
    }

    pub(crate) fn finished(&mut self, result: Result<(), String>) {
        self.end = End::Finished(result);
    }

    fn expired(&self, envelope: &Envelope<M>) -> Option<DeadReason> {
        match envelope.ask()?.standing() {
            AskState::Live => None,
            AskState::Expired => Some(DeadReason::Expired),
            AskState::Cancelled => Some(DeadReason::Cancelled),
        }
    }

    /// The hand is empty: take what has come since, or become idle.
    fn refill(&mut self) -> Option<Envelope<M>> {
        let cell = self.cell;
        if self.batch < SMALL && cell.dispatcher.lingers() {
            gather();
        }
        let mut inbox = cell.inbox.lock();
        if inbox.waiting() == 0 && inbox.is_quiet() && cell.dispatcher.lingers() {
            drop(inbox);
            linger(cell);
            inbox = cell.inbox.lock();
        }
        if inbox.waiting() == 0 {
            let state = inbox.state;
            self.end = match state {
                _ if inbox.has_notice() => End::Notice,
                AcceptState::Open if std::mem::take(&mut inbox.resumed) => End::Again,
                AcceptState::Open => End::Empty,
                _ => End::Drained,
            };
            let woken = inbox.woken(0);
            inbox.shrink(crate::cell::KEEP);
            drop(inbox);
            self.hand.shrink_to(crate::cell::KEEP);
            cell.wake_senders(woken);
            return None;
        }
        inbox.take(self.hand, self.budget as usize);
        self.batch = self.hand.len();
        let queueing = inbox.queueing();
        let woken = inbox.woken(self.hand.len() as u32);
        drop(inbox);
        cell.wake_senders(woken);
        if let Some(queueing) = queueing {
            cell.record_queueing(queueing);
        }
        self.hand.pop_front()
    }

    /// Lanes other than the normal one hold something, or the engine has something to say.
    fn next_by_priority(&mut self) -> Option<Envelope<M>> {
        let cell = self.cell;
        let mut inbox = cell.inbox.lock();
        if inbox.has_notice() || matches!(inbox.state, AcceptState::Closing | AcceptState::Closed) {
            self.end =
                if inbox.has_notice() && inbox.state != AcceptState::Closed { End::Notice } else { End::Drained };
            return None;
        }
        let envelope = inbox.take_by_priority(self.hand, cell.core.lane_burst);
        if !inbox.urgent() {
            cell.attention.fetch_and(!ATTEND_LANES, Ordering::Relaxed);
        }
        if envelope.is_none() {
            drop(inbox);
            return self.refill();
        }
        envelope
    }
}

/// A batch with fewer messages is worth waiting a moment for more.
const SMALL: usize = 128;
/// How often an empty mailbox is looked at again.
const LOOKS: u32 = 8;

/// A few microseconds in which senders are left alone with the lock.
fn gather() {
    for _ in 0..48 {
        std::hint::spin_loop();
    }
}

/// Looks at an empty mailbox a few times more before its actor goes idle, while nothing else wants
/// this thread.
///
/// A fast actor with a busy sender would otherwise fall idle after every message, and each message
/// would pay for putting it on a run queue again. The looks are apart so that a batch can gather,
/// and end after a few microseconds.
fn linger<M>(cell: &ActorCell<M>) {
    for _ in 0..LOOKS {
        gather();
        if cell.inbox.lock().waiting() > 0 || crate::dispatch::others_wait() {
            return;
        }
    }
}

#[inline]
pub(crate) fn add(counter: &std::sync::atomic::AtomicU64) {
    // One writer at a time: the thread that runs the actor.
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// A stack of handlers over a base that is never lost. An actor that never changes its behaviour
/// pays one word for it.
pub struct Behaviours<H> {
    #[allow(clippy::box_collection)]
    above: Option<Box<Vec<H>>>,
}

impl<H> Default for Behaviours<H> {
    fn default() -> Self {
        Self::new()
    }
}

impl<H> Behaviours<H> {
    /// Nothing above the base.
    pub fn new() -> Self {
        Self { above: None }
    }

    /// Puts a handler on top, or in the place of the one on top. At the base, both put it above the
    /// base.
    pub fn push(&mut self, handler: H, stack: bool) -> Option<H> {
        let above = self.above.get_or_insert_default();
        let old = if stack { None } else { above.pop() };
        above.push(handler);
        old
    }

    /// Takes the handler on top away. At the base nothing happens.
    pub fn pop(&mut self) -> Option<H> {
        self.above.as_mut()?.pop()
    }

    /// The handler in force, or none for the base.
    #[inline]
    pub fn top(&mut self) -> Option<&mut H> {
        self.above.as_mut()?.last_mut()
    }

    /// How many handlers are above the base.
    pub fn depth(&self) -> usize {
        self.above.as_ref().map_or(0, |above| above.len())
    }

    /// Back to the base.
    pub fn clear(&mut self) {
        self.above = None;
    }
}

/// Stop reason of an actor that ended by itself.
pub(crate) fn reason_of(result: Result<(), String>) -> StopReason {
    match result {
        Ok(()) => StopReason::Finished,
        Err(error) => StopReason::Failed(error),
    }
}
