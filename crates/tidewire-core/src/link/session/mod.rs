//! The session of a node on its link: exchanges begin and end here.

mod drain;
mod handler_alive;
mod inflate;
mod receive;
mod send;
mod shared_memory;
mod types;

use std::collections::BTreeMap;
use std::sync::Arc;

use tidewire_proto::generated::limits;
use tidewire_proto::wire::{Flags, Frame, Hello, Kind, VERSION, WireError};

use super::access::Publishing;
use super::assembly::Assemblies;
use super::flow_control::Credit;
use super::keepalive::{Keepalive, KeepaliveAction};
use super::outbox::Outbox;
use super::slots::{Mirror, SlotConflict, Slots};
use drain::DrainState;
use handler_alive::HandlerAliveTimer;

pub(in crate::link) use drain::ARRIVAL;
pub use types::{Event, Fault, Greeting, Joined, Named, OutgoingPayload, Refused, SharedPayloadArrived};

/// The name of the feature of those that read payloads in shared memory.
pub(in crate::link) const SHARED_MEMORY: &str = "shm";

/// One link of a node to its hub.
pub struct Session<C> {
    /// The send queue.
    pub out: Outbox,
    mine: Slots<OutboundExchange<C>>,
    /// The hub takes fewer exchanges of this node than of others, for the token that it joined
    /// with.
    few: bool,
    publishing: Publishing,
    theirs: Mirror<InboundExchange>,
    parts: Assemblies,
    names: BTreeMap<u32, Arc<Named>>,
    heart: Keepalive,
    heartbeat_ms: u64,
    greeting_until_us: Option<u64>,
    payload_max: usize,
    chunk_bytes: usize,
    offers_memory: bool,
    /// This node and the hub share the memory of their machine.
    shares_memory: bool,
    /// The time of the next handler-alive notices.
    telling_us: u64,
    closing: bool,
    /// The node drains: it takes no new calls, and makes only calls that its last work needs.
    leaving: bool,
    arrival: DrainState,
    /// The head of the last message that was published, which has been checked.
    checked: Vec<u8>,
}

/// An exchange that this node opened. All its frames travel in one lane, so that none overtakes
/// another.
enum OutboundExchange<C> {
    Call(C, u8, Credit),
    Subscribing(C),
    Subscribed,
    Published,
}

/// An exchange that the hub opened.
enum InboundExchange {
    /// A call that is not complete yet. So many items were requested meanwhile.
    Coming { lane: u8, requested: u32, unread: bool },
    /// An open call. Its caller may send so many items.
    Open { caller: u32, lane: u8, living: HandlerAliveTimer, input: Credit },
    /// A long message that was published.
    Published,
}

impl<C> Session<C> {
    /// Begins to join: a HELLO waits to be written.
    ///
    /// # Errors
    /// [`WireError::Limit`] if the name, the token or the secret is too long.
    pub fn join(greeting: &Greeting, now_us: u64) -> Result<Self, WireError> {
        let mut out = Outbox::new(greeting.queue_bytes);
        let payload = greeting.fields()?;
        out.control(Kind::Hello, Flags::URGENT, 0, |head| Hello::put(VERSION, VERSION, head), &payload)?;
        Ok(Self {
            out,
            mine: Slots::new(0),
            few: false,
            publishing: Publishing::default(),
            theirs: Mirror::new(greeting.in_flight),
            parts: Assemblies::new(greeting.payload_bytes),
            names: BTreeMap::new(),
            heart: Keepalive::new(greeting.heartbeat_ms, greeting.heartbeat_ms, now_us),
            heartbeat_ms: greeting.heartbeat_ms,
            greeting_until_us: Some(now_us.saturating_add(greeting.greeting_ms.saturating_mul(1_000))),
            payload_max: 0,
            chunk_bytes: greeting.chunk_bytes,
            offers_memory: greeting.place.is_some(),
            shares_memory: false,
            telling_us: u64::MAX,
            closing: false,
            leaving: false,
            arrival: DrainState::new(),
            checked: Vec::new(),
        })
    }

    /// Does what time asks for.
    ///
    /// # Errors
    /// [`Fault::Silent`] if the other side has been silent for too long.
    pub fn tick(&mut self, now_us: u64) -> Result<(), Fault> {
        if self.greeting_until_us.is_some_and(|until| now_us >= until) {
            return Err(Fault::Silent);
        }
        match self.heart.beat(now_us) {
            KeepaliveAction::Rest => Ok(()),
            KeepaliveAction::Dead => Err(Fault::Silent),
            KeepaliveAction::Ping if self.greeting_until_us.is_some() => Ok(()),
            KeepaliveAction::Ping => {
                self.tell(Kind::Ping, Flags::URGENT, drain::HEARTBEAT, 0);
                Ok(())
            }
        }
    }

    /// When [`tick`](Self::tick) has something to do next.
    pub fn next_us(&self) -> u64 {
        let due = self.heart.next_us().min(self.telling_us);
        due.min(self.greeting_until_us.unwrap_or(u64::MAX))
    }

    /// The own side does not listen at present: the other one is not silent for it.
    pub fn deaf(&mut self, now_us: u64) {
        self.heart.note_received(now_us);
    }

