//! An actor cell as parents, watchers and the engine see it.

use super::{ATTEND_LANES, ATTEND_REST, ActorCell, ColdState};
use crate::actor::id::ActorId;
use crate::actor::options::Priority;
use crate::actor::signal::{Notice, StopReason};
use crate::cell::any_cell::AnyCell;
use crate::cell::envelope::Envelope;
use crate::dispatch::{Dispatcher, Run as Runnable};
use crate::error::{DeadReason, Refusal};
use crate::guard::guarded;
use crate::inbox::{AcceptState, Run};
use crate::statistics::ActorStatistics;
use crate::statistics::stop_report::{EndReporter, Report, Stuck};
use crate::timers::Fire;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Wake, Waker};

impl<M: Send + 'static> AnyCell for ActorCell<M> {
    fn id(&self) -> ActorId {
        self.id
    }

    fn name(&self) -> Option<&Arc<str>> {
        self.name.as_ref()
    }

    fn place(&self) -> &Arc<Dispatcher> {
        &self.dispatcher
    }

    fn notify(self: Arc<Self>, notice: Notice) {
        let wake = {
            let mut inbox = self.inbox.lock();
            if inbox.state == AcceptState::Closed {
                return;
            }
            self.attention.fetch_or(ATTEND_LANES, Ordering::Relaxed);
            inbox.notify(notice)
        };
        if wake {
            self.schedule();
        }
    }

    fn begin_stop(self: Arc<Self>, drain: bool, reason: StopReason) {
        self.close(drain, false, reason);
    }

    fn abandon(self: Arc<Self>) {
        if self.inbox.lock().state == AcceptState::Closed {
            return self.abandon_closed();
        }
        let dead = self.with_aside(|aside| {
            aside.owed.get_or_insert_default();
            aside.dead
        });
        let (remaining, in_hand, report) = {
            let mut inbox = self.inbox.lock();
            if inbox.state == AcceptState::Closed {
                return;
            }
            inbox.state = AcceptState::Closed;
            self.attention.fetch_or(ATTEND_LANES, Ordering::Relaxed);
            let stuck = self.stuck(inbox.run == Run::Awaiting);
            let remaining = inbox.empty();
            // Besides what waits, this is what the actor has in hand, and the message in progress.
            let unfinished = {
                let ledger = self.ledger(&inbox, dead, 0, 0);
                ledger.accepted.saturating_sub(ledger.handled + ledger.dead_lettered)
            };
            let ledger = self.ledger(&inbox, dead, 0, unfinished);
            let in_hand = unfinished.saturating_sub(remaining.len() as u64);
            (remaining, in_hand, Report { ledger, reason: StopReason::Abandoned, stuck: Some(stuck) })
        };
        self.owe_letters(in_hand);
        for envelope in remaining {
            guarded(|| self.dead_letter(envelope, DeadReason::Abandoned, None));
        }
        let children = self.with_aside(|aside| std::mem::take(&mut aside.children));
        for child in children.into_values() {
            child.abandon();
        }
        self.end(report, Vec::new());
        // Those whose messages it has in hand.
        self.core.timers.abandoned(self.id);
        self.resume();
    }

    fn child_gone(self: Arc<Self>, child: ActorId) {
        let last = self.with_aside(|aside| aside.children.remove(&child).is_some() && aside.children.is_empty());
        if last && !self.is_open() {
            self.resume();
        }
    }

    fn report(&self) -> Option<Report> {
        self.aside.lock().as_ref().and_then(|aside| aside.report.clone())
    }

    fn on_end(self: Arc<Self>, waker: Waker) -> bool {
        let ending = self
            .with_aside(|aside| Arc::clone(aside.ending.get_or_insert_with(|| EndReporter::new(aside.report.clone()))));
        ending.watch(waker)
    }

    fn adopt(&self, child: Arc<dyn AnyCell>) -> bool {
        self.with_aside(|aside| {
            let open = aside.report.is_none() && !aside.refuses_children;
            if open {
                aside.children.insert(child.id(), child);
            }
            open
        })
    }

    fn has_parent(&self) -> bool {
        self.aside.lock().as_ref().is_some_and(|aside| aside.parent.is_some())
    }

    fn statistics(&self) -> ActorStatistics {
        let in_hand = self.in_hand.load(Ordering::Relaxed);
        let (timings, restarts, failed) = self
            .aside
            .lock()
            .as_ref()
            .map_or((None, 0, 0), |aside| (Some(aside.timings.clone()), aside.restarts, aside.failed));
        let inbox = self.inbox.lock();
        ActorStatistics {
            id: self.id,
            name: self.name.clone(),
            dispatcher: self.dispatcher.name.clone(),
            accepted: inbox.accepted,
            handled: self.handled.load(Ordering::Relaxed),
            failed,
            dropped: inbox.dropped + inbox.evicted,
            depth: (inbox.waiting() + in_hand) as usize,
            high_water: inbox.high_water as usize,
            capacity: inbox.capacity() as usize,
            restarts,
            timings: timings.unwrap_or_default(),
        }
    }

    fn parent(&self) -> Option<Arc<dyn AnyCell>> {
        self.aside.lock().as_ref().and_then(|aside| aside.parent.clone())
    }

    fn accepted_if_idle(&self) -> Option<u64> {
        let dead = self.aside.lock().as_ref().map_or(0, |aside| aside.dead);
        let inbox = self.inbox.lock();
        // A task of a coroutine may have a message in hand while the actor is idle: what counts is
        // what became of all of them.
        let ended = self.handled.load(Ordering::Relaxed) + dead + inbox.evicted;
        let is_idle = inbox.run == Run::Idle && inbox.accepted == ended && !inbox.has_notice();
        (is_idle || inbox.state == AcceptState::Closed).then_some(inbox.accepted)
    }

    fn wake_when_idle(&self, waker: &Waker) -> bool {
        self.with_aside(|aside| {
            if !aside.idle_wakers.iter().any(|known| known.will_wake(waker)) {
                aside.idle_wakers.push(waker.clone());
            }
        });
        {
            // The lock under which the actor becomes idle: it sees this, or the look below sees it
            // idle.
            let _inbox = self.inbox.lock();
            self.attention.fetch_or(ATTEND_REST, Ordering::Relaxed);
        }
        let busy = self.accepted_if_idle().is_none();
        if !busy {
            let at = |aside: &ColdState<M>| aside.idle_wakers.iter().position(|known| known.will_wake(waker));
            let woken = self.with_aside(|aside| at(aside).map(|at| aside.idle_wakers.swap_remove(at)));
            drop(woken);
        }
        busy
    }

    fn tell_any(self: Arc<Self>, message: Box<dyn Any + Send>) -> Result<(), (Refusal, Box<dyn Any + Send>)> {
        let message = match message.downcast::<M>() {
            Ok(message) => message,
            Err(message) => return Err((Refusal::Stopped { actor: self.id }, message)),
        };
        match self.push(Envelope::Plain(*message), Priority::Normal) {
            Ok(_) => Ok(()),
            Err((refusal, envelope)) => match envelope.into_message() {
                Some(message) => Err((refusal, Box::new(message))),
                None => Ok(()),
            },
        }
    }

    fn run_inline(self: Arc<Self>) {
        Runnable::run(self);
    }

    fn takes_over(&self) -> bool {
        self.dispatcher.take_over()
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

impl<M: Send + 'static> ActorCell<M> {
    fn stuck(&self, awaiting: bool) -> Stuck {
        Stuck {
            actor: self.id,
            name: self.name.clone(),
            dispatcher: self.dispatcher.name.clone(),
            thread: crate::dispatch::threads::name(self.thread.load(Ordering::Relaxed)),
            awaiting,
        }
    }

    /// It has handled all it will, and is stuck in dropping what it has: its state, or messages.
    fn abandon_closed(&self) {
        let report = self.with_aside(|aside| {
            aside.hurries = true;
            aside.ends_with.take()
        });
        if let Some(report) = report {
            let stuck = Some(self.stuck(false));
            self.end(Report { stuck, reason: StopReason::Abandoned, ..report }, Vec::new());
        }
    }
}

impl<M: Send + 'static> Wake for ActorCell<M> {
    fn wake(self: Arc<Self>) {
        self.resume_by();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.resume();
    }
}

impl<M: Send + 'static> Fire for ActorCell<M> {
    fn fire(self: Arc<Self>) {
        self.resume_by();
    }
}
