//! The presence message of a node: published on `tw.presence`, and to each one with which it opens
//! a session.

use serde::{Deserialize, Serialize};
use tidewire_proto::generated::limits;

/// The subject on which nodes announce their presence.
pub(super) const SUBJECT: &str = "tw.presence";
const VERSION: u32 = 1;
/// The longest that is read.
const BYTES_MAX: usize = 4_096;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum PresenceKind {
    /// It begins: all others are to open a session with it.
    Hello,
    /// It is there.
    Here,
    /// Another node has lost it: all others are to ask it.
    Gone,
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Presence {
    pub tidewire: u32,
    pub says: PresenceKind,
    /// Chosen at random; unique in the cluster.
    pub number: u32,
    pub name: String,
    /// When it joined, by its clock; the largest number before. Of two nodes with one name or
    /// number the first keeps it.
    pub since_us: u64,
    pub heartbeat_ms: u64,
    /// Exchanges that others may open there.
    pub in_flight: u64,
    pub frame_bytes: u64,
    pub payload_bytes: u64,
}

impl Presence {
    pub fn new(number: u32, name: &str) -> Self {
        Self {
            tidewire: VERSION,
            says: PresenceKind::Here,
            number,
            name: name.to_owned(),
            since_us: u64::MAX,
            heartbeat_ms: limits::LINK_HEARTBEAT_MS.default,
            in_flight: limits::LINK_IN_FLIGHT.default,
            frame_bytes: limits::LINK_FRAME_BYTES.default,
            payload_bytes: limits::PAYLOAD_BYTES.default,
        }
    }

    /// True if it comes before another node of its name.
    pub fn is_before(&self, other: &Self) -> bool {
        (self.since_us, self.number) < (other.since_us, other.number)
    }

    pub fn written(&self, says: PresenceKind) -> Vec<u8> {
        serde_json::to_vec(&Self { says, ..self.clone() }).unwrap_or_default()
    }

    /// Decodes a presence message. None: another version, or out of limits.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > BYTES_MAX {
            return None;
        }
        let presence: Self = serde_json::from_slice(bytes).ok()?;
        let within = |limit: limits::Limit, value: u64| (limit.min..=limit.max).contains(&value);
        let is_named = !presence.name.is_empty() && presence.name.len() as u64 <= limits::NAME_BYTES.default;
        let fits = presence.tidewire == VERSION
            && presence.number != 0
            && is_named
            && within(limits::LINK_HEARTBEAT_MS, presence.heartbeat_ms)
            && within(limits::LINK_IN_FLIGHT, presence.in_flight)
            && within(limits::LINK_FRAME_BYTES, presence.frame_bytes)
            && within(limits::PAYLOAD_BYTES, presence.payload_bytes);
        fits.then_some(presence)
    }
}

#[cfg(test)]
mod tests;
