//! Commands for Python: conversions of the calls of the node's store, and `CommandSlotsCore`, the
//! state machine of a worker.

use std::time::{Duration, Instant};

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use tidewire_backend::home::{HomeError, HomeErrorKind};
use tidewire_core::stream::command::Outcome;
use tidewire_core::stream::command_slots::{CommandSlots, Token};
use tidewire_node::Error;
use tidewire_node::streams::{AttemptEnd, Begun, CommandInfo, CommandRecord, Report, Reported, TokenEnd};
use tidewire_node::values::to_bytes;

use super::results::{each, raise};

/// The result, the error as it travels, the error in one line, its traceback, and the newest
/// report.
pub type EndedAttempt = (Option<PyBackedBytes>, Option<PyBackedBytes>, Option<String>, Option<String>, Option<Report>);

pub fn attempt_end((result, error, error_text, traceback, report): EndedAttempt) -> AttemptEnd {
    let bytes = |bytes: Option<PyBackedBytes>| bytes.map(|bytes| bytes.to_vec());
    AttemptEnd { result: bytes(result), error: bytes(error), error_text, traceback, report }
}

/// The outcome of an attempt by its name.
pub fn outcome(name: &str) -> Outcome {
    match name {
        "returned" => Outcome::Returned,
        "cancelled" => Outcome::Cancelled,
        "interrupted" => Outcome::Interrupted,
        "refused" => Outcome::Refused,
        _ => Outcome::Raised,
    }
}

/// A value as it travels.
fn encoded(py: Python<'_>, bytes: Result<Vec<u8>, Error>) -> PyResult<Py<PyAny>> {
    let bytes = bytes.map_err(|wrong| raise(py, &HomeError::new(HomeErrorKind::Invalid, wrong.message())))?;
    Ok(PyBytes::new(py, &bytes).into_any().unbind())
}

/// Gives true if the command is over, and the record.
pub fn record(py: Python<'_>, (record, _): (CommandRecord, u64)) -> PyResult<Py<PyAny>> {
    (record.is_over(), encoded(py, to_bytes(&record))?).into_py_any(py)
}

/// Gives the record and its revision, or None for a token that is not needed.
pub fn begun(py: Python<'_>, begun: Begun) -> PyResult<Py<PyAny>> {
    match begun {
        Begun::Run(record, revision) => (encoded(py, to_bytes(&record))?, revision).into_py_any(py),
        Begun::Ack => Ok(py.None()),
    }
}

/// Gives the settlement of the token, and after how many microseconds it comes again.
pub fn token_end(py: Python<'_>, end: TokenEnd) -> PyResult<Py<PyAny>> {
    match end {
        TokenEnd::Ack => ("ack", None),
        TokenEnd::Stale => ("", None),
        TokenEnd::Again(0) => ("release", None),
        TokenEnd::Again(delay_us) => ("nak", Some(delay_us)),
    }
    .into_py_any(py)
}

pub fn reported(py: Python<'_>, Reported { report, after, is_over }: Reported) -> PyResult<Py<PyAny>> {
    (report, after, is_over).into_py_any(py)
}

pub fn info(py: Python<'_>, info: CommandInfo) -> PyResult<Py<PyAny>> {
    encoded(py, to_bytes(&info))
}

pub fn infos(py: Python<'_>, infos: Vec<CommandInfo>) -> PyResult<Py<PyAny>> {
    each(py, infos, info)
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
