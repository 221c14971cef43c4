//! `CommandLife` and `CommandSlotsCore` for Python: the state machines of a command and of a worker
//! of commands.

use std::time::{Duration, Instant};

use pyo3::prelude::*;
use tidewire_core::stream::command::{Begin, Command, End, Outcome, Stage};
use tidewire_core::stream::command_slots::{CommandSlots, Token};

/// The life of one command, as its record says it.
#[pyclass(module = "tidewire._tidewire")]
pub struct CommandLife {
    machine: Command,
}

#[pymethods]
impl CommandLife {
    /// A stage that is not known is that of a newer version: it counts as over, so that nothing is
    /// done.
    #[new]
    #[pyo3(signature = (stage, attempt, retries, cancelling, token))]
    fn new(stage: &str, attempt: u32, retries: u32, cancelling: bool, token: Option<u64>) -> Self {
        let stage = Stage::ALL.into_iter().find(|known| known.name() == stage).unwrap_or(Stage::Cancelled);
        Self { machine: Command { stage, attempt, retries, is_cancelling: cancelling, token } }
    }

    /// Its stage.
    #[getter]
    fn stage(&self) -> &'static str {
        self.machine.stage.name()
    }

    /// The newest attempt.
    #[getter]
    fn attempt(&self) -> u32 {
        self.machine.attempt
    }

    /// True once the worker of the command was asked to cancel it.
    #[getter]
    fn cancelling(&self) -> bool {
        self.machine.is_cancelling
    }

    /// The token that stands for it.
    #[getter]
    fn token(&self) -> Option<u64> {
        self.machine.token
    }

    /// True in a final stage.
    #[getter]
    fn over(&self) -> bool {
        self.machine.stage.is_over()
    }

    /// A worker was given a token of it: "run", or why not, "over", "cancelled", "lost" or
    /// "duplicate".
    fn begin(&mut self, token: u64) -> &'static str {
        match self.machine.begin(token) {
            Begin::Run(_) => "run",
            Begin::Over => "over",
            Begin::Cancelled => "cancelled",
            Begin::Lost => "lost",
            Begin::Duplicate => "duplicate",
        }
    }

    /// True if this attempt is the present one.
    fn is_current(&self, attempt: u32) -> bool {
        self.machine.is_current(attempt)
    }

    /// An attempt has ended: "returned", "raised", "refused", "cancelled" or "interrupted". Gives
    /// "over", "again" or "stale", and the seconds until it is tried again.
    fn ended(&mut self, attempt: u32, outcome: &str) -> (&'static str, f64) {
        let outcome = match outcome {
            "returned" => Outcome::Returned,
            "cancelled" => Outcome::Cancelled,
            "interrupted" => Outcome::Interrupted,
            "refused" => Outcome::Refused,
            _ => Outcome::Raised,
        };
        match self.machine.ended(attempt, outcome) {
            End::Over(_) => ("over", 0.0),
            End::Again(delay_us) => ("again", Duration::from_micros(delay_us).as_secs_f64()),
            End::Stale => ("stale", 0.0),
        }
    }

    /// Asks for the end of the command. Returns true if that changes anything.
    fn cancel(&mut self) -> bool {
        self.machine.cancel()
    }

    /// Asks for a new start of the command with a new token. Returns true if it starts.
    fn renew(&mut self) -> bool {
        self.machine.renew()
    }
}

/// The places of a worker. Used by one event loop.
#[pyclass(module = "tidewire._tidewire")]
pub struct CommandSlotsCore {
    machine: CommandSlots,
    since: Instant,
}

impl CommandSlotsCore {
    fn now_us(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

#[pymethods]
impl CommandSlotsCore {
    #[new]
    fn new(count: usize, queues: usize, lease_us: u64) -> Self {
        Self { machine: CommandSlots::new(count, queues, lease_us), since: Instant::now() }
    }

    /// The fetches to begin now: the queue, the number of tokens, and true to wait for them.
    fn fetches(&mut self) -> Vec<(usize, u32, bool)> {
        self.machine.fetches().into_iter().map(|fetch| (fetch.queue, fetch.count, fetch.waits)).collect()
    }

    /// A fetch has ended. Gives the tokens to give back at once.
    #[expect(clippy::needless_pass_by_value, reason = "Python gives a list")]
    fn fetched(&mut self, queue: usize, tokens: Vec<(u64, u64)>) -> Vec<Token> {
        self.machine.fetched(queue, &tokens, self.now_us())
    }

    /// The command that begins now: its queue, its token, and the ticket of this delivery.
    fn begin(&mut self) -> Option<Token> {
        self.machine.begin()
    }

    /// A command waits for its key. False: it is to go back.
    fn park(&mut self, sequence: u64) -> bool {
        self.machine.park(sequence)
    }

    /// A command has its key. False: there is no place for it, and it is to go back.
    fn unpark(&mut self, sequence: u64) -> bool {
        self.machine.unpark(sequence)
    }

    /// A command has ended, or goes back.
    fn ended(&mut self, sequence: u64) -> bool {
        self.machine.ended(sequence)
    }

    /// The tokens to be extended.
    fn extend(&mut self) -> Vec<Token> {
        self.machine.extend(self.now_us())
    }

    /// In how many seconds to call `extend`; None if there is nothing to extend.
    fn extend_in(&self) -> Option<f64> {
        let due_us = self.machine.next_deadline_us()?;
        Some(Duration::from_micros(due_us.saturating_sub(self.now_us())).as_secs_f64())
    }

    /// Fetches nothing more. Gives what has not begun.
    fn drain(&mut self) -> Vec<Token> {
        self.machine.drain()
    }

    /// Number of commands of the worker.
    fn held(&self) -> usize {
        self.machine.held()
    }

    /// True for a draining worker with nothing left.
    fn is_over(&self) -> bool {
        self.machine.is_over()
    }
}
