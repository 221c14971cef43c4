//! Inflating of received payloads, outside of the session.

use tidewire_proto::wire::{Frame, Kind};

use super::super::assembly::{Inflated, Inflating, Message};
use super::super::compression::Unreadable;
use super::{Event, OutboundExchange, Session};

impl<C: Clone> Session<C> {
    /// Takes the received part of a compressed payload. Inflate it and give it
    /// [back](Self::inflated) before another frame is received. Inflating takes time, and the
    /// session may be used for everything else meanwhile.
    pub fn to_inflate(&mut self) -> Option<Inflating> {
        self.parts.to_inflate()
    }

    /// Takes the inflated data back, and adds its events to `events`.
    pub fn inflated(&mut self, inflating: Inflating, now_us: u64, events: &mut Vec<Event<C>>) {
        match self.parts.inflated(inflating) {
            Inflated::Whole(message) => self.complete(message, now_us, events),
            Inflated::More | Inflated::Skipped => {}
            Inflated::Unreadable { message, why, last } => self.unreadable(&message, &why, last, events),
        }
    }

    /// Inflates the [received data](Self::to_inflate) at once.
    pub fn inflate(&mut self, now_us: u64, events: &mut Vec<Event<C>>) {
        if let Some(mut inflating) = self.to_inflate() {
            inflating.inflate();
            self.inflated(inflating, now_us, events);
        }
    }

    /// A compressed payload that can't be inflated: as one that this side does not take. An
    /// exchange that would have ended with it has ended if all of it has come.
    fn unreadable(&mut self, message: &Message, why: &Unreadable, last: bool, events: &mut Vec<Event<C>>) {
        let (id, kind, code, text) = (message.id, message.kind, why.code(), why.to_string());
        let frame = Frame { kind, flags: message.flags, id, head: &[], payload: text.as_bytes(), bytes: &[] };
        match kind {
            Kind::Reply | Kind::Fail if last => {
                if let Some(OutboundExchange::Call(call, ..) | OutboundExchange::Subscribing(call)) = self.end_mine(id)
                {
                    let fail = Message::whole(&Frame { kind: Kind::Fail, ..frame });
                    events.push(Event::Failed(call, code.number(), fail));
                }
            }
            Kind::Publish if last => {
                self.theirs.remove(id);
            }
            _ => self.turn_away(&frame, code, &text, events),
        }
        if kind == Kind::Publish {
            events.push(Event::Dropped(text));
        }
    }
}
