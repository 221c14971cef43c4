//! Schedules: messages that a storage backend publishes by itself, again and again.

use tidewire_core::stream::recurrence::Timing;
use tidewire_proto::generated::limits;

use super::{HomeError, HomeErrorKind, HomeResult, NewMessage};

/// The header of an event that says which schedule it is a beat of.
pub const SCHEDULE_HEADER: &str = "Tidewire-Schedule";

/// Settings of a schedule. Two settings are the same if all fields are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleSettings {
    /// Letters, digits, `_` and `-`, 1 to 64 characters.
    pub name: String,
    /// When it beats.
    pub timing: Timing,
    /// The message of each beat, without an id and without a time of its own. A time to live counts
    /// from the beat.
    pub message: NewMessage,
}

/// State of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleInfo {
    /// The settings that it was created with.
    pub settings: ScheduleSettings,
    /// Its next beat.
    pub next_us: Option<u64>,
}

/// The effect of creating a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// There was none of this name.
    Made,
    /// There was one with other settings: it is gone.
    Replaced,
    /// The schedule exists with the same settings: its beats continue.
    Kept,
}

impl Change {
    /// The name in Python: `made`, `replaced`, `kept`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Made => "made",
            Self::Replaced => "replaced",
            Self::Kept => "kept",
        }
    }
}

impl ScheduleSettings {
    /// Refuses settings that no storage backend takes.
    ///
    /// # Errors
    ///
    /// [`Invalid`](HomeErrorKind::Invalid) for a message that is too long, or has an id or a time.
    pub fn check(&self) -> HomeResult<()> {
        let refuse = |text: String| Err(HomeError::new(HomeErrorKind::Invalid, text));
        let NewMessage { payload, headers, id, deliver_at_us, .. } = &self.message;
        if id.is_some() || deliver_at_us.is_some() {
            return refuse("schedule: its message has an id or a time of its own: leave them out".to_owned());
        }
        let headers: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        let (bytes, most) = ((payload.len() + headers) as u64, limits::SCHEDULE_BYTES.max);
        if bytes > most {
            let fix = "send less, such as the key of an entry of a bucket that has it";
            return refuse(format!(
                "value: it has {bytes} bytes with its headers, more than {most} (schedule_bytes): {fix}"
            ));
        }
        Ok(())
    }
}
