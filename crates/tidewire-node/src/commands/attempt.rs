//! State of a running attempt at a command: its interruption, its reports and its end.

use std::sync::Arc;
use std::task::{Context, Poll};

use tidewire_core::stream::command::Outcome;
use tidewire_engine::raw::Mutex;

use super::record::{CommandRecord, Report, now_us};
use super::store::CommandStore;
use crate::node::runner::Runner;
use crate::pending::Wakers;

/// Reason of an early end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// The command was cancelled.
    Cancelled,
    /// The attempt took longer than its timeout.
    Timeout,
    /// The service stops.
    Cut,
    /// Another attempt has the command.
    Lost,
}

impl Interruption {
    /// The name for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
            Self::Cut => "cut",
            Self::Lost => "lost",
        }
    }
}

/// End of an attempt, as it is stored.
#[derive(Clone, Debug)]
pub struct AttemptEnd {
    /// The outcome.
    pub outcome: Outcome,
    /// The result as it travels.
    pub result: Option<Vec<u8>>,
    /// The error as it travels.
    pub error: Option<Vec<u8>>,
    /// The error in one line.
    pub error_text: Option<String>,
    /// The traceback of the error.
    pub traceback: Option<String>,
}

impl AttemptEnd {
    /// An end without a result and without an error.
    pub const fn of(outcome: Outcome) -> Self {
        Self { outcome, result: None, error: None, error_text: None, traceback: None }
    }
}

/// One attempt at a command.
#[derive(derive_more::Debug)]
#[debug("Attempt({} of {})", self.number(), self.id())]
pub struct Attempt {
    record: CommandRecord,
    store: Arc<CommandStore>,
    runner: Arc<Runner>,
    state: Mutex<State>,
    wakers: Wakers,
}

#[derive(Default)]
struct State {
    why: Option<Interruption>,
    on_interrupt: Option<Box<dyn FnOnce() + Send>>,
    newest: Option<Report>,
    /// True if the newest report is not stored.
    is_new: bool,
    is_storing: bool,
}

impl Attempt {
    pub(super) fn new(record: CommandRecord, store: Arc<CommandStore>, runner: Arc<Runner>) -> Self {
        Self { record, store, runner, state: Mutex::default(), wakers: Wakers::default() }
    }

    /// The id of the command.
    pub fn id(&self) -> &str {
        &self.record.id
    }

    /// The number of the attempt, from 1.
    pub const fn number(&self) -> u32 {
        self.record.attempt
    }

    /// The record of the command at the begin of the attempt.
    pub const fn record(&self) -> &CommandRecord {
        &self.record
    }

    /// The reason of an early end, if there is one.
    pub fn why(&self) -> Option<Interruption> {
        self.state.lock().why
    }

    /// Ready once the attempt is to end early.
    pub fn poll_interrupted(&self, context: &Context<'_>) -> Poll<Interruption> {
        self.wakers.add(context.waker());
        self.why().map_or(Poll::Pending, Poll::Ready)
    }

    /// Calls a function once the attempt is to end early: now, if it is already.
    pub fn on_interrupt(&self, call: impl FnOnce() + Send + 'static) {
        let call: Box<dyn FnOnce() + Send> = Box::new(call);
        let now = {
            let state = &mut *self.state.lock();
            if state.why.is_some() { Some(call) } else { state.on_interrupt.replace(call).and(None) }
        };
        now.into_iter().for_each(|call| call());
    }

    /// Ends the attempt early. The first reason counts.
    pub(super) fn interrupt(&self, why: Interruption) {
        let call = {
            let state = &mut *self.state.lock();
            if state.why.is_some() {
                return;
            }
            state.why = Some(why);
            state.on_interrupt.take()
        };
        self.wakers.wake();
        call.into_iter().for_each(|call| call());
    }

    /// Reports the progress, on any thread. The newest report is stored as soon as the one before
    /// is.
    pub fn report(self: &Arc<Self>, fraction: f64, note: &str) {
        let is_storing = {
            let state = &mut *self.state.lock();
            state.newest = Some((fraction, note.to_owned(), self.number(), now_us()));
            state.is_new = true;
            std::mem::replace(&mut state.is_storing, true)
        };
        if !is_storing {
            let attempt = Arc::clone(self);
            self.runner.aside(Box::pin(async move { attempt.store_reports().await }));
        }
    }

    async fn store_reports(&self) {
        while let Some(report) = self.next_report() {
            // A report that is not stored is only not seen.
            drop(self.store.report(self.id(), report).await);
        }
        self.wakers.wake();
    }

    fn next_report(&self) -> Option<Report> {
        let state = &mut *self.state.lock();
        state.is_storing = std::mem::take(&mut state.is_new);
        state.newest.clone().filter(|_| state.is_storing)
    }

    pub(super) fn newest(&self) -> Option<Report> {
        self.state.lock().newest.clone()
    }

    /// Waits until the newest report is stored.
    pub(super) async fn stored(&self) {
        self.wakers.until(|| (!self.state.lock().is_storing).then_some(())).await;
    }
}
