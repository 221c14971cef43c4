//! The end of a node's link: closed by its node, or lost.

use tidewire_core::link::session::Fault;

use super::{CloseOnDrop, Shared};

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.close();
        }
    }
}

impl Shared {
    pub(super) fn close(&self) {
        self.state.lock().ended = true;
        self.ends.notify_one();
        let connection = self.connection.lock().take();
        if let Some(connection) = connection {
            connection.end.notify_one();
        }
        self.lost();
        self.give_up_subscribing();
    }

    /// Ends every exchange and notifies its waiter.
    pub(super) fn lost(&self) {
        let mut events = Vec::new();
        let (was_joined, _held_back) = {
            let mut state = self.state.lock();
            state.session.lost(&mut events);
            state.welcome = None;
            // Each held-back exchange is notified that its call has ended.
            (state.joined.take().is_some(), std::mem::take(&mut state.held_back))
        };
        events.into_iter().for_each(|event| self.tell(event));
        self.idle.tell();
        if was_joined && let Some(on_lost) = &*self.on_lost.lock() {
            on_lost();
        }
    }

    pub(super) fn broken(&self, fault: Fault) {
        let welcome = self.state.lock().welcome.take();
        if let Some(welcome) = welcome {
            let _ = welcome.send(Err(fault));
        }
        self.lost();
    }
}