    /// Records a write to the wire.
    pub fn sent(&mut self, now_us: u64) {
        self.heart.sent(now_us);
        for id in self.out.ended() {
            if self.mine.remove(id).is_none() {
                self.mine.release(id);
            }
        }
    }

    /// Handles the loss of the link: every call has ended, and so has the work on open calls.
    /// Queued frames are dropped.
    pub fn lost(&mut self, events: &mut Vec<Event<C>>) {
        self.closing = true;
        for (_, mine) in self.mine.drain() {
            if let OutboundExchange::Call(call, ..) | OutboundExchange::Subscribing(call) = mine {
                events.push(Event::Lost(call));
            }
        }
        let open = self.theirs.drain().filter(|(_, theirs)| matches!(theirs, InboundExchange::Open { .. }));
        events.extend(open.map(|(id, _)| Event::Cancelled(id)));
        self.parts.clear();
        self.out.clear();
    }

    /// The name behind a number, as the hub reported it.
    pub fn name_of(&self, node: u32) -> Option<&Arc<Named>> {
        self.names.get(&node)
    }

    /// True if a call of another node has not been answered yet.
    pub fn is_open(&mut self, id: u64) -> bool {
        matches!(self.theirs.get(id), Some(InboundExchange::Open { .. }))
    }

    /// How many exchanges are open: those that this node began, and those that others did.
    pub fn open_exchanges(&self) -> (usize, usize) {
        (self.mine.len(), self.theirs.len())
    }

    /// Bytes that the long payloads on their way to this node will have when they are complete.
    pub fn coming_bytes(&self) -> usize {
        self.parts.bytes()
    }

    /// True if chunks of long payloads are on their way to this node.
    pub fn awaits_chunks(&self) -> bool {
        self.parts.awaits_chunks()
    }

    /// Writes a frame without a payload, whose head is a number or nothing.
    fn tell(&mut self, kind: Kind, flags: Flags, id: u64, number: u32) {
        let head = |out: &mut Vec<u8>| {
            if matches!(kind, Kind::Credit | Kind::Window | Kind::Alive) {
                out.extend_from_slice(&number.to_le_bytes());
            }
            Ok(())
        };
        let written = self.out.control(kind, flags, id, head, &[]);
        debug_assert!(written.is_ok(), "a head of four bytes can be written");
    }

    /// The lane of a call of this node.
    fn my_lane(&mut self, id: u64) -> Option<u8> {
        if let Some(OutboundExchange::Call(_, lane, _)) = self.mine.get(id) { Some(*lane) } else { None }
    }

    /// The lane of a call of another node.
    fn their_lane(&mut self, id: u64) -> Option<u8> {
        if let Some(InboundExchange::Coming { lane, .. } | InboundExchange::Open { lane, .. }) = self.theirs.get(id) {
            Some(*lane)
        } else {
            None
        }
    }

    /// The flags of what answers a call that is open.
    fn answer_flags(&mut self, id: u64) -> Option<Flags> {
        self.answering(id).map(|(flags, _)| flags)
    }

    /// The same, and the number of the node that called.
    fn answering(&mut self, id: u64) -> Option<(Flags, u32)> {
        let Some(InboundExchange::Open { caller, lane, .. }) = self.theirs.get(id) else { return None };
        Some((Flags::NORMAL.in_lane(*lane).with_answer(true), *caller))
    }

    fn end_mine(&mut self, id: u64) -> Option<OutboundExchange<C>> {
        let mine = self.mine.remove(id)?;
        self.forget_mine(id);
        Some(mine)
    }

    /// Ends a call of this node, and tells the other side.
    fn cancel_mine(&mut self, id: u64) -> Option<C> {
        let lane = self.my_lane(id)?;
        let Some(OutboundExchange::Call(call, ..)) = self.mine.retire(id) else { return None };
        self.forget_mine(id);
        self.out.control_last(Kind::Cancel, Flags::NORMAL.in_lane(lane), id);
        Some(call)
    }

    fn forget_mine(&mut self, id: u64) {
        self.parts.forget(id, true);
        self.out.drop_transfer(id, false);
    }

    fn end_theirs(&mut self, id: u64) {
        self.theirs.remove(id);
        self.parts.forget(id, false);
    }
}

/// A payload may be placed only between processes that share memory.
pub(super) fn check_placed(frame: &Frame<'_>, agreed: bool) -> Result<(), WireError> {
    if !frame.is_placed() {
        return Ok(());
    }
    if !agreed {
        let problem = "PLACED is set, and the feature shm was not named by both sides: send the payload in chunks";
        return Err(WireError::Unexpected { kind: frame.kind.name(), problem });
    }
    let max = limits::LINK_PLACED_BYTES.default;
    if frame.stated()?.0 > max { Err(WireError::Limit { name: "link_placed_bytes", max }) } else { Ok(()) }
}

/// The protocol error for a slot that can't be opened.
pub(super) fn taken_slot(kind: &'static str, taken: SlotConflict) -> WireError {
    match taken {
        SlotConflict::Beyond { max } => WireError::Limit { name: "link_in_flight", max: max as u64 },
        SlotConflict::InUse => WireError::Unexpected { kind, problem: "its slot is in use, or its generation is 0" },
    }
}
