//! How a node leaves: it takes no new calls, and sees that what it has said has arrived.

use tidewire_proto::wire::{Flags, Kind};

use super::Session;

/// The numbers of PING: a sign of life, and the question whether all has arrived.
pub(super) const HEARTBEAT: u64 = 1;
pub(in crate::link) const ARRIVAL: u64 = 2;

/// Whether the other side has read all that was sent.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    #[default]
    NotAsked,
    Asked,
    Told,
}

impl<C> Session<C> {
    /// Takes no new calls from now on, and makes none; those in progress go on.
    pub fn goodbye(&mut self) {
        self.closing = true;
        if self.greeting_until_us.is_none() {
            self.tell(Kind::Goodbye, Flags::URGENT, 0, 0);
        }
    }

    /// Whether the other side has read all that was sent, but for long payloads of calls that this side makes. It is asked once
    /// there is nothing else to send: then there is something to write.
    pub fn has_arrived(&mut self) -> bool {
        if self.out.owes() {
            // The question itself, or what was sent after it was answered.
            if self.arrival == Arrival::Told {
                self.arrival = Arrival::NotAsked;
            }
            return false;
        }
        if self.arrival == Arrival::NotAsked {
            self.arrival = Arrival::Asked;
            self.tell(Kind::Ping, Flags::URGENT, ARRIVAL, 0);
        }
        self.arrival == Arrival::Told
    }

    pub(super) fn answered_ping(&mut self, number: u64) {
        if number == ARRIVAL && self.arrival == Arrival::Asked {
            self.arrival = Arrival::Told;
        }
    }
}
