//! Receive side of a session: checks each frame, updates the exchanges and adds events.

use std::sync::Arc;

use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::generated::limits;
use tidewire_proto::wire::{
    self, BegunChunk, CallHead, FRAME_HEAD, FailHead, Fields, Flags, Frame, Kind, LENGTH_BYTES, VERSION, Welcome,
    WireError,
};

use super::super::access::Publishing;
use super::super::assembly::{Message, Progress};
use super::super::compression::too_long;
use super::super::flow_control::Credit;
use super::super::keepalive::Keepalive;
use super::{
    Event, Fault, InboundExchange, Joined, Named, OutboundExchange, SHARED_MEMORY, Session, SharedPayloadArrived,
    check_placed, taken_slot,
};

impl<C: Clone> Session<C> {
    /// Takes a frame, and adds its events to `events`. If the frame holds a part of a compressed
    /// payload, [inflate](Self::to_inflate) that part before the next frame; otherwise the next
    /// call does so.
    ///
    /// # Errors
    /// [`Fault`] if the link can't go on.
    pub fn received(&mut self, frame: &Frame<'_>, now_us: u64, events: &mut Vec<Event<C>>) -> Result<(), Fault> {
        self.heart.note_received(now_us);
        self.inflate(now_us, events);
        if frame.kind == Kind::Error {
            let number = FailHead::parse(frame.head)?.number;
            return Err(Fault::Told { number, text: String::from_utf8_lossy(frame.payload).into_owned() });
        }
        if self.greeting_until_us.is_some() {
            return self.welcomed(frame, now_us, events);
        }
        self.check(frame)?;
        check_placed(frame, self.shares_memory)?;
        match frame.kind {
            Kind::Ping => self.tell(Kind::Pong, Flags::URGENT, frame.id, 0),
            Kind::Pong => self.answered_ping(frame.id),
            Kind::Goodbye => events.push(Event::Goodbye),
            Kind::Node => self.named(frame, events)?,
            Kind::Ok => self.subscribed(frame.id, events),
            Kind::Window => self.out.window(frame.id, !frame.flags.answer(), wire::read_u32("WINDOW", frame.head)?),
            Kind::Taken => self.out.end_shared(frame.id, !frame.flags.answer()),
            Kind::Credit => self.credit(frame, events)?,
            Kind::Call | Kind::Publish | Kind::Reply | Kind::Fail | Kind::Item | Kind::Chunk => {
                self.payload(frame, now_us, events)?
            }
            Kind::End => self.end(frame, events),
            Kind::Alive => self.is_alive(frame.id, wire::read_u32("ALIVE", frame.head)?, events),
            Kind::Cancel => self.cancelled(frame.id, events),
            Kind::Hello | Kind::Welcome | Kind::Error | Kind::Subscribe | Kind::Unsubscribe => {
                let problem = "a hub does not send this to a node that has joined";
                return Err(WireError::Unexpected { kind: frame.kind.name(), problem }.into());
            }
        }
        if self.out.is_choked() {
            // The peer asks for answers and does not read them.
            return Err(WireError::Limit { name: "link_queue_bytes", max: self.out.bytes_max() as u64 }.into());
        }
        Ok(())
    }

    /// Checks a frame. Most messages have the head of the one before.
    fn check(&mut self, frame: &Frame<'_>) -> Result<(), WireError> {
        let is_message = frame.kind == Kind::Publish && !frame.flags.more() && !frame.flags.answer();
        if is_message && !self.checked.is_empty() && self.checked == frame.head {
            return Ok(());
        }
        frame.check()?;
        if is_message {
            self.checked.clear();
            self.checked.extend_from_slice(frame.head);
        }
        Ok(())
    }

