//! Turns of an actor, its failures and restarts, and its end. The thread that runs the actor holds
//! the lock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::actor::id::ActorId;
use crate::actor::options::{OnFailure, Supervision};
use crate::actor::signal::{Notice, StopReason};
use crate::cell::any_cell::AnyCell;
use crate::cell::driver::{Activation, Driver, End, reason_of};
use crate::cell::envelope::Envelope;
use crate::cell::{ATTEND_LANES, ActorCell};
use crate::error::{DeadReason, Fault};
use crate::guard::guarded;
use crate::inbox::{AcceptState, Run};
use crate::statistics::is_sampled;
use crate::statistics::stop_report::Report;
use crate::supervise::Restarts;
use crate::timers::Fire;

/// State that only the running actor touches.
#[repr(C)]
pub(crate) struct ActorRun<M> {
    hand: VecDeque<Envelope<M>>,
    driver: Option<Box<dyn Driver<M>>>,
    turns: u32,
    /// New state is to be made before the next turn.
    restart_due: bool,
    started: bool,
    /// A handler failed outside of a turn, and the policy is not to resume.
    failed_outside: bool,
    supervision: Option<Box<Supervised>>,
}

struct Supervised {
    policy: Supervision,
    restarts: Restarts,
}

/// Next step of `run` after a turn.
pub(crate) enum NextStep {
    Rest,
    Requeue,
}

