//! Forwarding of frames: requests, answers, credit and chunks pass between the two links of an
//! exchange.

use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::{self, Frame, Kind, WireError};

use super::super::flow_control::FlowWindow;
use super::routes::{ReverseRoute, Route};
use super::{Hub, LinkId};

impl Hub {
    /// A frame of the side that opened an exchange.
    pub(super) fn ask_on(&mut self, at: LinkId, frame: &Frame<'_>) -> Result<(), WireError> {
        let Some(link) = self.link(at) else { return Ok(()) };
        let (to, id, lane, passing) = match link.theirs.get(frame.id) {
            Some(Route::To { link, id, lane, passing }) => (*link, *id, *lane, passing),
            Some(Route::Fan(_)) if frame.kind == Kind::Chunk => return self.fan(at, frame),
            None if frame.kind == Kind::Window => {
                // For an answer of the hub itself.
                link.out.window(frame.id, true, wire::read_u32("WINDOW", frame.head)?);
                self.touch(at);
                return Ok(());
            }
            _ => return Ok(()),
        };
        if !passing.take(frame)? {
            return Ok(());
        }
        if let Some(ReverseRoute::Call { passing, .. }) = self.link(to).and_then(|link| link.ours.get(id)) {
            heed(passing, frame)?;
        }
        self.go_on(at, frame.id, (to, id, lane), frame);
        self.ask_for_chunks(at, frame, to);
        Ok(())
    }

    pub(super) fn go_on(&mut self, at: LinkId, opened: u64, (to, id, lane): (LinkId, u64, u8), frame: &Frame<'_>) {
        if let Some(link) = self.link(to).filter(|link| !link.can_take(frame)) {
            let excess = link.excess(frame, "the node that answers");
            let text = format!("an item: {excess}: send less at once, or raise the limit there");
            self.give_up(at, opened, ErrorCode::PayloadTooLarge, &text);
        } else if !self.pass(to, id, lane, frame) {
            let limit = self.full_callee(to);
            let text = format!("{limit}: too much waits for the node that answers for this exchange to go on");
            self.give_up(at, opened, ErrorCode::LimitExceeded, &text);
        }
    }

    /// A frame of the side that answers.
    pub(super) fn answer(&mut self, at: LinkId, frame: &Frame<'_>) -> Result<(), WireError> {
        let Some(back) = self.link(at).and_then(|link| link.ours.get(frame.id)) else { return Ok(()) };
        let (to, id, lane, subscription, ending) = match back {
            ReverseRoute::Call { link, id, lane, subscription, passing, ending, .. } => {
                if !passing.take(frame)? {
                    return Ok(());
                }
                *ending |= matches!(frame.kind, Kind::Reply | Kind::Fail) && frame.flags.more();
                (*link, *id, *lane, *subscription, *ending)
            }
            &mut ReverseRoute::Published { link, id } => return self.answer_of_fan(at, frame, link, id),
        };
        if let Some(Route::To { passing, .. }) = self.link(to).and_then(|link| link.theirs.get(id)) {
            heed(passing, frame)?;
        }
        if let Some(link) = self.link(to).filter(|link| !link.can_take(frame)) {
            let excess = link.excess(frame, "this node");
            let text = format!("the answer: {excess}: ask for less at once, or raise the limit here");
            self.give_up(to, id, ErrorCode::PayloadTooLarge, &text);
        } else if !self.pass(to, id, lane, frame) {
            let limit = self.full(to);
            let text = format!("{limit}: the answer found too much waiting for this node: try again later");
            self.give_up(to, id, ErrorCode::LimitExceeded, &text);
        } else if is_last(frame, ending) {
            self.link(at).map(|link| link.ours.remove(frame.id));
            self.link(to).map(|link| link.theirs.remove(id));
            self.finished(subscription);
            let is_full = frame.kind == Kind::Fail && frame.head == ErrorCode::Overloaded.number().to_le_bytes();
            if let Some(subscriber) = self.tree.get_mut(subscription).filter(|_| is_full) {
                subscriber.is_full = true;
            }
        } else {
            self.ask_for_chunks(at, frame, to);
        }
        Ok(())
    }

    /// Handles a reply from a receiver of a long published payload: the receiver asks for more, or
    /// takes none of it.
    fn answer_of_fan(&mut self, at: LinkId, frame: &Frame<'_>, link: LinkId, id: u64) -> Result<(), WireError> {
        match frame.kind {
            Kind::Window => {
                let bytes = wire::read_u32("WINDOW", frame.head)?;
                self.fan_requested(link, id, (at, frame.id), Some(bytes));
            }
            Kind::Fail => {
                self.link(at).map(|link| link.ours.remove(frame.id));
                self.counts.dropped += 1;
                self.fan_requested(link, id, (at, frame.id), None);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Records the credit or window that a frame gives to the other side.
fn heed(passing: &mut FlowWindow, frame: &Frame<'_>) -> Result<(), WireError> {
    match frame.kind {
        Kind::Window => passing.requested(wire::read_u32("WINDOW", frame.head)?),
        Kind::Credit => passing.credited(wire::read_u32("CREDIT", frame.head)?),
        _ => {}
    }
    Ok(())
}

/// True if a frame of the answering side ends the exchange.
fn is_last(frame: &Frame<'_>, ending: bool) -> bool {
    match frame.kind {
        Kind::Reply | Kind::Fail => !frame.flags.more(),
        Kind::End => true,
        Kind::Chunk => ending && !frame.flags.more(),
        _ => false,
    }
}