    fn welcomed(&mut self, frame: &Frame<'_>, now_us: u64, events: &mut Vec<Event<C>>) -> Result<(), Fault> {
        let welcome = Welcome::parse(frame)?;
        if welcome.version != VERSION {
            let problem = "its version is not one that was offered";
            return Err(WireError::Malformed { kind: "WELCOME", problem }.into());
        }
        let fields = welcome.fields;
        let number = |name: &str, limit: limits::Limit| fields.number(name).unwrap_or(limit.default);
        self.payload_max = usize::try_from(number("payload-bytes", limits::PAYLOAD_BYTES)).unwrap_or(usize::MAX);
        let in_flight = number("in-flight", limits::LINK_IN_FLIGHT).min(limits::LINK_IN_FLIGHT.max);
        self.mine.limit(in_flight as usize);
        self.few = fields.has_word("of-token", "in-flight");
        self.publishing = Publishing::stated(fields.text("publish"));
        let frame_bytes = number("frame-bytes", limits::LINK_FRAME_BYTES);
        self.out.chunk_bytes(chunk_bytes(frame_bytes).min(self.chunk_bytes));
        let theirs_ms = number("heartbeat-ms", limits::LINK_HEARTBEAT_MS).max(limits::LINK_HEARTBEAT_MS.min);
        // This node pings as often as it expects a frame: the hub answers each PING.
        self.heart = Keepalive::new(self.heartbeat_ms, theirs_ms.min(self.heartbeat_ms), now_us);
        self.shares_memory = self.offers_memory && fields.has_word("features", SHARED_MEMORY);
        self.greeting_until_us = None;
        events.push(Event::Joined(Joined {
            hub: fields.text("name").unwrap_or_default().to_owned(),
            resume: fields.text("resume").unwrap_or_default().to_owned(),
            node: fields.number("node").and_then(|node| u32::try_from(node).ok()).unwrap_or(0),
            payload_bytes: self.payload_max,
            run: fields.text("run").unwrap_or_default().to_owned(),
        }));
        if self.leaving {
            self.tell(Kind::Goodbye, Flags::URGENT, 0, 0);
        }
        Ok(())
    }

    /// A name for a number; a number without a name has gone.
    fn named(&mut self, frame: &Frame<'_>, events: &mut Vec<Event<C>>) -> Result<(), WireError> {
        let node = wire::read_u32("NODE", frame.head)?;
        let fields = Fields::parse("NODE", frame.payload)?;
        let Some(name) = fields.text("name") else {
            if self.names.remove(&node).is_some() {
                events.push(Event::Left(node));
            }
            return Ok(());
        };
        if self.names.len() >= limits::HUB_LINKS.max as usize {
            return Err(WireError::Limit { name: "hub_links", max: limits::HUB_LINKS.max });
        }
        let user = fields.text("user").unwrap_or_default().to_owned();
        self.names.insert(node, Arc::new(Named { name: name.to_owned(), user }));
        Ok(())
    }

    fn subscribed(&mut self, id: u64, events: &mut Vec<Event<C>>) {
        let Some(mine @ OutboundExchange::Subscribing(_)) = self.mine.get(id) else { return };
        if let OutboundExchange::Subscribing(call) = std::mem::replace(mine, OutboundExchange::Subscribed) {
            events.push(Event::Subscribed(call));
        }
    }

    fn credit(&mut self, frame: &Frame<'_>, events: &mut Vec<Event<C>>) -> Result<(), WireError> {
        let items = wire::read_u32("CREDIT", frame.head)?;
        if frame.flags.answer() {
            if let Some(OutboundExchange::Call(call, ..)) = self.mine.get(frame.id) {
                events.push(Event::Credited(call.clone(), items));
            }
            return Ok(());
        }
        match self.theirs.get(frame.id) {
            Some(InboundExchange::Open { .. }) => events.push(Event::Wanted(frame.id, items)),
            Some(InboundExchange::Coming { requested, unread, .. }) => {
                *requested = requested.saturating_add(items);
                *unread |= items == 0;
            }
            Some(InboundExchange::Published) | None => {}
        }
        Ok(())
    }

    /// A frame with a payload, or with a part of one.
    fn payload(&mut self, frame: &Frame<'_>, now_us: u64, events: &mut Vec<Event<C>>) -> Result<(), WireError> {
        if !self.expects(frame)? {
            return Ok(());
        }
        let progress = self.parts.take(frame)?;
        self.progressed(frame, progress, now_us, events);
        Ok(())
    }

