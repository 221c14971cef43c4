//! Identity of an actor within its engine, and among all engines of a process.

use std::num::NonZeroU64;

/// The id of an actor: unique in its engine, never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display, derive_more::Debug)]
#[display("#{_0}")]
#[debug("#{_0}")]
pub struct ActorId(NonZeroU64);

impl ActorId {
    /// Identifier that belongs to no actor.
    pub(crate) const NONE: Self = Self(NonZeroU64::MAX);

    pub(crate) fn new(id: u64) -> Self {
        Self(NonZeroU64::new(id).unwrap_or(NonZeroU64::MAX))
    }

    /// The id as a number, from 1.
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

/// An actor among those of all engines of this process: ids are given by each engine anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActorKey {
    pub(crate) engine: u64,
    pub(crate) id: ActorId,
}
