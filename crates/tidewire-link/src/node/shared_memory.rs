//! Long payloads of a node in the memory that the processes of a host share.
//!
//! The thread of the links places and reads these payloads, so that an event loop goes on with
//! other work. Between two of them, that thread looks at the socket.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use tidewire_core::link::outbox::{PendingSharedPayload, SharedPayload};
use tidewire_core::link::session::SharedPayloadArrived;

use super::connection::{Connection, Transport};
use super::{CallKey, Shared};
use crate::clock::now_us;
use crate::shared_memory;

/// Each with the connection that it came over. There are no more of them than exchanges, and no
/// more bytes than a node takes at once.
pub(super) type SharedReads = VecDeque<(SharedPayloadArrived, u32)>;

impl Shared {
    /// A payload is to be read where it lies.
    pub(super) fn placed(&self, placed: SharedPayloadArrived, epoch: u32) {
        self.placed.lock().push_back((placed, epoch));
        self.work_on_placed();
    }

    /// Marks that a payload is to be placed in shared memory.
    pub(super) fn lays(&self) {
        if !self.lays.swap(true, Ordering::AcqRel) {
            self.work_on_placed();
        }
    }

    /// Has the thread of the links check for payloads to place in shared memory, or to read there.
    pub(super) fn work_on_placed(&self) {
        match &self.place {
            // Nobody looks after a link inside of one process.
            Some(place) if self.has_placed() => place.spawn(work_on_all_placed(self.me.clone())),
            Some(_) => {}
            None => self.wakeup.notify_one(),
        }
    }

    /// True if payloads wait to be placed in shared memory, or to be read there.
    pub(super) fn has_placed(&self) -> bool {
        self.lays.load(Ordering::Acquire) || !self.is_paused() && !self.placed.lock().is_empty()
    }

    /// Lays one payload in shared memory, and reads one there.
    pub(super) fn work_on_next_placed(self: &Arc<Self>, connection: &Connection) {
        self.lay_next();
        if !self.is_paused() {
            self.read_next_placed(connection);
        }
        self.flush();
    }

    fn lay_next(&self) {
        let (epoch, next) = {
            let mut state = self.state.lock();
            let next = state.session.out.next_to_lay();
            // Under the lock: a sender that adds a payload after this sets the flag again.
            self.lays.store(state.session.out.has_to_lay(), Ordering::Release);
            (state.epoch, next)
        };
        let (Some(PendingSharedPayload { id, answer, payload }), Some(memory)) = (next, &self.memory) else { return };
        let shared = memory.lay(&*payload).map(|(place, lying)| SharedPayload { payload: Box::new(lying), place });
        self.shared_payloads.fetch_add(u64::from(shared.is_some()), Ordering::Relaxed);
        // The original payload is released now, if it lies in shared memory.
        drop(payload);
        self.with(CallKey { epoch, id }, |session| session.out.lay(id, answer, shared));
    }

    fn read_next_placed(self: &Arc<Self>, connection: &Connection) {
        let next = self.placed.lock().pop_front();
        let Some((placed, epoch)) = next else { return };
        let key = CallKey { epoch, id: 0 };
        let Some(Some(mut buffer)) = self.with(key, |session| session.place_buffer(&placed)) else { return };
        let begin = buffer.len();
        if !shared_memory::read(&placed.place, placed.bytes, &mut buffer) {
            buffer.truncate(begin);
        }
        let hand_on = || {
            let mut events = Vec::new();
            self.with(key, |session| session.place_read(&placed, buffer, now_us(), &mut events));
            self.happened(events, epoch);
        };
        // Others may give the session frames meanwhile, and what comes next may be the end of this
        // call.
        match &connection.kind {
            Transport::Local(end) => end.in_order(hand_on),
            Transport::Plain(_) | Transport::Layered(_) => {
                let order = connection.turn.in_order();
                hand_on();
                drop(order);
            }
        }
    }
}

/// For a link inside of one process, on the thread of the links of its hub.
async fn work_on_all_placed(shared: Weak<Shared>) {
    while let Some(shared) = shared.upgrade().filter(|shared| shared.has_placed()) {
        let connection = shared.connection.lock().clone();
        let Some(connection) = connection else { return };
        shared.work_on_next_placed(&connection);
        drop((shared, connection));
        tokio::task::yield_now().await;
    }
}
