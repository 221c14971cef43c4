//! Backpressure of streams: a sender of items that is faster than its link waits until more bytes
//! are written.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::call::Call;
use super::{Exchange, Shared};

/// Calls whose next item waits, each with its bytes and whom to tell. There are no more of them
/// than calls.
pub(super) type HeldBack = Vec<(u64, usize, Arc<dyn Exchange>)>;

impl Call {
    /// True if an item of so many bytes may be sent now. If not, `exchange` [is
    /// notified](Exchange::writable) once there is capacity.
    pub fn may_send_item(&self, bytes: usize, exchange: &Arc<dyn Exchange>) -> bool {
        let id = self.key.id;
        let mut state = self.link.state.lock();
        if state.epoch != self.key.epoch || state.session.may_answer_item(id, bytes) {
            return true;
        }
        if !state.held_back.iter().any(|(held_back, ..)| *held_back == id) {
            state.held_back.push((id, bytes, Arc::clone(exchange)));
        }
        self.link.holds_back.store(true, Ordering::Release);
        false
    }
}

impl Shared {
    /// Notifies the exchanges whose next items have capacity now.
    pub(super) fn let_write(&self) {
        if !self.holds_back.load(Ordering::Acquire) {
            return;
        }
        let writable = self.writable();
        writable.into_iter().for_each(|exchange| exchange.writable());
    }

    fn writable(&self) -> Vec<Arc<dyn Exchange>> {
        let mut state = self.state.lock();
        let held_back = std::mem::take(&mut state.held_back);
        let (mut writable, mut promised) = (Vec::new(), 0);
        for (id, bytes, exchange) in held_back {
            // Capacity that is promised to earlier exchanges is not available to later ones.
            if state.session.may_answer_item(id, promised + bytes) {
                promised += bytes;
                writable.push(exchange);
            } else {
                state.held_back.push((id, bytes, exchange));
            }
        }
        self.holds_back.store(!state.held_back.is_empty(), Ordering::Release);
        writable
    }
}
