//! Payloads in shared memory: the hub forwards their location, not their bytes.

use tidewire_proto::generated::limits;
use tidewire_proto::wire::{Flags, Frame, Kind};

use super::routes::{ReverseRoute, Route};
use super::{Hub, Link, LinkId};

impl Hub {
    /// Handles the acknowledgement of a payload in shared memory. For the payload of an answer, the
    /// exchange ends.
    pub(super) fn acknowledge_payload(&mut self, at: LinkId, frame: &Frame<'_>) {
        if frame.flags.answer() { self.acknowledge_call(at, frame.id) } else { self.acknowledge_answer(at, frame.id) }
    }

    /// By the node that answers.
    fn acknowledge_call(&mut self, at: LinkId, own: u64) {
        let Some(ReverseRoute::Call { link: to, id, lane, .. }) = self.link(at).and_then(|link| link.ours.get(own))
        else {
            return;
        };
        let (to, id, lane) = (*to, *id, *lane);
        let Some(Route::To { passing, .. }) = self.link(to).and_then(|link| link.theirs.get(id)) else { return };
        if passing.end_placed() {
            self.tell(to, Kind::Taken, Flags::NORMAL.in_lane(lane).with_answer(true), id, &[]);
        }
    }

    /// By the node that called.
    fn acknowledge_answer(&mut self, at: LinkId, opened: u64) {
        let Some(Route::To { link: to, id, lane, .. }) = self.link(at).and_then(|link| link.theirs.get(opened)) else {
            return;
        };
        let (to, id, lane) = (*to, *id, *lane);
        let Some(ReverseRoute::Call { passing, ending, subscription, .. }) =
            self.link(to).and_then(|link| link.ours.get(id))
        else {
            return;
        };
        let (was_placed, ending, subscription) = (passing.end_placed(), *ending, *subscription);
        if !was_placed {
            return;
        }
        self.tell(to, Kind::Taken, Flags::NORMAL.in_lane(lane), id, &[]);
        if ending {
            self.link(to).map(|link| link.ours.remove(id));
            self.link(at).map(|link| link.theirs.remove(opened));
            self.finished(subscription);
        }
    }

    /// Asks for the first window of a payload that its receiver can't read in shared memory. The
    /// receiver was promised a payload in chunks.
    pub(super) fn ask_for_chunks(&mut self, at: LinkId, frame: &Frame<'_>, to: LinkId) {
        if !frame.is_placed() || self.link(to).is_none_or(|link| link.memory) {
            return;
        }
        let Some(link) = self.link(at) else { return };
        let passing = if frame.flags.answer() {
            link.ours
                .get(frame.id)
                .and_then(|back| if let ReverseRoute::Call { passing, .. } = back { Some(passing) } else { None })
        } else {
            link.theirs
                .get(frame.id)
                .and_then(|route| if let Route::To { passing, .. } = route { Some(passing) } else { None })
        };
        let Some(passing) = passing else { return };
        let window = limits::LINK_WINDOW_BYTES.default as u32;
        passing.requested(window);
        let flags = Flags::NORMAL.in_lane(frame.flags.lane() as u8).with_answer(!frame.flags.answer());
        self.tell(at, Kind::Window, flags, frame.id, &window.to_le_bytes());
    }
}

impl Link {
    /// The frame without a place, if it has one and this node can't read there.
    pub(super) fn unplaced(&self, frame: &Frame<'_>) -> Option<Vec<u8>> {
        (frame.is_placed() && !self.memory).then(|| frame.unplaced())
    }
}
