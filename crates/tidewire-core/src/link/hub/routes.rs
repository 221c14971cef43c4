//! Routing entries of open exchanges, seen from the node that opened one and from the node that
//! answers.

use super::super::flow_control::FlowWindow;
use super::LinkId;
use crate::tree::SubscriptionId;

/// An exchange that a node opened, seen from that node.
pub(super) enum Route {
    /// A route to an exchange of the hub on another link. All its frames travel in one lane, so
    /// that none overtakes another.
    To { link: LinkId, id: u64, lane: u8, passing: FlowWindow },
    /// A subscription.
    Subscription(SubscriptionId),
    /// A long published payload.
    Fan(Box<Fanout>),
}

/// An exchange that the hub opened, seen from the node that answers.
pub(super) enum ReverseRoute {
    /// A call of another node, which this node answers; a stream is limited by the credit of the
    /// caller.
    Call {
        link: LinkId,
        id: u64,
        subscription: SubscriptionId,
        lane: u8,
        passing: FlowWindow,
        ending: bool,
        streams: bool,
    },
    /// A long payload that another node publishes.
    Published { link: LinkId, id: u64 },
}

/// A long published payload, under way to several nodes.
pub(super) struct Fanout {
    pub(super) to: Vec<Receiver>,
    pub(super) lane: u8,
    pub(super) passing: FlowWindow,
    /// Bytes that came.
    pub(super) received: u64,
    /// Bytes for which the sender got windows.
    pub(super) granted: u64,
}

pub(super) struct Receiver {
    pub(super) link: LinkId,
    pub(super) id: u64,
    /// Bytes for which it gave windows.
    pub(super) requested: u64,
}

impl Fanout {
    pub(super) fn new(to: Vec<Receiver>, lane: usize, passing: FlowWindow) -> Self {
        Self { to, lane: lane as u8, passing, received: 0, granted: 0 }
    }

    /// Bytes for which the sender gets a window now: the fastest receiver sets the pace, and a slow
    /// one delays no other.
    pub(super) fn grant(&mut self, half_window: u64) -> Option<u32> {
        let requested = self.to.iter().map(|receiver| receiver.requested).max();
        let pace = requested.map_or(self.received, |requested| requested.min(self.received));
        let further = pace.saturating_sub(self.granted);
        if further < half_window {
            return None;
        }
        self.granted += further;
        let further = u32::try_from(further).unwrap_or(u32::MAX);
        self.passing.requested(further);
        Some(further)
    }
}

/// One subscription to the messages or calls of a pattern.
#[derive(Clone)]
pub(super) struct Subscriber {
    pub(super) link: LinkId,
    pub(super) id: u64,
    pub(super) queue: String,
    pub(super) pattern: String,
    pub(super) announcement: Vec<u8>,
    pub(super) in_progress: u32,
    /// It has refused a call for lack of capacity, and no call there has ended since.
    pub(super) is_full: bool,
    /// The subscription answers no calls.
    pub(super) listens: bool,
    /// The subscription belongs to a node that a bridge reaches.
    pub(super) remote: bool,
    /// The subscription leads to another hub.
    pub(super) far: bool,
    pub(super) key: Option<SubscriptionId>,
}