impl<M: Send + 'static> ActorRun<M> {
    pub fn new(driver: Box<dyn Driver<M>>, policy: Supervision, id: ActorId) -> Self {
        let is_default = policy == Supervision::default();
        Self {
            hand: VecDeque::new(),
            started: !driver.wants_start(),
            driver: Some(driver),
            turns: 0,
            restart_due: false,
            failed_outside: false,
            supervision: (!is_default).then(|| Box::new(Supervised { policy, restarts: Restarts::new(&policy, id) })),
        }
    }

    /// Gives a binding the desk between turns; see [`ActorCell::outside`].
    pub fn outside<R>(&mut self, cell: &Arc<ActorCell<M>>, visit: impl FnOnce(&mut Activation<'_, M>) -> R) -> R {
        let (on_failure, max_deliveries) = self.policy();
        let hand = &mut self.hand;
        let mut turn =
            Activation { cell, hand, budget: 1, end: End::Again, on_failure, max_deliveries, batch: usize::MAX };
        let result = visit(&mut turn);
        if let End::Failed(error) = turn.end {
            self.failed_outside = true;
            cell.with_aside(|aside| aside.failed_outside = Some(error));
        }
        result
    }

    /// Runs turns until nothing is left, others wait, or something outside is awaited.
    pub fn go(&mut self, cell: &Arc<ActorCell<M>>) -> NextStep {
        loop {
            if cell.attention.load(Ordering::Relaxed) & ATTEND_LANES != 0 {
                if cell.inbox.lock().state == AcceptState::Closed {
                    // A future that is polled once more may go on waiting for ever.
                    self.bury_hand_of_abandoned(cell);
                    return NextStep::Rest;
                }
                self.take_notices(cell);
            }
            if std::mem::take(&mut self.failed_outside)
                && let Some(error) = cell.with_aside(|aside| aside.failed_outside.take())
            {
                self.fail(cell, error);
            }
            if self.restart_due && self.restart(cell) {
                return self.await_backoff(cell);
            }
            let Some(end) = self.turn(cell) else { return NextStep::Rest };
            match end {
                End::Budget if crate::dispatch::others_wait() => return NextStep::Requeue,
                End::Budget | End::Again | End::Notice => {}
                End::Empty => {
                    // The last thing before the turn is over: from here on another thread may run
                    // the actor.
                    let mut inbox = cell.inbox.lock();
                    if inbox.waiting() == 0 && inbox.is_quiet() {
                        inbox.run = Run::Idle;
                        drop(inbox);
                        cell.report_idle();
                        return NextStep::Rest;
                    }
                    inbox.resumed = false;
                }
                End::Awaiting => {
                    let mut inbox = cell.inbox.lock();
                    if !std::mem::take(&mut inbox.resumed) && !inbox.has_notice() {
                        inbox.run = Run::Awaiting;
                        return NextStep::Rest;
                    }
                }
                End::Failed(error) => self.fail(cell, error),
                End::Finished(result) => {
                    self.close_quietly(cell, reason_of(result));
                }
                End::Drained => {
                    if self.finish(cell) {
                        return NextStep::Rest;
                    }
                }
            }
        }
    }

    /// One turn of the driver. None if the actor has terminated.
    fn turn(&mut self, cell: &Arc<ActorCell<M>>) -> Option<End> {
        let (on_failure, max_deliveries) = self.policy();
        let driver = self.driver.as_mut()?;
        self.turns = self.turns.wrapping_add(1);
        let sampled = is_sampled(self.turns);
        let start = sampled.then(|| (Instant::now(), cell.handled.load(Ordering::Relaxed)));
        let budget = cell.dispatcher.throughput;
        let mut turn = Activation {
            cell,
            hand: &mut self.hand,
            budget,
            end: End::Again,
            on_failure,
            max_deliveries,
            batch: usize::MAX,
        };
        driver.turn(&mut turn);
        let end = turn.end;
        if let Some((start, before)) = start {
            let handled = cell.handled.load(Ordering::Relaxed) - before;
            if let Some(each) = (start.elapsed().as_nanos() as u64).checked_div(handled) {
                cell.with_aside(|aside| aside.timings.handling.record(each));
            }
        }
        Some(end)
    }

    fn policy(&self) -> (OnFailure, u32) {
        self.supervision.as_ref().map_or((OnFailure::Resume, 1), |s| (s.policy.on_failure, s.policy.max_deliveries))
    }

    fn with_turn<R>(
        &mut self,
        cell: &Arc<ActorCell<M>>,
        f: impl FnOnce(&mut dyn Driver<M>, &mut Activation<'_, M>) -> R,
    ) -> Option<R> {
        let (on_failure, max_deliveries) = self.policy();
        let driver = self.driver.as_mut()?;
        let mut turn = Activation {
            cell,
            hand: &mut self.hand,
            budget: 0,
            end: End::Again,
            on_failure,
            max_deliveries,
            batch: usize::MAX,
        };
        Some(f(driver.as_mut(), &mut turn))
    }

    fn take_notices(&mut self, cell: &Arc<ActorCell<M>>) {
        loop {
            let notice = {
                let mut inbox = cell.inbox.lock();
                let notice = inbox.take_notice();
                if !inbox.urgent() {
                    cell.attention.fetch_and(!ATTEND_LANES, Ordering::Relaxed);
                }
                notice
            };
            let Some(notice) = notice else { return };
            let result = match notice {
                Notice::Start => self.start(cell),
                Notice::Signal(signal) => {
                    self.with_turn(cell, |driver, turn| driver.signal(signal, turn)).unwrap_or(Ok(()))
                }
                Notice::Escalated(error) => Err(error.into()),
            };
            if let Err(fault) = result {
                cell.count_failure();
                let error = fault.to_string();
                cell.record_failure(&fault);
                if self.policy().0 != OnFailure::Resume || !self.started {
                    self.fail(cell, error);
                }
                return;
            }
        }
    }

    fn start(&mut self, cell: &Arc<ActorCell<M>>) -> Result<(), Fault> {
        let result = self.with_turn(cell, |driver, turn| driver.started(turn)).unwrap_or(Ok(()));
        self.started = result.is_ok();
        result
    }

    /// The policy after a failure that is not to be resumed from.
    fn fail(&mut self, cell: &Arc<ActorCell<M>>, error: String) {
        let restarts = self.driver.as_ref().is_some_and(|driver| driver.can_restart());
        match (&mut self.supervision, restarts) {
            (Some(supervised), true) if supervised.policy.on_failure == OnFailure::Restart => {
                if supervised.restarts.allow(cell.core.now_micros()) {
                    self.restart_due = true;
                } else {
                    self.close_quietly(cell, StopReason::RestartLimit(error));
                }
            }
            (supervised, _) => {
                let escalates = supervised.as_ref().is_some_and(|s| s.policy.on_failure == OnFailure::Escalate);
                let parent = cell.with_aside(|aside| aside.parent.clone());
                self.close_quietly(cell, StopReason::Failed(error.clone()));
                if let (true, Some(parent)) = (escalates, parent) {
                    parent.notify(Notice::Escalated(error));
                }
            }
        }
    }

    /// Makes new state, once the time for it has come. Answers whether it has not come yet.
    fn restart(&mut self, cell: &Arc<ActorCell<M>>) -> bool {
        let now = cell.core.now_micros();
        let open = cell.is_open();
        let waits = self.supervision.as_ref().is_some_and(|s| open && s.restarts.due() > now);
        if waits {
            return true;
        }
        self.restart_due = false;
        cell.with_aside(|aside| aside.restarts += 1);
        let remade = self.with_turn(cell, |driver, _| driver.restart()).unwrap_or(Ok(()));
        let starts = self.driver.as_ref().is_some_and(|driver| driver.wants_start());
        let result = if starts { remade.and_then(|()| self.start(cell)) } else { remade };
        if let Err(fault) = result {
            cell.count_failure();
            let error = fault.to_string();
            cell.record_failure(&fault);
            self.fail(cell, error);
            return self.restart_due && cell.is_open();
        }
        false
    }

    fn await_backoff(&mut self, cell: &Arc<ActorCell<M>>) -> NextStep {
        let due = self.supervision.as_ref().map_or(0, |s| s.restarts.due());
        let at = cell.core.instant(due);
        {
            let mut inbox = cell.inbox.lock();
            inbox.resumed = false;
            inbox.run = Run::Awaiting;
        }
        cell.core.timers.insert(at, Arc::clone(cell) as Arc<dyn Fire>);
        // A stop that came before the state changed has seen an active actor: look after it now.
        if !cell.is_open() {
            cell.resume();
        }
        NextStep::Rest
    }

    fn close_quietly(&mut self, cell: &Arc<ActorCell<M>>, reason: StopReason) {
        cell.with_aside(|aside| match reason {
            // A future that ends because it was stopped was stopped; a failure is one whatever came
            // before it.
            StopReason::Finished => {
                aside.reason.get_or_insert(reason);
            }
            _ => aside.reason = Some(reason),
        });
        let mut inbox = cell.inbox.lock();
        if inbox.state != AcceptState::Closed {
            inbox.state = AcceptState::Closing;
        }
        cell.attention.fetch_or(ATTEND_LANES, Ordering::Relaxed);
        let woken = inbox.woken(0);
        drop(inbox);
        cell.wake_senders(woken);
    }

    /// Ends a closed mailbox without waiting messages: running handlers first, then the children,
    /// then the actor. Returns true if this turn is over.
    fn finish(&mut self, cell: &Arc<ActorCell<M>>) -> bool {
        if cell.inbox.lock().state == AcceptState::Closed {
            self.bury_hand_of_abandoned(cell);
            return true;
        }
        let is_finished = self.with_turn(cell, |driver, turn| driver.finish(turn)).unwrap_or(true);
        if !is_finished {
            return self.rest_unless_resumed(cell);
        }
        let children: Vec<Arc<dyn AnyCell>> = cell.with_aside(|aside| {
            aside.refuses_children = true;
            aside.children.values().cloned().collect()
        });
        if !children.is_empty() {
            for child in children {
                child.begin_stop(true, StopReason::ParentStopped);
            }
            return self.rest_unless_resumed(cell);
        }
        self.terminate(cell);
        true
    }

    fn rest_unless_resumed(&mut self, cell: &Arc<ActorCell<M>>) -> bool {
        let mut inbox = cell.inbox.lock();
        if std::mem::take(&mut inbox.resumed) {
            return false;
        }
        inbox.run = Run::Awaiting;
        true
    }

    fn terminate(&mut self, cell: &Arc<ActorCell<M>>) {
        if let Some(driver) = &mut self.driver
            && self.started
            && let Err(fault) = driver.stopped()
        {
            cell.count_failure();
            cell.record_failure(&fault);
        }
        let (returns, reason, dead) = cell.with_aside(|aside| (aside.returns, aside.reason.clone(), aside.dead));
        let mut remaining: Vec<Envelope<M>> = self.hand.drain(..).collect();
        let ledger = {
            let mut inbox = cell.inbox.lock();
            if inbox.state == AcceptState::Closed {
                drop(inbox);
                self.hand.extend(remaining);
                return self.bury_hand_of_abandoned(cell);
            }
            inbox.state = AcceptState::Closed;
            remaining.extend(inbox.empty());
            let returnable = remaining.iter().filter(|envelope| returns && envelope.is_returnable()).count();
            cell.ledger(&inbox, dead, returnable as u64, (remaining.len() - returnable) as u64)
        };
        let report = Report { ledger, reason: reason.unwrap_or(StopReason::Stopped), stuck: None };
        // The rest runs code of the user. A caller that stops waiting for it gets this report.
        let hurries = cell.with_aside(|aside| {
            aside.ends_with = Some(report.clone());
            aside.hurries
        });
        if hurries {
            Arc::clone(cell).abandon();
        }
        let mut returned = Vec::new();
        for envelope in remaining {
            if returns && envelope.is_returnable() {
                returned.extend(envelope.into_message());
            } else {
                guarded(|| cell.bury_taken(envelope, DeadReason::Stopped, None));
            }
        }
        self.drop_driver();
        cell.end(report, returned);
    }

    fn drop_driver(&mut self) {
        let driver = self.driver.take();
        guarded(|| drop(driver));
    }

    /// The actor was abandoned, and its handler has come back after all, or never will.
    pub fn bury_hand_of_abandoned(&mut self, cell: &Arc<ActorCell<M>>) {
        for envelope in std::mem::take(&mut self.hand) {
            guarded(|| cell.bury_taken(envelope, DeadReason::Abandoned, None));
        }
        self.drop_driver();
    }
}
