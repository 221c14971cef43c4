//! A lease as its holder sees it: held until a time of the holder's own clock, and renewed before
//! that.
//!
//! The storage backend counts a lease from when it has granted or renewed it. The holder counts
//! from when it asked, so that it stops believing before the storage backend gives the lease to
//! another. Times are microseconds of a clock that does not jump.

/// How many times a lease is renewed within its time.
const RENEWALS: u64 = 3;
/// A renewal that failed is tried again after this part of the lease's time.
const RETRIES: u64 = 15;

/// The lease of one holder, which may hold it or not.
#[derive(Clone, Debug)]
pub struct LeaseHolder {
    ttl_us: u64,
    lease: Option<HeldLease>,
}

#[derive(Clone, Copy, Debug)]
struct HeldLease {
    fence: u64,
    until_us: u64,
    renew_us: u64,
}

impl LeaseHolder {
    /// A lease that is not held, for a time to live in microseconds.
    pub fn new(ttl_us: u64) -> Self {
        Self { ttl_us, lease: None }
    }

    /// The lease was granted. How long ago is not known: it counts from the first renewal.
    pub fn granted(&mut self, fence: u64, now_us: u64) {
        self.lease = Some(HeldLease { fence, until_us: 0, renew_us: now_us });
    }

    /// The lease was renewed by a call that began then.
    pub fn renewed(&mut self, begun_us: u64) {
        let (ttl_us, every_us) = (self.ttl_us, self.ttl_us / RENEWALS);
        if let Some(lease) = &mut self.lease {
            lease.until_us = lease.until_us.max(begun_us.saturating_add(ttl_us));
            lease.renew_us = begun_us.saturating_add(every_us);
        }
    }

    /// A renewal failed, and the lease may still be held.
    pub fn failed(&mut self, now_us: u64) {
        let pause_us = (self.ttl_us / RETRIES).max(1);
        if let Some(lease) = &mut self.lease {
            lease.renew_us = now_us.saturating_add(pause_us);
        }
    }

    /// The lease was lost or given back. Gives its fence, if there was one.
    pub fn end(&mut self) -> Option<u64> {
        self.lease.take().map(|lease| lease.fence)
    }

    /// The fence, if the lease is held for sure.
    pub fn fence(&self, now_us: u64) -> Option<u64> {
        self.lease.filter(|lease| now_us < lease.until_us).map(|lease| lease.fence)
    }

    /// The fence of the newest grant, held for sure or not.
    pub fn newest(&self) -> Option<u64> {
        self.lease.map(|lease| lease.fence)
    }

    /// When to renew it next, and until when it is held. None: there is no lease.
    pub fn times_us(&self) -> Option<(u64, u64)> {
        self.lease.map(|lease| (lease.renew_us, lease.until_us))
    }
}

#[cfg(test)]
mod tests;
