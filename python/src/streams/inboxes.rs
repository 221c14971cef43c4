//! `AgentInbox` for Python: the state machine of the inbox of a durable agent.

use pyo3::prelude::*;
use tidewire_core::stream::inbox::{Attempts, Begin, Failed, Inbox, Record};

type Open = Vec<(u64, u32, u32)>;
type InboxCounts = Vec<(String, u64, u64)>;

/// The inbox of a durable agent, of one holder. Used by one event loop.
#[pyclass(module = "tidewire._tidewire")]
pub struct AgentInbox {
    machine: Inbox,
}

#[pymethods]
impl AgentInbox {
    /// An inbox from its record. Further arguments are the attempts written before they begin, the
    /// limit of lost attempts, and the number of remembered senders.
    #[new]
    fn new(
        cursor: u64,
        open: Open,
        heard: InboxCounts,
        sent: u64,
        careful: u32,
        lost_max: u32,
        senders_max: usize,
    ) -> Self {
        let open = open.into_iter().map(|(sequence, failed, lost)| (sequence, Attempts { failed, lost })).collect();
        let heard = heard.into_iter().map(|(sender, number, sequence)| (sender, (number, sequence))).collect();
        let record = Record { cursor, open, heard, sent };
        Self { machine: Inbox::new(record, careful, lost_max, senders_max) }
    }

    /// The record to write now: the first four arguments of `AgentInbox`.
    fn record(&self) -> (u64, Open, InboxCounts, u64) {
        let Record { cursor, open, heard, sent } = self.machine.record();
        let open = open.iter().map(|(sequence, attempts)| (*sequence, attempts.failed, attempts.lost)).collect();
        let heard = heard.iter().map(|(sender, (number, sequence))| (sender.clone(), *number, *sequence)).collect();
        (*cursor, open, heard, *sent)
    }

    /// The messages that a new holder begins first.
    fn open(&self) -> Vec<u64> {
        self.machine.open()
    }

    /// Number of messages that have begun and are not over.
    fn count(&self) -> usize {
        self.machine.count()
    }

    /// Everything before this sequence is over.
    fn needed_from(&self) -> u64 {
        self.machine.needed_from()
    }

    /// A message has come, or its next attempt is due: "run", "write" and then run, "over", "copy"
    /// or "dead", and the attempt.
    #[pyo3(signature = (sequence, sender, number))]
    fn begin(&mut self, sequence: u64, sender: Option<&str>, number: u64) -> (&'static str, u32) {
        match self.machine.begin(sequence, sender.map(|sender| (sender, number))) {
            Begin::Run(attempt) => ("run", attempt),
            Begin::RunOnceWritten(attempt) => ("write", attempt),
            Begin::Over => ("over", 0),
            Begin::Copy => ("copy", 0),
            Begin::Dead(attempts) => ("dead", attempts),
        }
    }

    /// A message was handled, or given up.
    fn done(&mut self, sequence: u64) {
        self.machine.done(sequence);
    }

    /// An attempt has failed. Returns true if the message is given up, and then over, and the
    /// number of attempts.
    fn failed(&mut self, sequence: u64, was_written: bool, retries: u32) -> (bool, u32) {
        match self.machine.failed(sequence, was_written, retries) {
            Failed::Again(attempts) => (false, attempts),
            Failed::Dead(attempts) => (true, attempts),
        }
    }

    /// An attempt was interrupted.
    fn interrupted(&mut self, sequence: u64, was_written: bool) {
        self.machine.interrupted(sequence, was_written);
    }

    /// A handler sends something. Gives its number.
    const fn send(&mut self) -> u64 {
        self.machine.send()
    }
}
