//! The port of leases: mutual exclusion for a time, with fencing tokens.

use super::Answer;

/// A granted lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The fencing token: greater than that of every grant of this name before, for ever.
    pub fence: u64,
    /// The TTL of the lease. The holder counts from before the call that acquired it, by a clock
    /// that does not jump.
    pub ttl_us: u64,
}

/// State of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseInfo {
    /// Its name.
    pub name: String,
    /// The name of the holder, if the lease is held.
    pub holder: Option<String>,
    /// The newest fencing token.
    pub fence: u64,
    /// How long it is still held.
    pub remaining_us: u64,
}

/// Leases by name. A name is a subject's text, so that `orders.matching` is one.
///
/// The storage backend admits one holder at a time, by its own clock. With the fencing token, the
/// target of their writes can tell two holders apart. After a close or a restart, the storage
/// backend lets each lease that it knows of run its whole time again.
pub trait Leases: Send + Sync {
    /// Takes a lease that is free, waiting for it up to `wait_us` in the order of the calls.
    /// `holder` says who it is for people.
    ///
    /// # Errors
    ///
    /// [`LeaseHeld`](super::HomeErrorKind::LeaseHeld), with who holds it and for how long still.
    fn acquire(&self, name: &str, holder: &str, ttl_us: u64, wait_us: u64) -> Answer<Grant>;

    /// Makes a lease valid for its whole time again. The fence stays.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`](super::HomeErrorKind::LeaseLost): it must not be believed any more.
    fn renew(&self, name: &str, fence: u64) -> Answer<Grant>;

    /// Releases a lease. True if it was held with this fencing token.
    fn release(&self, name: &str, fence: u64) -> Answer<bool>;

    /// The state of a lease; None if nobody ever held it.
    fn lease_info(&self, name: &str) -> Answer<Option<LeaseInfo>>;

    /// Every held lease, in order of name.
    fn list_leases(&self) -> Answer<Vec<LeaseInfo>>;
}
