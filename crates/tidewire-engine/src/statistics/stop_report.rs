//! Stop of an actor: how it is asked for, and its report.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tidewire_sync::Mutex;

use crate::actor::id::ActorId;
use crate::actor::signal::StopReason;
use crate::guard::wake_all;

/// Counts of all messages that an actor or an engine accepted: `accepted = handled + returned +
/// dead_lettered`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Accepted by the mailbox.
    pub accepted: u64,
    /// Handled without failure.
    pub handled: u64,
    /// Returned to the caller of `stop`.
    pub returned: u64,
    /// Given up with a reason.
    pub dead_lettered: u64,
}

impl Ledger {
    /// True if every accepted message is accounted for.
    pub fn balances(&self) -> bool {
        self.accepted == self.handled + self.returned + self.dead_lettered
    }
}

impl std::ops::AddAssign for Ledger {
    fn add_assign(&mut self, other: Self) {
        self.accepted += other.accepted;
        self.handled += other.handled;
        self.returned += other.returned;
        self.dead_lettered += other.dead_lettered;
    }
}

/// An actor that was in its handler when the time for its stop was up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stuck {
    /// Which.
    pub actor: ActorId,
    /// Its name.
    pub name: Option<Arc<str>>,
    /// Its dispatcher.
    pub dispatcher: Box<str>,
    /// The thread that ran it last.
    pub thread: Option<Arc<str>>,
    /// It does not hold that thread: its handler waits for something.
    pub awaiting: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub ledger: Ledger,
    pub reason: StopReason,
    pub stuck: Option<Stuck>,
}

/// How a stop ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct StopReport<M> {
    /// Count of the messages of the actor.
    pub ledger: Ledger,
    /// Why the actor terminated; `Abandoned` if it was stuck.
    pub reason: StopReason,
    /// Messages that were not handled, for a stop without drain. The first who waits receives them.
    pub returned: Vec<M>,
    /// Where the actor was stuck, if it was.
    pub stuck: Option<Stuck>,
}

/// How an actor is to be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Handle what was accepted, rather than return it.
    pub drain: bool,
    /// Abandon the actor when it has not terminated after this time.
    pub timeout: Duration,
}

impl Stop {
    /// Handle everything that was accepted, for at most `timeout`.
    pub fn drain(timeout: Duration) -> Self {
        Self { drain: true, timeout }
    }

    /// Give what waits back to the caller.
    pub fn now(timeout: Duration) -> Self {
        Self { drain: false, timeout }
    }
}

/// The place where the end of an actor is reported.
pub(crate) struct EndReporter<M> {
    state: Mutex<State<M>>,
}

struct State<M> {
    report: Option<Report>,
    returned: Vec<M>,
    wakers: Vec<Waker>,
}

impl<M> EndReporter<M> {
    pub fn new(report: Option<Report>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State { report, returned: Vec::new(), wakers: Vec::new() }) })
    }

    pub fn complete(&self, report: Report, returned: Vec<M>) {
        let wakers = {
            let mut state = self.state.lock();
            state.report = Some(report);
            state.returned = returned;
            std::mem::take(&mut state.wakers)
        };
        wake_all(wakers);
    }

    /// Wakes `waker` at the end. False if the end has come already.
    pub fn watch(&self, waker: Waker) -> bool {
        let mut state = self.state.lock();
        let pending = state.report.is_none();
        if pending && !state.wakers.iter().any(|known| known.will_wake(&waker)) {
            state.wakers.push(waker);
        }
        pending
    }

    pub fn take(&self) -> Option<StopReport<M>> {
        let mut state = self.state.lock();
        let Report { ledger, reason, stuck } = state.report.clone()?;
        Some(StopReport { ledger, reason, returned: std::mem::take(&mut state.returned), stuck })
    }
}

/// Waiting for one's own end, or that of a parent, inside one's own handler can never succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, derive_more::Display, derive_more::Error)]
#[display(
    "actor {actor} waits for its own stop inside its own handler, or in that of a child: return from it, or use ctx.stop()"
)]
pub struct WaitsForItself {
    /// The actor.
    pub actor: ActorId,
}
