//! Send side of a session: calls, subscriptions, messages, answers and items.

use std::borrow::Cow;

use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::{CallHead, Flags, Kind, PublishHead, SubscribeHead, WireError};

use super::super::flow_control::Credit;
use super::super::outbox::{Payload, PayloadParts};
use super::{InboundExchange, OutboundExchange, OutgoingPayload, Refused, Session};

/// The error text for a caller whose unread answer was dropped to free capacity.
const UNTAKEN: &[u8] =
    b"link_queue_bytes: the answer was not taken, and others need the room: read faster, or ask for less at a time";

impl<C> Session<C> {
    /// Calls, and answers with the id of the exchange. All its frames travel in the lane of the
    /// call.
    ///
    /// # Errors
    /// [`Refused`] if it can't be sent.
    pub fn call(
        &mut self,
        head: &CallHead<'_>,
        flags: Flags,
        payload: OutgoingPayload<'_>,
        call: C,
    ) -> Result<u64, Refused> {
        let mine = OutboundExchange::Call(call, flags.lane() as u8, Credit::new(head.credit));
        self.open(mine, payload, Kind::Call, flags, |out| head.put(out))
    }

    /// Subscribes; [`Event::Subscribed`](super::Event::Subscribed) says when it is in force.
    ///
    /// # Errors
    /// [`Refused`] if it can't be sent.
    pub fn subscribe(&mut self, head: &SubscribeHead<'_>, fields: &[u8], call: C) -> Result<u64, Refused> {
        self.subscribe_with(Flags::NORMAL, head, fields, call)
    }

    /// As [`subscribe`](Self::subscribe), for a listener: it gets messages and no calls.
    ///
    /// # Errors
    /// [`Refused`] if it can't be sent.
    pub fn listen(&mut self, head: &SubscribeHead<'_>, fields: &[u8], call: C) -> Result<u64, Refused> {
        self.subscribe_with(Flags::NORMAL.with_again(true), head, fields, call)
    }

    fn subscribe_with(
        &mut self,
        flags: Flags,
        head: &SubscribeHead<'_>,
        fields: &[u8],
        call: C,
    ) -> Result<u64, Refused> {
        self.may_open(fields.len())?;
        let head = |out: &mut Vec<u8>| head.put(out);
        self.opened(OutboundExchange::Subscribing(call), |session, id| {
            Ok(session.out.send(Kind::Subscribe, flags, id, head, fields)?)
        })
    }

    /// Ends a subscription.
    pub fn unsubscribe(&mut self, id: u64) {
        if let Some(OutboundExchange::Subscribing(_) | OutboundExchange::Subscribed) = self.mine.get(id) {
            self.mine.retire(id);
            self.out.control_last(Kind::Unsubscribe, Flags::NORMAL, id);
        }
    }

    /// Publishes.
    ///
    /// # Errors
    /// [`Refused`] if it can't be sent, or the hub has said that this node may not publish there.
    pub fn publish(
        &mut self,
        head: &PublishHead<'_>,
        flags: Flags,
        payload: OutgoingPayload<'_>,
    ) -> Result<(), Refused> {
        self.publishing.check(head.subject).map_err(|allowed| Refused::Unauthorized { allowed })?;
        if matches!(payload, OutgoingPayload::Long(_) | OutgoingPayload::Lay(_))
            || self.out.is_long(payload.sent_bytes())
        {
            return self
                .open(OutboundExchange::Published, payload, Kind::Publish, flags, |out| head.put(out))
                .map(drop);
        }
        self.may_open(payload.bytes())?;
        self.put(Kind::Publish, flags, (0, 0), |out| head.put(out), payload)
    }

    /// Cancels a call of this node. No further event of the call follows.
    pub fn cancel(&mut self, id: u64) {
        self.cancel_mine(id);
    }

    /// Answers a call, which ends it.
    ///
    /// # Errors
    /// [`Refused`] if it can't be sent. The call is still open then, unless it had ended.
    pub fn reply(&mut self, id: u64, flags: Flags, payload: OutgoingPayload<'_>) -> Result<(), Refused> {
        self.answer(Kind::Reply, id, flags, payload)?;
        self.end_theirs(id);
        Ok(())
    }

