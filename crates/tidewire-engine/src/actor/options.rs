//! Spawn options: name, mailbox, dispatcher, supervision.

use std::time::Duration;

use tidewire_proto::generated::limits;

use crate::error::SpawnError;

/// Overflow policy of a full mailbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overflow {
    /// `tell` refuses, `send` waits for capacity.
    #[default]
    Wait,
    /// Both refuse.
    Fail,
    /// The new message is dropped.
    DropNew,
    /// The oldest waiting message of the lowest waiting lane is dropped.
    DropOld,
}

/// Which waiting message is handled first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// Before all others.
    Urgent,
    /// Before the usual ones.
    High,
    /// The usual lane.
    #[default]
    Normal,
    /// After the others, though never starved.
    Low,
}

/// Capacity and overflow policy of a mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mailbox {
    /// Most messages that wait at once; unit: messages.
    pub capacity: usize,
    /// Overflow policy for a message above the capacity.
    pub overflow: Overflow,
}

impl Mailbox {
    /// A mailbox of `capacity` messages whose senders wait when it is full.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, overflow: Overflow::Wait }
    }

    /// The same with another overflow policy.
    pub fn overflow(self, overflow: Overflow) -> Self {
        Self { overflow, ..self }
    }
}

/// Response to a failed handler, once its message is settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFailure {
    /// Go on with the state as it is.
    #[default]
    Resume,
    /// Make new state and go on; the mailbox stays.
    Restart,
    /// Stop the actor; what waits becomes dead letters.
    Stop,
    /// Stop the actor, and let its parent fail with the same error.
    Escalate,
}

/// How failures of one actor are dealt with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Supervision {
    /// Response to a failed handler.
    pub on_failure: OnFailure,
    /// How often a message is handed to the handler before it becomes a dead letter; 1 or more.
    pub max_deliveries: u32,
    /// How many restarts are allowed within `window`; one more stops the actor.
    pub max_restarts: u32,
    /// The window for `max_restarts`.
    pub window: Duration,
    /// Wait before the first restart; each further one in the window waits twice as long, less a
    /// random part.
    pub backoff: Duration,
    /// Longest wait before a restart.
    pub backoff_max: Duration,
}

impl Default for Supervision {
    fn default() -> Self {
        Self {
            on_failure: OnFailure::Resume,
            max_deliveries: limits::MAX_DELIVERIES.default as u32,
            max_restarts: limits::MAX_RESTARTS.default as u32,
            window: Duration::from_millis(limits::RESTART_WINDOW_MS.default),
            backoff: Duration::from_millis(limits::RESTART_BACKOFF_MS.default),
            backoff_max: Duration::from_millis(limits::RESTART_BACKOFF_MAX_MS.default),
        }
    }
}

impl Supervision {
    /// The default with another reaction to failure.
    pub fn on_failure(on_failure: OnFailure) -> Self {
        Self { on_failure, ..Self::default() }
    }
}

/// Everything about a new actor but its behaviour.
///
/// ```
/// use tidewire_engine::{Mailbox, Overflow, SpawnOptions};
/// let options = SpawnOptions::new().name("ticker").mailbox(Mailbox::new(100).overflow(Overflow::DropOld));
/// assert_eq!(options.name.as_deref(), Some("ticker"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct SpawnOptions {
    /// A unique name, or none.
    pub name: Option<String>,
    /// The mailbox, or the engine's default.
    pub mailbox: Option<Mailbox>,
    /// The dispatcher's name; none is `default`.
    pub dispatcher: Option<String>,
    /// Supervision policy for failures.
    pub supervision: Supervision,
}

impl SpawnOptions {
    /// No name, the default mailbox, dispatcher and supervision.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the mailbox.
    pub fn mailbox(mut self, mailbox: Mailbox) -> Self {
        self.mailbox = Some(mailbox);
        self
    }

    /// Sets the dispatcher.
    pub fn dispatcher(mut self, name: impl Into<String>) -> Self {
        self.dispatcher = Some(name.into());
        self
    }

    /// Sets what failures lead to.
    pub fn supervision(mut self, supervision: Supervision) -> Self {
        self.supervision = supervision;
        self
    }

    pub(crate) fn check(&self) -> Result<(), SpawnError> {
        if let Some(name) = &self.name {
            within("name", name.len() as u64, 1, limits::NAME_BYTES.max, "bytes")?;
        }
        if let Some(mailbox) = self.mailbox {
            let limit = &limits::MAILBOX_CAPACITY;
            within("mailbox.capacity", mailbox.capacity as u64, limit.min, limit.max, "messages")?;
        }
        let limit = &limits::MAX_DELIVERIES;
        within("supervision.max_deliveries", self.supervision.max_deliveries.into(), limit.min, limit.max, "deliveries")
    }
}

fn within(field: &'static str, value: u64, min: u64, max: u64, unit: &str) -> Result<(), SpawnError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(SpawnError::Invalid { field, value: value.to_string(), allowed: format!("{min} to {max} {unit}") })
}
