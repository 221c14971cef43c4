//! State of a command, as its users see it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize, Serializer};
use tidewire_core::stream::command::Stage;

use crate::values::bytes::Bytes;
use crate::values::value::Value;

/// State of a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CommandInfo {
    /// Its id.
    pub id: String,
    /// The service that does it.
    pub service: String,
    /// Which of its commands it is.
    pub command: String,
    /// Its stage.
    #[serde(serialize_with = "name_of", deserialize_with = "stage")]
    pub stage: Stage,
    /// The newest attempt, from 1; 0 if there was none.
    pub attempt: u32,
    /// How often it is tried again.
    pub retries: u32,
    /// True if its worker was asked to end it.
    pub is_cancelling: bool,
    /// The key given at its start.
    pub key: Option<String>,
    /// Which go first: `urgent`, `high`, `normal` or `low`.
    pub priority: String,
    /// The node that has started it.
    pub caller: String,
    /// The node that has its newest attempt.
    pub worker: Option<String>,
    /// When it was started.
    #[serde(serialize_with = "moment", deserialize_with = "time")]
    pub created: SystemTime,
    /// When its newest attempt began.
    #[serde(serialize_with = "some_moment", deserialize_with = "some_time")]
    pub began: Option<SystemTime>,
    /// When it was over.
    #[serde(serialize_with = "some_moment", deserialize_with = "some_time")]
    pub ended: Option<SystemTime>,
    /// How far its newest attempt is, from 0 to 1.
    pub fraction: f64,
    /// The last note of that attempt.
    pub note: String,
    /// Error of the newest attempt that failed, in one line; empty without a failure.
    pub error: String,
    /// The traceback of that error.
    pub traceback: String,
    /// The id of the trace that its start belongs to.
    #[serde(default)]
    pub trace: Option<String>,
}

/// The revision of a record, true if its command is over, and how it has ended.
pub(super) type State = (u64, bool, Ended);

/// The part of a record that says how its command has ended.
#[derive(Serialize, Deserialize)]
pub(super) struct Ended {
    #[serde(serialize_with = "name_of", deserialize_with = "stage")]
    pub stage: Stage,
    pub attempt: u32,
    pub worker: Option<String>,
    pub result: Option<Bytes>,
    pub error: Option<Bytes>,
}

pub(super) fn time_of(value: &Value) -> SystemTime {
    match value {
        Value::Timestamp(us) | Value::Moment(us, _) => UNIX_EPOCH + Duration::from_micros((*us).max(0).cast_unsigned()),
        _ => UNIX_EPOCH,
    }
}

/// One that is not known is that of a newer version.
fn stage<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Stage, D::Error> {
    let name = String::deserialize(from)?;
    let known = Stage::ALL.into_iter().find(|stage| stage.name() == name);
    known.ok_or_else(|| {
        serde::de::Error::custom(format!("{name:?} is no stage of a command: use the same version on both sides"))
    })
}

fn time<'de, D: serde::Deserializer<'de>>(from: D) -> Result<SystemTime, D::Error> {
    Value::deserialize(from).map(|value| time_of(&value))
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn name_of<S: Serializer>(stage: &Stage, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(stage.name())
}

fn moment<S: Serializer>(time: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
    moment_of(*time).serialize(to)
}

fn some_moment<S: Serializer>(time: &Option<SystemTime>, to: S) -> Result<S::Ok, S::Error> {
    time.map(moment_of).serialize(to)
}

fn some_time<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<SystemTime>, D::Error> {
    Ok(Option::<Value>::deserialize(from)?.map(|value| time_of(&value)))
}

/// A time as a value that all languages read.
pub(super) fn moment_of(time: SystemTime) -> Value {
    let us = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64);
    Value::Timestamp(us)
}
