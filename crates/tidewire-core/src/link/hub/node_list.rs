//! Lists of the nodes of a hub, for callers and for its own log.

use std::fmt;

use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::{Flags, Frame, Kind};

use super::super::outbox::PayloadParts;
use super::directory_updates::as_value;
use super::{Hub, LinkId};

/// The list of everything that was announced by a subscription.
const SERVICES: &str = "$hub.services";
/// The list of all nodes.
const NODES: &str = "$hub.nodes";

/// A change in the list of nodes, for the log of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A node has joined.
    Joined {
        /// Its name.
        node: String,
        /// The user of its token; empty if the hub has no tokens.
        user: String,
    },
    /// A node is gone.
    Left {
        /// Its name.
        node: String,
        /// True if the node said goodbye; false if its link was lost.
        goodbye: bool,
    },
    /// A node serves something, or no longer.
    Serves {
        /// Its name.
        node: String,
        /// The pattern of one instance of a service.
        pattern: String,
        /// True if the node serves it from now on; false if it stopped.
        serves: bool,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Joined { node, user } if user.is_empty() => write!(f, "node {node:?} has joined"),
            Self::Joined { node, user } => write!(f, "node {node:?} has joined as {user:?}"),
            Self::Left { node, goodbye: true } => write!(f, "node {node:?} has left"),
            Self::Left { node, goodbye: false } => write!(f, "node {node:?} has gone without a goodbye"),
            Self::Serves { node, pattern, serves: true } => write!(f, "node {node:?} serves {pattern}"),
            Self::Serves { node, pattern, serves: false } => write!(f, "node {node:?} serves {pattern} no longer"),
        }
    }
}

impl Hub {
    /// Records changes from now on, for [`changes`](Self::changes).
    pub fn keep_changes(&mut self) {
        self.changes.get_or_insert_default();
    }

    /// Takes the changes since the last call.
    pub fn changes(&mut self) -> Vec<Change> {
        self.changes.as_mut().map_or_else(Vec::new, std::mem::take)
    }

    /// Notes something that has changed, if anybody asks. The hub's own node is none of those that
    /// join.
    pub(super) fn note(&mut self, node: &str, change: impl FnOnce(String) -> Change) {
        let own = node == self.options.name;
        if let Some(changes) = self.changes.as_mut().filter(|_| !own) {
            changes.push(change(node.to_owned()));
        }
    }

    /// Answers a call that asks for a list; None: it asks for none.
    pub(super) fn list(
        &mut self,
        at: LinkId,
        subject: &str,
        frame: &Frame<'_>,
    ) -> Option<Result<(), (ErrorCode, String)>> {
        match subject {
            SERVICES => {
                let grant = self.link(at).and_then(|link| link.grant);
                let known = self.list_services(grant);
                Some(self.answer_list(at, frame, known))
            }
            NODES => {
                let known = self.nodes();
                Some(self.answer_list(at, frame, known))
            }
            _ => None,
        }
    }

    /// All nodes: name and user, subscriptions, exchanges that are open for others, and how long
    /// ago each joined.
    fn nodes(&self) -> Vec<u8> {
        let mut known = Vec::new();
        for link in self.names.values().filter_map(|&at| self.links.get(at)?.as_deref()) {
            for text in [&*link.name, self.options.access.user(link.grant)] {
                known.extend_from_slice(&(text.len() as u16).to_le_bytes());
                known.extend_from_slice(text.as_bytes());
            }
            for count in [link.subscriptions, link.ours.len()] {
                known.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
            }
            let joined_us = self.now_us.saturating_sub(link.joined_us);
            known.extend_from_slice(&(joined_us / 1_000).to_le_bytes());
        }
        as_value(&known)
    }

    fn answer_list(
        &mut self,
        at: LinkId,
        frame: &Frame<'_>,
        known: impl PayloadParts + 'static,
    ) -> Result<(), (ErrorCode, String)> {
        let Some(link) = self.link_with_capacity(at) else { return Ok(()) };
        if known.bytes() > link.payload_max {
            let (bytes, max) = (known.bytes(), link.payload_max);
            let text = format!(
                "the list of the hub: {bytes} bytes are more than payload_bytes={max} of this node: raise the limit here"
            );
            return Err((ErrorCode::LimitExceeded, text));
        }
        let flags = Flags::NORMAL.in_lane(frame.flags.lane() as u8).with_answer(true);
        let sent = if link.out.is_long(known.bytes()) {
            link.out.send_long(Kind::Reply, flags, frame.id, |_| Ok(()), Box::new(known), 0)
        } else {
            link.out.send_pieces(Kind::Reply, flags, frame.id, |_| Ok(()), &known)
        };
        sent.map_err(|_| {
            let limit = self.full(at);
            (ErrorCode::LimitExceeded, format!("{limit}: too much waits for this node: try again later"))
        })?;
        self.touch(at);
        Ok(())
    }
}
