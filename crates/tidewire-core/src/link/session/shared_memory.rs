//! Payloads in the memory that this node and others of its machine share.
//!
//! Nothing is read here. The caller reads the payload of [`Event::Placed`] without a lock, and
//! passes it back.

use tidewire_proto::wire::{Flags, Frame, Kind};

use super::super::assembly::{Message, Progress};
use super::{Event, OutboundExchange, Session, SharedPayloadArrived};

impl<C: Clone> Session<C> {
    /// True if calls, their answers and their items may lie in shared memory. Published messages
    /// may not.
    pub fn may_place(&self) -> bool {
        self.shares_memory
    }

    /// Memory with capacity for a payload. Append the payload and pass the memory to
    /// [`place_read`](Self::place_read). None: nobody awaits the payload any more.
    pub fn place_room(&mut self, placed: &SharedPayloadArrived) -> Option<Vec<u8>> {
        self.parts.lend(placed.id, placed.answer)
    }

    /// The payload was added to its memory; or was not, and its sender is asked to send it.
    pub fn place_read(
        &mut self,
        placed: &SharedPayloadArrived,
        room: Vec<u8>,
        now_us: u64,
        events: &mut Vec<Event<C>>,
    ) {
        let SharedPayloadArrived { id, answer, .. } = *placed;
        match self.parts.lent(id, answer, room) {
            Progress::Whole(message) if message.kind == Kind::Reply => self.taken_last(message, events),
            Progress::Whole(message) => {
                let flags = Flags::NORMAL.in_lane(message.flags.lane() as u8).with_answer(!answer);
                self.tell(Kind::Taken, flags, id, 0);
                self.complete(message, now_us, events);
            }
            progress => {
                let flags = Flags::NORMAL.in_lane(self.lane_of(id, answer)).with_answer(answer);
                let frame = Frame { kind: Kind::Chunk, flags, id, head: &[], payload: &[], bytes: &[] };
                self.progressed(&frame, progress, now_us, events);
            }
        }
    }

    /// An answer that ends its call. The slot is in use until the hub can know that.
    fn taken_last(&mut self, message: Message, events: &mut Vec<Event<C>>) {
        let id = message.id;
        let Some(lane) = self.my_lane(id) else { return };
        let Some(OutboundExchange::Call(call, ..)) = self.mine.retire(id) else { return };
        self.forget_mine(id);
        self.out.control_last(Kind::Taken, Flags::NORMAL.in_lane(lane), id);
        events.push(Event::Replied(call, message));
    }

    fn lane_of(&mut self, id: u64, answer: bool) -> u8 {
        let lane = if answer { self.my_lane(id) } else { self.their_lane(id) };
        lane.unwrap_or(Flags::NORMAL.lane() as u8)
    }
}
