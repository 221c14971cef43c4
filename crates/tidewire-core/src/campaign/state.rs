//! States of a campaign, and the allowed transitions between them.

use serde::{Deserialize, Serialize};

/// Where a campaign is in its life.
///
/// ```
/// use tidewire_core::campaign::state::State;
///
/// assert!(State::Running.may_become(State::Paused));
/// assert!(!State::Cancelled.may_become(State::Running));
/// assert_eq!(State::parse("done"), Some(State::Done));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, derive_more::Display)]
#[serde(rename_all = "lowercase")]
#[display("{}", self.name())]
pub enum State {
    /// Created, and not started: no range is leased.
    Draft,
    /// Ranges are leased to workers.
    Running,
    /// No range is leased; results of open leases are still stored.
    Paused,
    /// Cancelled by a person. Results of leased runs are not stored; stored results stay.
    Cancelled,
    /// Ended because too many runs failed, or by the program that ran the campaign. Results of
    /// leased runs are not stored; stored results stay.
    Failed,
    /// Every run is stored, failed or quarantined, or the mean is known as precisely as asked for.
    Done,
}

impl State {
    /// Every state, in the order of a campaign's life.
    pub const ALL: [Self; 6] = [Self::Draft, Self::Running, Self::Paused, Self::Cancelled, Self::Failed, Self::Done];

    /// The name in tables, in Python and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
            Self::Done => "done",
        }
    }

    /// The state of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// True if nothing runs any more. A campaign that is done can be extended; the other ends are
    /// final.
    pub const fn ended(self) -> bool {
        matches!(self, Self::Cancelled | Self::Failed | Self::Done)
    }

    /// True if a person or a worker may move a campaign from this state to `to`. The ledger alone
    /// moves to `Done`, and from `Done` by an extension.
    pub const fn may_become(self, to: Self) -> bool {
        match to {
            Self::Running => matches!(self, Self::Draft | Self::Paused),
            Self::Paused => matches!(self, Self::Draft | Self::Running),
            Self::Cancelled | Self::Failed => !self.ended(),
            Self::Draft | Self::Done => false,
        }
    }
}
