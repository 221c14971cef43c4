//! Leases: timed exclusive rights by name, with fencing tokens that only grow.

use std::collections::{BTreeMap, VecDeque};

/// Leases by name, and who waits for them.
#[derive(Clone, Debug, Default)]
pub struct Leases {
    leases: BTreeMap<String, Lease>,
}

/// One lease.
#[derive(Clone, Debug, Default)]
pub struct Lease {
    /// The newest token.
    pub fence: u64,
    /// The current holder and the end of its lease.
    pub active: Option<ActiveLease>,
    waiting: VecDeque<LeaseWaiter>,
}

/// The holder of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveLease {
    /// The name of the holder, for people.
    pub holder: String,
    /// How long a grant lasts.
    pub ttl_us: u64,
    /// When this one ends.
    pub until_us: u64,
}

#[derive(Clone, Debug)]
struct LeaseWaiter {
    ticket: u64,
    holder: String,
    ttl_us: u64,
    until_us: u64,
}

/// A lease was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The lease.
    pub name: String,
    /// The token.
    pub fence: u64,
    /// The name of the holder.
    pub holder: String,
    /// How long it lasts.
    pub ttl_us: u64,
}

/// The outcome of time and releases, for waiting callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The lease is this one's.
    Granted(u64, Granted),
    /// The wait was over.
    TimedOut(u64, String),
}

impl Leases {
    /// Takes a lease that is free, or waits for it under a ticket that no other call has.
    pub fn acquire(
        &mut self,
        name: &str,
        holder: &str,
        (ttl_us, wait_us): (u64, u64),
        ticket: u64,
        now_us: u64,
    ) -> Option<Outcome> {
        let lease = self.leases.entry(name.to_owned()).or_default();
        lease.expire(now_us);
        if lease.active.is_none() && lease.waiting.is_empty() {
            return Some(Outcome::Granted(ticket, lease.grant(name, holder.to_owned(), ttl_us, now_us)));
        }
        if wait_us == 0 {
            return Some(Outcome::TimedOut(ticket, name.to_owned()));
        }
        let until_us = now_us.saturating_add(wait_us);
        lease.waiting.push_back(LeaseWaiter { ticket, holder: holder.to_owned(), ttl_us, until_us });
        None
    }

    /// Makes a lease valid for its whole time again. None if it was lost.
    pub fn renew(&mut self, name: &str, fence: u64, now_us: u64) -> Option<u64> {
        let lease = self.leases.get_mut(name).filter(|lease| lease.fence == fence)?;
        lease.expire(now_us);
        let active = lease.active.as_mut()?;
        active.until_us = now_us.saturating_add(active.ttl_us);
        Some(active.ttl_us)
    }

    /// Releases a lease. True if it was held with this token.
    pub fn release(&mut self, name: &str, fence: u64, now_us: u64) -> bool {
        let Some(lease) = self.leases.get_mut(name).filter(|lease| lease.fence == fence) else { return false };
        lease.expire(now_us);
        lease.active.take().is_some()
    }

    /// Stops waiting.
    pub fn forget(&mut self, name: &str, ticket: u64) {
        if let Some(lease) = self.leases.get_mut(name) {
            lease.waiting.retain(|waiting| waiting.ticket != ticket);
        }
    }

    /// Ends expired leases and waits, and grants free leases to waiting callers, in their order.
    pub fn tick(&mut self, now_us: u64) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for (name, lease) in &mut self.leases {
            lease.expire(now_us);
            lease.waiting.retain(|waiting| {
                let waits = waiting.until_us > now_us;
                if !waits {
                    outcomes.push(Outcome::TimedOut(waiting.ticket, name.clone()));
                }
                waits
            });
            if lease.active.is_none()
                && let Some(next) = lease.waiting.pop_front()
            {
                outcomes.push(Outcome::Granted(next.ticket, lease.grant(name, next.holder, next.ttl_us, now_us)));
            }
        }
        outcomes
    }

    /// When to call [`tick`](Self::tick) next. Leases that nobody waits for end without it.
    pub fn next_deadline_us(&self) -> Option<u64> {
        let waited = self.leases.values().filter(|lease| !lease.waiting.is_empty());
        waited
            .flat_map(|lease| {
                let until_us = lease.active.as_ref().map_or(0, |active| active.until_us);
                lease.waiting.iter().map(|waiting| waiting.until_us).chain([until_us])
            })
            .min()
    }

    /// A lease, if it was ever held.
    pub fn get(&mut self, name: &str, now_us: u64) -> Option<&Lease> {
        let lease = self.leases.get_mut(name).filter(|lease| lease.fence > 0)?;
        lease.expire(now_us);
        Some(lease)
    }

    /// Every lease that was ever held, in order of name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Lease)> {
        self.leases.iter().filter(|(_, lease)| lease.fence > 0).map(|(name, lease)| (name.as_str(), lease))
    }

    /// Repeats a grant of before a crash: it lasts its whole time again.
    pub fn restore(&mut self, granted: Granted, now_us: u64) {
        let lease = self.leases.entry(granted.name).or_default();
        lease.fence = granted.fence;
        let until_us = now_us.saturating_add(granted.ttl_us);
        lease.active = Some(ActiveLease { holder: granted.holder, ttl_us: granted.ttl_us, until_us });
    }

    /// Repeats a release of before a crash, or that of a lease whose token alone is known.
    pub fn restore_released(&mut self, name: &str, fence: u64) {
        let lease = self.leases.entry(name.to_owned()).or_default();
        lease.fence = lease.fence.max(fence);
        if lease.fence == fence {
            lease.active = None;
        }
    }
}

impl Lease {
    fn expire(&mut self, now_us: u64) {
        if self.active.as_ref().is_some_and(|active| active.until_us <= now_us) {
            self.active = None;
        }
    }

    fn grant(&mut self, name: &str, holder: String, ttl_us: u64, now_us: u64) -> Granted {
        self.fence += 1;
        self.active = Some(ActiveLease { holder: holder.clone(), ttl_us, until_us: now_us.saturating_add(ttl_us) });
        Granted { name: name.to_owned(), fence: self.fence, holder, ttl_us }
    }
}
