//! Compression support of nodes: the hub counts nodes that can't inflate, and tells the others if
//! they may compress.

use tidewire_proto::wire::{FieldsWriter, Flags, Frame, Kind};

use super::super::compression::FEATURE;
use super::super::session::is_compressed;
use super::{Hub, Link, LinkId};

/// The number that stands for all nodes: no node has it.
const ALL_NODES: u32 = 0;

impl Hub {
    /// Counts a node that joins. If the node can't inflate, the others are notified before anything
    /// can be sent to it.
    pub(super) fn count_in(&mut self, at: LinkId) {
        let Some(link) = self.link(at).filter(|link| !link.inflates) else { return };
        link.plain = true;
        self.plain_nodes += 1;
        if self.plain_nodes == 1 {
            self.tell_all_shared();
        }
    }

    /// A node is gone.
    pub(super) fn count_out(&mut self, at: LinkId) {
        if !self.link(at).is_some_and(|link| std::mem::take(&mut link.plain)) {
            return;
        }
        self.plain_nodes -= 1;
        if self.plain_nodes == 0 {
            self.tell_all_shared();
        }
    }

    /// Notifies a node that has just joined, if all nodes can inflate.
    pub(super) fn tell_first_shared(&mut self, at: LinkId) {
        if self.plain_nodes == 0 {
            self.tell_shared(at);
        }
    }

    fn tell_all_shared(&mut self) {
        for at in 0..self.links.len() {
            self.tell_shared(at);
        }
    }

    fn tell_shared(&mut self, at: LinkId) {
        if !self.link(at).is_some_and(|link| link.inflates && !link.closing) {
            return;
        }
        let (mut said, shared) = (Vec::new(), if self.plain_nodes == 0 { FEATURE } else { "" });
        if FieldsWriter::new(&mut said).add("shared", shared.as_bytes()).is_ok() {
            self.put(at, Kind::Node, Flags::URGENT, 0, &ALL_NODES.to_le_bytes(), &said);
        }
    }
}

impl Link {
    /// True if its node can read a payload in its present form, compressed or not.
    pub(super) fn reads(&self, frame: &Frame<'_>) -> bool {
        self.inflates || !is_compressed(frame)
    }
}
