//! Priority of calls, messages and commands, and choice of the instance that gets a call.

use tidewire_core::rpc::balancer::Policy;
use tidewire_proto::wire::Flags;

/// Which waits less on a wire that is busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// Before all others.
    Urgent,
    /// Before what is normal.
    High,
    /// The default.
    #[default]
    Normal,
    /// After all others.
    Low,
}

impl Priority {
    pub(crate) fn of_lane(lane: usize) -> Self {
        [Self::Urgent, Self::High, Self::Normal, Self::Low][lane.min(3)]
    }

    /// The name that storage backends and nodes of other languages use.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Urgent => "urgent",
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }

    pub(crate) fn flags(self) -> Flags {
        Flags::NORMAL.in_lane(self as u8)
    }
}

/// Load balancing between the instances of a service. The hub chooses, unless an argument is a
/// stream, a function or an object, which is for one node. The active instance of a single active
/// service gets all calls of its node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Choice {
    /// One with the fewest calls in progress.
    #[default]
    LeastOutstanding,
    /// The one that has been served longest.
    First,
    /// Any.
    Random,
    /// The instance with the lowest expected time for the method and the
    /// [cost](crate::Client::cost) of the call, from the calls of this node. One call in a hundred
    /// at most probes another one, and instances that fail are ejected for a while. This node
    /// chooses, and not the hub: its first call requests the list of instances from the hub.
    LowestLatency,
}

impl Choice {
    /// The number that the hub is sent.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::LeastOutstanding | Self::LowestLatency => 0,
            Self::First => 1,
            Self::Random => 2,
        }
    }

    pub(crate) fn policy(self) -> Policy {
        match self {
            Self::LeastOutstanding => Policy::LeastOutstanding,
            Self::First => Policy::First,
            Self::Random => Policy::Random,
            Self::LowestLatency => Policy::LowestLatency { explore: 0.01 },
        }
    }
}