    /// Ends a call with an error. An error that is too long for the link is replaced by a short
    /// one.
    ///
    /// # Errors
    /// [`Refused::Over`] if the call has ended.
    pub fn fail(&mut self, id: u64, code: ErrorCode, payload: OutgoingPayload<'_>) -> Result<(), Refused> {
        let (flags, called) = self.answering(id).ok_or(Refused::Over)?;
        let flags = flags.with_compressed(matches!(payload, OutgoingPayload::Packed(_)));
        match self.cut(payload) {
            FramedPayload::Short(text) => self.fail_short(id, flags, code, &text),
            FramedPayload::Pieces(payload) => self.fail_short(id, flags, code, &whole(payload)),
            FramedPayload::Long(payload) | FramedPayload::Lay(payload) => {
                let bytes = payload.bytes();
                self.make_room(bytes, called);
                let fits = bytes <= self.payload_max;
                if !fits || self.out.send_long(Kind::Fail, flags, id, fail_head(code), payload, called).is_err() {
                    let text = format!("{}: its {bytes} bytes found no room on the link", code.as_str());
                    self.fail_short(id, flags.with_compressed(false), ErrorCode::LimitExceeded, text.as_bytes());
                }
            }
        }
        self.end_theirs(id);
        Ok(())
    }

    /// True if an item of an answer may be sent now; else try again after further writes. Also true
    /// for a call that has ended: sending the item then fails.
    pub fn may_answer_item(&mut self, id: u64, bytes: usize) -> bool {
        let Some((_, called)) = self.answering(id) else { return true };
        self.make_room(bytes, called);
        !self.out.holds_back(id, bytes, called)
    }

    /// Sends one item of an answer. The caller minds the credit, and whether it
    /// [may](Self::may_answer_item).
    ///
    /// # Errors
    /// As for [`reply`](Self::reply).
    pub fn answer_item(&mut self, id: u64, flags: Flags, payload: OutgoingPayload<'_>) -> Result<(), Refused> {
        self.answer(Kind::Item, id, flags, payload)
    }

    /// Ends the items of an answer, and with them the call.
    pub fn answer_over(&mut self, id: u64) {
        if let Some(flags) = self.answer_flags(id) {
            self.end_theirs(id);
            self.tell(Kind::End, flags, id, 0);
        }
    }

    /// Notifies the caller that the handler of its call is still working.
    pub fn alive(&mut self, id: u64) {
        if let Some(flags) = self.answer_flags(id) {
            self.tell(Kind::Alive, flags, id, 0);
        }
    }

    /// Gives the caller of an open call credit for so many further items.
    pub fn want_input(&mut self, id: u64, items: u32) {
        if let Some(InboundExchange::Open { input, .. }) = self.theirs.get(id) {
            input.give(items);
        }
        if let Some(flags) = self.answer_flags(id) {
            self.tell(Kind::Credit, flags, id, items);
        }
    }

    /// Sends one item to the callee. The caller minds the credit.
    ///
    /// # Errors
    /// [`Refused`] if it can't be sent.
    pub fn item(&mut self, id: u64, flags: Flags, payload: OutgoingPayload<'_>) -> Result<(), Refused> {
        let lane = self.my_lane(id).ok_or(Refused::Over)?;
        self.fits(payload.bytes())?;
        self.put(Kind::Item, flags.in_lane(lane), (id, 0), |_| Ok(()), payload)
    }

    /// Sends no more items to the callee.
    pub fn over(&mut self, id: u64) {
        if let Some(lane) = self.my_lane(id) {
            self.tell(Kind::End, Flags::NORMAL.in_lane(lane), id, 0);
        }
    }

    /// Gives credit for so many further items of the answer to a call; 0: takes no more, and the
    /// other side shall end the call.
    pub fn want(&mut self, id: u64, items: u32) {
        if let Some(OutboundExchange::Call(_, lane, credit)) = self.mine.get(id) {
            credit.give(items);
            let flags = Flags::NORMAL.in_lane(*lane);
            self.tell(Kind::Credit, flags, id, items);
        }
    }

    /// Closes the link with a reason. Nothing else can be sent then.
    pub fn close(&mut self, code: ErrorCode, text: &str) {
        self.closing = true;
        let _ = self.out.control(Kind::Error, Flags::URGENT, 0, fail_head(code), text.as_bytes());
    }

    /// Fails a call, after the items before it. This works without capacity: otherwise a call that
    /// found none could not be failed.
    pub(super) fn fail_short(&mut self, id: u64, flags: Flags, code: ErrorCode, text: &[u8]) {
        let written = self.out.control(Kind::Fail, flags, id, fail_head(code), text);
        debug_assert!(written.is_ok(), "a text that is not cut fits a frame");
    }

    fn open(
        &mut self,
        mine: OutboundExchange<C>,
        payload: OutgoingPayload<'_>,
        kind: Kind,
        flags: Flags,
        head: impl FnOnce(&mut Vec<u8>) -> Result<(), WireError>,
    ) -> Result<u64, Refused> {
        self.may_open(payload.bytes())?;
        self.opened(mine, |session, id| session.put(kind, flags, (id, 0), head, payload))
    }

