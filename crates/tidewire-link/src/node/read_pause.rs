//! Read pause: a node receives nothing while its handlers are behind.

use std::sync::atomic::Ordering;

use super::Shared;
use super::connection::Transport;

impl Shared {
    pub(super) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }

    pub(super) fn pause(&self) {
        if self.paused.swap(true, Ordering::AcqRel) {
            return;
        }
        // The thread of the links may be waiting for something to read.
        if let Some(connection) = &*self.connection.lock() {
            connection.turn.changed.notify_one();
        }
    }

    pub(super) fn listen_again(&self) {
        if !self.paused.swap(false, Ordering::AcqRel) {
            return;
        }
        let connection = self.connection.lock().clone();
        match connection.as_deref().map(|connection| &connection.kind) {
            Some(Transport::Local(end)) => {
                end.resume();
                self.work_on_placed();
            }
            Some(_) => connection.iter().for_each(|connection| connection.turn.changed.notify_one()),
            None => {}
        }
    }
}
