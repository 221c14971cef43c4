//! Capabilities of a home: optional features that it declares, and the reason where it lacks one.

use super::{HomeError, HomeErrorKind, HomeResult};

/// Something that not every home can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Capability {
    /// Messages that are delivered later: `deliver_at_us`.
    Delay,
    /// Messages with a time to live of their own: `ttl_us`.
    MessageTtl,
    /// `Order::Key`: a key that waits or fails holds back its own later events only.
    KeyOrder,
    /// Batches that are stored whole or not at all.
    Batch,
    /// Purging the messages of some subjects only.
    PurgeFilter,
    /// Consumers that are paused and resumed.
    Pause,
    /// Consumers whose place is moved.
    Seek,
    /// Storage on several servers: `replicas` above 1, and acks that say "replicated".
    Replicas,
    /// Entries of a bucket with a time to live of their own.
    EntryTtl,
}

/// What a home can do, and why it can't do the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    missing: Vec<(Capability, String)>,
}

impl Capability {
    /// Every capability, in the order of the table of the docs.
    pub const ALL: [Self; 9] = [
        Self::Delay,
        Self::MessageTtl,
        Self::KeyOrder,
        Self::Batch,
        Self::PurgeFilter,
        Self::Pause,
        Self::Seek,
        Self::Replicas,
        Self::EntryTtl,
    ];

    /// The name for programs and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Delay => "delay",
            Self::MessageTtl => "message_ttl",
            Self::KeyOrder => "key_order",
            Self::Batch => "batch",
            Self::PurgeFilter => "purge_filter",
            Self::Pause => "pause",
            Self::Seek => "seek",
            Self::Replicas => "replicas",
            Self::EntryTtl => "entry_ttl",
        }
    }
}

impl Capabilities {
    /// A home that can do everything.
    pub const fn all() -> Self {
        Self { missing: Vec::new() }
    }

    /// The same without one, with the reason and the mend as a sentence: "the server is older than 2.11: ...".
    #[must_use]
    pub fn without(mut self, capability: Capability, why: impl Into<String>) -> Self {
        self.missing.push((capability, why.into()));
        self
    }

    /// Whether the home can do it.
    pub fn has(&self, capability: Capability) -> bool {
        self.why_not(capability).is_none()
    }

    /// Why it can't.
    pub fn why_not(&self, capability: Capability) -> Option<&str> {
        self.missing.iter().find(|(missing, _)| *missing == capability).map(|(_, why)| why.as_str())
    }

    /// Refuses what the home can't do. `field` is what asked for it.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](HomeErrorKind::Unsupported), with the reason.
    pub fn need(&self, capability: Capability, field: &str) -> HomeResult<()> {
        match self.why_not(capability) {
            None => Ok(()),
            Some(why) => Err(HomeError::new(HomeErrorKind::Unsupported, format!("{field}: {why}"))),
        }
    }
}
