//! Leases of a folder.

use tidewire_backend::home::{Grant, HomeError, HomeErrorKind, HomeResult, LeaseInfo};
use tidewire_core::stream::lease::{Granted, Outcome};
use tidewire_proto::generated::limits;

use super::Folder;
use super::errors::invalid;
use super::names::{check_count, check_subject_name};
use crate::state::Op;

/// Result of a call that waited for a lease, by its ticket. A grant holds once `commit` has
/// returned.
pub type Leased = (u64, HomeResult<Grant>);

impl Folder {
    /// Acquires a lease, or waits for it under a unique ticket. None: it waits.
    ///
    /// # Errors
    ///
    /// `Invalid`, `Limit`; the outcome has the result of the call.
    pub fn acquire(
        &mut self,
        (name, holder): (&str, &str),
        (ttl_us, wait_us): (u64, u64),
        ticket: u64,
        now_us: u64,
    ) -> HomeResult<Option<Leased>> {
        check_subject_name("lease", name)?;
        if holder.len() as u64 > limits::EVENT_NAME_BYTES.max {
            return Err(invalid(format!("holder: it has {} bytes; give at most 256", holder.len())));
        }
        if ttl_us < 1_000 {
            return Err(invalid(format!("ttl is {} s; give at least 0.001", ttl_us as f64 / 1e6)));
        }
        if self.leases.get(name, now_us).is_none() {
            check_count("leases", self.leases.iter().count(), &limits::LEASES)?;
        }
        let outcome = self.leases.acquire(name, holder, (ttl_us, wait_us), ticket, now_us);
        Ok(outcome.map(|outcome| self.leased(outcome, now_us)))
    }

    /// Makes a lease valid for its whole time again.
    ///
    /// # Errors
    ///
    /// `LeaseLost`.
    pub fn renew(&mut self, name: &str, fence: u64, now_us: u64) -> HomeResult<Grant> {
        match self.leases.renew(name, fence, now_us) {
            Some(ttl_us) => Ok(Grant { fence, ttl_us }),
            None => {
                let text = format!(
                    "lease {name:?}: fence {fence} no longer holds it; stop the protected work, and acquire it anew"
                );
                Err(HomeError::new(HomeErrorKind::LeaseLost, text))
            }
        }
    }

    /// Releases a lease. True if it was held.
    pub fn release(&mut self, name: &str, fence: u64, now_us: u64) -> bool {
        let released = self.leases.release(name, fence, now_us);
        if released {
            self.keep(&Op::Released(name.to_owned(), fence));
        }
        released
    }

    /// The state of a lease.
    pub fn lease_info(&mut self, name: &str, now_us: u64) -> Option<LeaseInfo> {
        self.leases.get(name, now_us)?;
        self.lease_infos(now_us).find(|info| info.name == name)
    }

    /// All leases that are held.
    pub fn list_leases(&self, now_us: u64) -> Vec<LeaseInfo> {
        self.lease_infos(now_us).filter(|info| info.holder.is_some()).collect()
    }

    fn lease_infos(&self, now_us: u64) -> impl Iterator<Item = LeaseInfo> + '_ {
        self.leases.iter().map(move |(name, lease)| {
            let active = lease.active.as_ref().filter(|active| active.until_us > now_us);
            LeaseInfo {
                name: name.to_owned(),
                holder: active.map(|active| active.holder.clone()),
                fence: lease.fence,
                remaining_us: active.map_or(0, |active| active.until_us - now_us),
            }
        })
    }

    /// Grants free leases to waiting calls.
    pub fn tick_leases(&mut self, now_us: u64) -> Vec<Leased> {
        let outcomes = self.leases.tick(now_us);
        outcomes.into_iter().map(|outcome| self.leased(outcome, now_us)).collect()
    }

    fn leased(&mut self, outcome: Outcome, now_us: u64) -> Leased {
        match outcome {
            Outcome::Granted(ticket, granted) => {
                let Granted { fence, ttl_us, .. } = granted;
                self.keep(&Op::Granted(granted));
                (ticket, Ok(Grant { fence, ttl_us }))
            }
            Outcome::TimedOut(ticket, name) => {
                let active = self
                    .lease_info(&name, now_us)
                    .and_then(|info| info.holder.map(|holder| (holder, info.remaining_us)));
                let who = active.map_or_else(
                    || "others wait for it".to_owned(),
                    |(holder, remaining_us)| format!("{holder:?} holds it for {:.3} s more", remaining_us as f64 / 1e6),
                );
                let text = format!("lease {name:?}: {who}; wait longer, or try again later");
                (ticket, Err(HomeError::new(HomeErrorKind::LeaseHeld, text)))
            }
        }
    }
}