    /// Calls `read` to write the bytes of a chunk to their destination. `read` returns the number
    /// of bytes; the caller passes it to [`filled`](Self::filled). None: the chunk has no
    /// destination, and must be [`received`](Self::received) to be skipped or refused.
    pub fn fill<E>(
        &mut self,
        chunk: &BegunChunk,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Option<Result<usize, E>> {
        self.parts.fill((chunk.id, chunk.flags.answer()), chunk.left, read)
    }

    /// So much of a chunk lies where it belongs, which counts as a chunk of its own; also in what
    /// is [to be inflated](Self::to_inflate) now.
    ///
    /// # Errors
    /// As for [`received`](Self::received).
    pub fn filled(
        &mut self,
        chunk: &mut BegunChunk,
        count: usize,
        now_us: u64,
        events: &mut Vec<Event<C>>,
    ) -> Result<(), Fault> {
        self.heart.note_received(now_us);
        self.inflate(now_us, events);
        let (id, flags) = (chunk.id, chunk.take(count));
        let progress = self.parts.filled(id, flags, count)?;
        let frame = Frame { kind: Kind::Chunk, flags, id, head: &[], payload: &[], bytes: &[] };
        self.progressed(&frame, progress, now_us, events);
        Ok(())
    }

    pub(super) fn progressed(
        &mut self,
        frame: &Frame<'_>,
        progress: Progress,
        now_us: u64,
        events: &mut Vec<Event<C>>,
    ) {
        match progress {
            Progress::Whole(message) => self.complete(message, now_us, events),
            Progress::More | Progress::Skipped => {}
            Progress::Placed(place, bytes) => {
                let (id, answer) = (frame.id, frame.flags.answer());
                events.push(Event::Placed(SharedPayloadArrived { place, bytes, id, answer }));
            }
            Progress::Ask(bytes) => {
                let flags = Flags::NORMAL.in_lane(frame.flags.lane() as u8).with_answer(!frame.flags.answer());
                self.tell(Kind::Window, flags, frame.id, bytes);
            }
            Progress::TooLong { bytes } => {
                let text = too_long(bytes, self.parts.payload_max());
                self.turn_away(frame, ErrorCode::PayloadTooLarge, &text, events);
            }
            Progress::TooMany { bytes } => {
                let text =
                    format!("{bytes} bytes and what else is on its way are too much for the receiver: try again later");
                self.turn_away(frame, ErrorCode::LimitExceeded, &text, events);
            }
        }
    }

    /// Opens the exchange of a frame with a payload, or looks for it. False: it has ended, and the
    /// frame is skipped.
    fn expects(&mut self, frame: &Frame<'_>) -> Result<bool, WireError> {
        let (id, lane) = (frame.id, frame.flags.lane() as u8);
        let theirs = match frame.kind {
            Kind::Call => InboundExchange::Coming { lane, requested: 0, unread: false },
            Kind::Publish if frame.flags.more() => InboundExchange::Published,
            Kind::Publish => return Ok(true),
            Kind::Fail => return Ok(self.mine.get(id).is_some()),
            Kind::Item => return self.may_send(frame),
            _ if frame.flags.answer() => return Ok(self.my_lane(id).is_some()),
            _ => return Ok(self.theirs.get(id).is_some()),
        };
        self.theirs.insert(id, theirs).map_err(|taken| taken_slot(frame.kind.name(), taken))?;
        Ok(true)
    }

    /// An item comes on credit, whichever side sends it. False: its exchange has ended.
    fn may_send(&mut self, frame: &Frame<'_>) -> Result<bool, WireError> {
        let credit = if frame.flags.answer() {
            if let Some(OutboundExchange::Call(_, _, credit)) = self.mine.get(frame.id) { Some(credit) } else { None }
        } else if let Some(InboundExchange::Open { input, .. }) = self.theirs.get(frame.id) {
            Some(input)
        } else {
            None
        };
        credit.map_or(Ok(false), |credit| credit.take().map(|()| true))
    }

    pub(super) fn complete(&mut self, message: Message, now_us: u64, events: &mut Vec<Event<C>>) {
        let id = message.id;
        match message.kind {
            Kind::Call => self.called(message, now_us, events),
            Kind::Publish => {
                if let Some(InboundExchange::Published) = self.theirs.get(id) {
                    self.theirs.remove(id);
                }
                events.push(Event::Published(message));
            }
            Kind::Item if !message.flags.answer() => events.push(Event::Input(message)),
            Kind::Item => {
                if let Some(OutboundExchange::Call(call, ..)) = self.mine.get(id) {
                    events.push(Event::Item(call.clone(), message));
                }
            }
            Kind::Reply => {
                if let Some(OutboundExchange::Call(call, ..)) = self.end_mine(id) {
                    events.push(Event::Replied(call, message));
                }
            }
            _ => self.failed(message, events),
        }
    }

    fn called(&mut self, message: Message, now_us: u64, events: &mut Vec<Event<C>>) {
        let id = message.id;
        let Some(&mut InboundExchange::Coming { lane, requested, unread }) = self.theirs.get(id) else { return };
        let living = self.begin_living(message.head(), now_us);
        let caller = CallHead::parse(message.head()).map_or(0, |head| head.origin);
        if let Some(theirs) = self.theirs.get(id) {
            *theirs = InboundExchange::Open { caller, lane, living, input: Credit::default() };
        }
        if self.leaving || self.closing {
            let flags = Flags::NORMAL.in_lane(lane).with_answer(true);
            self.fail_short(id, flags, ErrorCode::NodeStopped, b"the node takes no new calls");
            return self.end_theirs(id);
        }
        events.push(Event::Called(message));
        if requested > 0 {
            events.push(Event::Wanted(id, requested));
        }
        if unread {
            events.push(Event::Wanted(id, 0));
        }
    }

    fn failed(&mut self, message: Message, events: &mut Vec<Event<C>>) {
        let Ok(head) = FailHead::parse(message.head()) else { return };
        if let Some(OutboundExchange::Call(call, ..) | OutboundExchange::Subscribing(call)) = self.end_mine(message.id)
        {
            events.push(Event::Failed(call, head.number, message));
        }
    }

    /// Refuses a payload. Its sender gets an error, and so does the call of this node that waits
    /// for it.
    pub(super) fn turn_away(&mut self, frame: &Frame<'_>, code: ErrorCode, text: &str, events: &mut Vec<Event<C>>) {
        let id = frame.id;
        if frame.flags.answer() {
            let Some(call) = self.cancel_mine(id) else { return };
            let flags = Flags::NORMAL.with_answer(true);
            let fail = Frame { kind: Kind::Fail, flags, payload: text.as_bytes(), ..*frame };
            return events.push(Event::Failed(call, code.number(), Message::whole(&fail)));
        }
        if self.theirs.get(id).is_none() {
            return;
        }
        if self.is_open(id) {
            events.push(Event::Cancelled(id));
        }
        let flags = Flags::NORMAL.in_lane(frame.flags.lane() as u8).with_answer(true);
        self.fail_short(id, flags, code, text.as_bytes());
        self.end_theirs(id);
    }

    fn end(&mut self, frame: &Frame<'_>, events: &mut Vec<Event<C>>) {
        if !frame.flags.answer() {
            if self.is_open(frame.id) {
                events.push(Event::InputOver(frame.id));
            }
        } else if self.my_lane(frame.id).is_some()
            && let Some(OutboundExchange::Call(call, ..)) = self.end_mine(frame.id)
        {
            events.push(Event::Over(call));
        }
    }

    fn is_alive(&mut self, id: u64, blocked_ms: u32, events: &mut Vec<Event<C>>) {
        if let Some(OutboundExchange::Call(call, ..)) = self.mine.get(id) {
            events.push(Event::Alive(call.clone(), blocked_ms));
        }
    }

    fn cancelled(&mut self, id: u64, events: &mut Vec<Event<C>>) {
        // Its answer may be under way although the call is no longer open here.
        self.out.drop_transfer(id, true);
        if self.is_open(id) {
            events.push(Event::Cancelled(id));
        }
        self.end_theirs(id);
    }
}

/// The longest payload of a frame of so many bytes with a head of the greatest length.
fn chunk_bytes(frame_bytes: u64) -> usize {
    let rest = frame_bytes.saturating_sub((FRAME_HEAD - LENGTH_BYTES) as u64 + limits::LINK_HEAD_BYTES.default);
    rest.clamp(limits::LINK_CHUNK_BYTES.min, limits::LINK_CHUNK_BYTES.max) as usize
}
