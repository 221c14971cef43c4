//! Long payloads that lie in the memory which the processes of a machine share.
//!
//! The thread of the links reads them, so that an event loop goes on with what else has come; between two of them it reads the
//! socket.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use tidewire_core::link::session::Placed;

use super::way::{Way, WayKind};
use super::{CallKey, Shared};
use crate::clock::now_us;
use crate::memory;

/// Each with the connection that it came over. There are no more of them than exchanges, and no more bytes than a node takes at once.
pub(super) type Placings = VecDeque<(Placed, u32)>;

impl Shared {
    /// A payload is to be read where it lies.
    pub(super) fn placed(&self, placed: Placed, epoch: u32) {
        self.placed.lock().push_back((placed, epoch));
        match &self.place {
            // Nobody looks after a link inside of one process.
            Some(place) => place.spawn(read_all_placed(self.me.clone())),
            None => self.look.notify_one(),
        }
    }

    /// Whether the thread of the links is to read something where it lies.
    pub(super) fn has_placed(&self) -> bool {
        !self.is_paused() && !self.placed.lock().is_empty()
    }

    /// What was left while nothing was taken in is read.
    pub(super) fn read_placed_again(&self) {
        if let (Some(place), true) = (&self.place, self.has_placed()) {
            place.spawn(read_all_placed(self.me.clone()));
        }
    }

    /// Reads one payload where it lies, and hands on what that completes.
    pub(super) fn read_next_placed(self: &Arc<Self>, way: &Way) {
        let next = self.placed.lock().pop_front();
        let Some((placed, epoch)) = next else { return };
        let key = CallKey { epoch, id: 0 };
        let Some(Some(mut room)) = self.with(key, |session| session.place_room(&placed)) else { return };
        let begin = room.len();
        if !memory::read(&placed.place, placed.bytes, &mut room) {
            room.truncate(begin);
        }
        let hand_on = || {
            let mut events = Vec::new();
            self.with(key, |session| session.place_read(&placed, room, now_us(), &mut events));
            self.happened(events, epoch);
        };
        // Others may give the session frames meanwhile, and what comes next may be the end of this call.
        match &way.kind {
            WayKind::Local(end) => end.in_order(hand_on),
            WayKind::Plain(_) | WayKind::Layered(_) => {
                let order = way.turn.in_order();
                hand_on();
                drop(order);
            }
        }
        self.flush();
    }
}

/// For a link inside of one process, on the thread of the links of its hub.
async fn read_all_placed(shared: Weak<Shared>) {
    while let Some(shared) = shared.upgrade().filter(|shared| shared.has_placed()) {
        let way = shared.way.lock().clone();
        let Some(way) = way else { return };
        shared.read_next_placed(&way);
        drop((shared, way));
        tokio::task::yield_now().await;
    }
}
