//! Frames that the hub sends: names of nodes, errors, and forwarded frames in the send queue of a
//! link.

use std::collections::BTreeSet;

use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::{FieldsWriter, Flags, Frame, Kind};

use super::super::flow_control::stated_bytes;
use super::super::outbox::LANES;
use super::{Hub, Link, LinkId};

impl Hub {
    /// Sends a node the name of another one, once.
    pub(super) fn introduce(&mut self, to: LinkId, other: LinkId) {
        let Some(named) = self.links.get(other).and_then(Option::as_ref) else { return };
        let number = named.number;
        if self.links.get(to).and_then(Option::as_ref).is_none_or(|link| link.knows.contains(&number)) {
            return;
        }
        let mut payload = Vec::new();
        let mut fields = FieldsWriter::new(&mut payload);
        let user = self.options.access.user(named.grant);
        for (name, text) in [("name", named.name.as_str()), ("user", user)] {
            if fields.add(name, text.as_bytes()).is_err() {
                return;
            }
        }
        if let Some(link) = self.link(to) {
            link.knows.insert(number);
        }
        if let Some(named) = self.link(other) {
            named.known_by.insert(to);
        }
        // In each lane: the name has to come before the frames that use its number, and a lower
        // lane goes on while much waits in a higher one.
        for lane in 0..LANES as u8 {
            self.put(to, Kind::Node, Flags::NORMAL.in_lane(lane), 0, &number.to_le_bytes(), &payload);
        }
    }

    /// Notifies the nodes that know a node that it has gone, so that names don't gather for ever.
    pub(super) fn forget_node(&mut self, number: u32, known_by: BTreeSet<LinkId>) {
        for at in known_by {
            if self.link(at).is_some_and(|link| link.knows.remove(&number)) {
                // In the lowest lane: what the node has sent may still wait.
                self.tell(at, Kind::Node, Flags::NORMAL.in_lane(3), 0, &number.to_le_bytes());
            }
        }
    }

    pub(super) fn put_fail(&mut self, at: LinkId, id: u64, lane: u8, code: ErrorCode, text: &str) {
        let flags = Flags::NORMAL.in_lane(lane).with_answer(true);
        self.put(at, Kind::Fail, flags, id, &code.number().to_le_bytes(), text.as_bytes());
    }

    pub(super) fn tell(&mut self, at: LinkId, kind: Kind, flags: Flags, id: u64, head: &[u8]) {
        self.put(at, kind, flags, id, head, &[]);
    }

    pub(super) fn put(&mut self, at: LinkId, kind: Kind, flags: Flags, id: u64, head: &[u8], payload: &[u8]) {
        let Some(link) = self.link(at) else { return };
        let head = |out: &mut Vec<u8>| {
            out.extend_from_slice(head);
            Ok(())
        };
        let written = link.out.control(kind, flags, id, head, payload).is_ok();
        // Signs of life say nothing that has to be read.
        let fresh = link.fresh || !matches!(kind, Kind::Ping | Kind::Pong);
        let closing = link.closing;
        if written {
            self.touch(at);
        }
        if !closing && self.is_choked(at) {
            self.choked.push(at);
        }
        if let Some(link) = self.link(at) {
            link.fresh = fresh;
        }
    }

    /// Passes a frame of an exchange on. False: too much waits there.
    pub(super) fn pass(&mut self, to: LinkId, id: u64, lane: u8, frame: &Frame<'_>) -> bool {
        let Some(link) = self.link_with_capacity(to) else { return true };
        let unplaced = link.unplaced(frame);
        let bytes = unplaced.as_deref().unwrap_or(frame.bytes);
        let passed = if frame.payload.is_empty() {
            link.out.forward_bare(bytes, lane.into(), id).is_ok()
        } else {
            link.out.forward(bytes, lane.into(), id).is_ok()
        };
        self.counts.forwarded += u64::from(passed);
        self.touch(to);
        passed
    }

    pub(super) fn touch(&mut self, at: LinkId) {
        self.recount(at);
        let Some(link) = self.links.get_mut(at).and_then(Option::as_mut) else { return };
        link.fresh = true;
        if !link.touched {
            link.touched = true;
            self.touched.push(at);
        }
    }
}

impl Link {
    /// True if its node takes a payload, and a frame, of this length.
    pub(super) fn can_take(&self, frame: &Frame<'_>) -> bool {
        stated_bytes(frame) <= self.payload_max as u64 && frame.bytes.len() <= self.frame_max + 4
    }

    /// Why it does not take a frame: by how much that is too long for the node that is named so.
    pub(super) fn excess(&self, frame: &Frame<'_>, whose: &str) -> String {
        let (bytes, max) = (stated_bytes(frame), self.payload_max);
        if bytes > max as u64 {
            return format!("{bytes} bytes are more than payload_bytes={max} of {whose}");
        }
        let (bytes, max) = (frame.bytes.len() - 4, self.frame_max);
        format!("a frame of {bytes} bytes is longer than link_frame_bytes={max} of {whose}")
    }
}
