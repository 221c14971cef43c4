//! The drain of a node: it takes no new calls, and waits until the other side has read its frames.

use tidewire_proto::wire::{Flags, Kind};

use super::super::outbox::FlushMark;
use super::Session;

/// The numbers of PING: a sign of life, and from the second one on the question whether all has
/// arrived.
pub(super) const HEARTBEAT: u64 = 1;
pub(in crate::link) const ARRIVAL: u64 = 2;

/// Progress of the check that the other side has read everything.
pub(super) struct DrainState {
    /// Of the last question, or the next.
    number: u64,
    /// Up to where the outbox was filled when it was asked; None before that.
    mark: Option<FlushMark>,
    answered: bool,
}

impl DrainState {
    pub fn new() -> Self {
        Self { number: ARRIVAL, mark: None, answered: false }
    }
}

impl<C> Session<C> {
    /// Takes no new calls from now on; those in progress go on, and so do those that this side
    /// makes meanwhile.
    pub fn goodbye(&mut self) {
        self.leaving = true;
        if self.greeting_until_us.is_none() {
            self.tell(Kind::Goodbye, Flags::URGENT, 0, 0);
        }
    }

    /// True if the other side has read all that was sent, except long payloads of this side's own
    /// calls. The question is sent once nothing else waits: then there is something to write.
    pub fn has_arrived(&mut self) -> bool {
        if self.out.owes() {
            return false;
        }
        if self.arrival.mark.is_some_and(|mark| mark == self.out.filled()) {
            return self.arrival.answered;
        }
        // The answer to the last question does not cover frames that were sent after it.
        let number = self.arrival.number + u64::from(self.arrival.mark.is_some());
        self.tell(Kind::Ping, Flags::URGENT, number, 0);
        self.arrival = DrainState { number, mark: Some(self.out.filled()), answered: false };
        false
    }

    pub(super) fn answered_ping(&mut self, number: u64) {
        self.arrival.answered |= self.arrival.mark.is_some() && number == self.arrival.number;
    }
}