    fn opened(
        &mut self,
        mine: OutboundExchange<C>,
        send: impl FnOnce(&mut Self, u64) -> Result<(), Refused>,
    ) -> Result<u64, Refused> {
        let (max, of_token) = (self.mine.max(), self.few);
        let id = self.mine.insert(mine).map_err(|_| Refused::InFlight { max, of_token })?;
        if let Err(refused) = send(self, id) {
            self.mine.remove(id);
            return Err(refused);
        }
        Ok(id)
    }

    fn answer(&mut self, kind: Kind, id: u64, flags: Flags, payload: OutgoingPayload<'_>) -> Result<(), Refused> {
        let (answers, called) = self.answering(id).ok_or(Refused::Over)?;
        self.fits(payload.bytes())?;
        let flags = flags.in_lane(answers.lane() as u8).with_answer(true);
        self.put(kind, flags, (id, called), |_| Ok(()), payload)
    }

    /// Adds a frame of an exchange, which answers a call of a node, or of nobody.
    fn put(
        &mut self,
        kind: Kind,
        flags: Flags,
        (id, called): (u64, u32),
        head: impl FnOnce(&mut Vec<u8>) -> Result<(), WireError>,
        payload: OutgoingPayload<'_>,
    ) -> Result<(), Refused> {
        let flags = flags.with_compressed(flags.compressed() || matches!(payload, OutgoingPayload::Packed(_)));
        self.make_room(payload.sent_bytes(), called);
        let sent = match self.cut(payload) {
            FramedPayload::Short(payload) => self.out.send(kind, flags, id, head, &payload),
            FramedPayload::Pieces(payload) => self.out.send_pieces(kind, flags, id, head, payload),
            FramedPayload::Lay(payload) if kind != Kind::Publish => {
                self.out.send_to_lay(kind, flags, id, head, payload, called)
            }
            FramedPayload::Long(payload) | FramedPayload::Lay(payload) => {
                self.out.send_long(kind, flags, id, head, payload, called)
            }
        };
        sent.map_err(Refused::from)
    }

    /// Frees capacity for a payload, if there is none, at the cost of nodes that don't read their
    /// answers: those answers fail.
    fn make_room(&mut self, payload: usize, called: u32) {
        if self.out.has_room(payload) {
            return;
        }
        for (id, flags) in self.out.make_room(payload, called) {
            let flags = flags.with_more(false).with_compressed(false);
            self.fail_short(id, flags, ErrorCode::LimitExceeded, UNTAKEN);
        }
    }

    /// Prepares a payload for sending. A payload that is too long for one frame is copied, so that
    /// it can be sent in chunks; a shorter one is not split.
    fn cut<'a>(&self, payload: OutgoingPayload<'a>) -> FramedPayload<'a> {
        let bytes = match payload {
            OutgoingPayload::Long(payload) => return FramedPayload::Long(payload),
            OutgoingPayload::Lay(payload) if self.shares_memory => return FramedPayload::Lay(payload),
            OutgoingPayload::Lay(payload) => return FramedPayload::Long(payload),
            OutgoingPayload::Short(bytes) => Cow::Borrowed(bytes),
            OutgoingPayload::Pieces(payload) if self.out.is_long(payload.bytes()) => Cow::Owned(whole(payload)),
            OutgoingPayload::Pieces(payload) => return FramedPayload::Pieces(payload),
            OutgoingPayload::Packed(packed) => Cow::Owned(packed.into_bytes()),
        };
        if self.out.is_long(bytes.len()) {
            FramedPayload::Long(Box::new(bytes.into_owned()))
        } else {
            FramedPayload::Short(bytes)
        }
    }

    fn may_open(&self, payload: usize) -> Result<(), Refused> {
        if self.closing || self.greeting_until_us.is_some() {
            return Err(Refused::Closing);
        }
        self.fits(payload)
    }

    fn fits(&self, payload: usize) -> Result<(), Refused> {
        let max = self.payload_max;
        if payload > max { Err(Refused::TooLong { bytes: payload, max }) } else { Ok(()) }
    }
}

/// A payload as it is sent.
enum FramedPayload<'a> {
    /// In one frame.
    Short(Cow<'a, [u8]>),
    /// In one frame, piece after piece.
    Pieces(&'a dyn PayloadParts),
    /// In chunks.
    Long(Payload),
    /// Written to shared memory.
    Lay(Payload),
}

/// All of a payload in one piece.
fn whole(payload: &dyn PayloadParts) -> Vec<u8> {
    let mut all = Vec::with_capacity(payload.bytes());
    payload.copy_to(&mut all, 0..payload.bytes());
    all
}

fn fail_head(code: ErrorCode) -> impl FnOnce(&mut Vec<u8>) -> Result<(), WireError> {
    move |out| {
        out.extend_from_slice(&code.number().to_le_bytes());
        Ok(())
    }
}
