//! Leases of a campaign: the timed right of one worker to run a range, and the replies to its
//! claims.

use super::state::State;

/// The timed right of one worker to run a range of consecutive runs and to store their results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Its number, given in order from 1 and never twice in a campaign.
    pub id: u64,
    /// The worker that holds it.
    pub worker: u64,
    /// Its first run. Moves on as parts from the front are stored.
    pub first: u64,
    /// How many runs are left of it.
    pub count: u32,
    /// Which attempt of its first run this is: 1, and one more for each worker that died in that
    /// run.
    pub attempt: u32,
    /// True if the columns of the campaign are not known yet: the result of this one run decides
    /// them.
    pub pilot: bool,
    /// How long it is valid from now, in microseconds, if it is not renewed. Renew it after a third
    /// of that time.
    pub valid_us: u64,
}

impl Lease {
    /// The run after its last one.
    pub const fn end(&self) -> u64 {
        self.first + self.count as u64
    }
}

/// The reply to a worker that asks for a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Run this range.
    Lease(Lease),
    /// Nothing to run now: the campaign is not running, or all that may run is leased to others.
    /// Ask again when something has changed, or after `hint_us` at the latest.
    Wait {
        /// Running, paused or draft.
        state: State,
        /// The time until the next lease expires, or longer if the worker does not wait for that.
        hint_us: u64,
    },
    /// The campaign has ended in this state.
    Ended(State),
}

/// The state of a campaign and of one lease after results were stored or the lease was renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimState {
    /// The state of the campaign.
    pub state: State,
    /// How many runs of the lease are left. A worker finishes them although the campaign was
    /// paused, if it can soon; it may give them back.
    pub left: u32,
}
