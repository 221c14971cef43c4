//! Long payloads that lie in the memory which the processes of a machine share.
//!
//! The thread of the links reads them, so that an event loop goes on with what else has come; between two of them it reads the
//! socket. Inside of one process there is no such thread for a link: whoever brings the frames reads.

use std::collections::VecDeque;
use std::sync::Arc;

use tidewire_core::link::session::Placed;

use super::way::{Way, WayKind};
use super::{CallKey, Shared};
use crate::clock::now_us;
use crate::memory;

/// Each with the connection that it came over. There are no more of them than exchanges, and no more bytes than a node takes at once.
pub(super) type Placings = VecDeque<(Placed, u32)>;

impl Shared {
    /// A payload is to be read where it lies.
    pub(super) fn placed(self: &Arc<Self>, placed: Placed, epoch: u32) {
        let is_local = self.way.lock().as_ref().is_some_and(|way| matches!(way.kind, WayKind::Local(_)));
        if is_local {
            return self.read_placed(&placed, epoch, None);
        }
        self.placed.lock().push_back((placed, epoch));
        self.look.notify_one();
    }

    /// Whether the thread of the links is to read something where it lies.
    pub(super) fn has_placed(&self) -> bool {
        !self.is_paused() && !self.placed.lock().is_empty()
    }

    /// Reads one payload where it lies, and hands on what that completes.
    pub(super) fn read_next_placed(self: &Arc<Self>, way: &Way) {
        let next = self.placed.lock().pop_front();
        if let Some((placed, epoch)) = next {
            self.read_placed(&placed, epoch, Some(way));
            self.flush();
        }
    }

    fn read_placed(self: &Arc<Self>, placed: &Placed, epoch: u32, way: Option<&Way>) {
        let key = CallKey { epoch, id: 0 };
        let Some(Some(mut room)) = self.with(key, |session| session.place_room(placed)) else { return };
        let begin = room.len();
        if !memory::read(&placed.place, placed.bytes, &mut room) {
            room.truncate(begin);
        }
        // A loop may read the socket meanwhile, and what it reads next may be the end of this call.
        let _order = way.map(|way| way.turn.in_order());
        let mut events = Vec::new();
        self.with(key, |session| session.place_read(placed, room, now_us(), &mut events));
        self.happened(events, epoch);
    }
}
