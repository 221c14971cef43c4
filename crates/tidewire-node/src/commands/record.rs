//! The record of one command, as its bucket stores it, and the values that its callers receive.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tidewire_core::stream::command::{Command, Stage};
use tidewire_engine::raw::clock;
use tidewire_proto::subject::Subject;

use super::info::{CommandInfo, Ended};
use crate::error::Error;
use crate::names;
use crate::values::bytes::Bytes;

/// The service of a hub that stores commands.
pub use tidewire_proto::subject::grammar::COMMANDS as SERVICE;
/// The stream of tokens, and the bucket of records.
pub const QUEUE: &str = "tidewire-commands";
/// The stream of ended commands.
pub const ENDS: &str = "tidewire-command-ends";
/// How long one call waits for a change at most.
pub const WAIT: Duration = Duration::from_secs(4);
pub const WAIT_US: u64 = 4_000_000;
/// Limit of the records of one call.
pub const PAGE: u32 = 1_000;

/// A report of a worker: the fraction, the note, the attempt, and the time in microseconds.
pub type Report = (f64, String, u32, u64);

/// The record of one command.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommandRecord {
    /// Its id.
    pub id: String,
    /// The service that does it.
    pub service: String,
    /// Which of its commands it is.
    pub command: String,
    /// A list by position and a map by name, as they travel. A succeeded command has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Bytes>,
    /// Hash of the name, the key and the arguments.
    pub digest: String,
    /// The key given at its start.
    pub key: Option<String>,
    /// Which go first: `urgent`, `high`, `normal` or `low`.
    pub priority: String,
    /// The node that has started it.
    pub caller: String,
    /// The headers of the trace context of its start.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub trace: BTreeMap<String, String>,
    /// When it was started; times are in microseconds since 1970.
    pub created_us: u64,
    /// Number of renewals; each has a token of its own.
    pub round: u32,
    /// Its stage.
    pub stage: String,
    /// The newest attempt, from 1; 0 if there was none.
    pub attempt: u32,
    /// How often it is tried again.
    pub retries: u32,
    /// True if its worker was asked to end it.
    #[serde(rename = "cancelling")]
    pub is_cancelling: bool,
    /// The sequence of the token that stands for it.
    pub token: Option<u64>,
    /// The node that has its newest attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// When its newest attempt began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub began_us: Option<u64>,
    /// When it was over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_us: Option<u64>,
    /// How long the record stays after the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_us: Option<u64>,
    /// The result as it travels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Bytes>,
    /// The error of the newest failed attempt, as it travels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Bytes>,
    /// The same in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_text: Option<String>,
    /// The traceback of the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceback: Option<String>,
    /// The newest report of an attempt that has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Report>,
}

impl CommandRecord {
    /// The state machine of the command. An unknown stage is of a newer version: it counts as over,
    /// so that nothing is done.
    pub fn machine(&self) -> Command {
        let stage = Stage::ALL.into_iter().find(|known| known.name() == self.stage).unwrap_or(Stage::Cancelled);
        let Self { attempt, retries, is_cancelling, token, .. } = *self;
        Command { stage, attempt, retries, is_cancelling, token }
    }

    /// Takes over the state of the state machine.
    pub fn set(&mut self, machine: Command) {
        let Command { stage, attempt, retries, is_cancelling, token } = machine;
        stage.name().clone_into(&mut self.stage);
        (self.attempt, self.retries, self.is_cancelling, self.token) = (attempt, retries, is_cancelling, token);
    }

    /// True if the command has ended.
    pub fn is_over(&self) -> bool {
        self.machine().stage.is_over()
    }

    pub(super) fn ended(self) -> Ended {
        let (stage, Self { attempt, worker, result, error, .. }) = (self.machine().stage, self);
        Ended { stage, attempt, worker, result, error }
    }

    /// The command as users see it. `stored` is the newest report beside the record.
    pub fn info(self, stored: Option<Report>) -> CommandInfo {
        let stage = self.machine().stage;
        let report = stored.or(self.progress).filter(|report| report.2 == self.attempt);
        let (fraction, note) = report.map_or((0.0, String::new()), |(fraction, note, ..)| (fraction, note));
        CommandInfo {
            id: self.id,
            service: self.service,
            command: self.command,
            stage,
            attempt: self.attempt,
            retries: self.retries,
            is_cancelling: self.is_cancelling,
            key: self.key,
            priority: self.priority,
            caller: self.caller,
            worker: self.worker,
            created: time_at(self.created_us),
            began: self.began_us.map(time_at),
            ended: self.ended_us.map(time_at),
            fraction: if stage == Stage::Succeeded { 1.0 } else { fraction },
            note,
            error: self.error_text.unwrap_or_default(),
            traceback: self.traceback.unwrap_or_default(),
            trace: self.trace.get("traceparent").and_then(|named| Some(named.split('-').nth(1)?.to_owned())),
        }
    }
}

/// The time of this machine, for people.
pub(super) fn now_us() -> u64 {
    clock::system_time().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

pub(super) fn time_at(us: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(us)
}

/// The key of a record in the bucket.
pub(super) fn state_key(id: &str) -> Result<Subject, Error> {
    key(id, "state")
}

/// The key of the newest report of a command.
pub(super) fn progress_key(id: &str) -> Result<Subject, Error> {
    key(id, "progress")
}

fn key(id: &str, kind: &str) -> Result<Subject, Error> {
    names::token("id", id)?;
    Subject::new(&format!("{id}.{kind}")).map_err(|wrong| Error::invalid(format!("id: {wrong}")))
}
