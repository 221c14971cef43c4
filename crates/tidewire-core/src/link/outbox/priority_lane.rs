//! A priority lane of a send queue: whole frames, and long payloads that are sent in chunks.

use std::collections::VecDeque;
use std::sync::Arc;

use tidewire_proto::wire::{self, Flags, Kind};

use super::frames::Frames;
use super::{FrameSink, Payload, PayloadParts, PendingSharedPayload, SharedPayload, WriteCounts};

/// Memory that an emptied buffer keeps. The memory beyond it was needed for a burst only.
const KEPT_BYTES: usize = 65_536;
const KEPT_ENTRIES: usize = 256;
/// Payloads of a lane that send their chunks in turns. Payloads behind them wait, so that the first
/// ones are complete, and can be processed, while the others are still being sent. A very long
/// payload delays none of the next three.
const ABREAST: usize = 4;

/// The frames of one lane.
#[derive(Default)]
pub(super) struct Lane {
    /// Whole frames.
    pub(super) frames: Frames,
    /// Bytes of whole frames that have ever left the lane.
    drained: u64,
    /// In the order in which they began.
    transfers: VecDeque<Transfer>,
    /// Index of the transfer whose turn is next.
    turn: usize,
    /// How many of them wait to be written to shared memory.
    to_lay: usize,
    /// Ended exchanges, each with the count of drained bytes that includes its last frame.
    ends: VecDeque<(u64, u64)>,
}

/// A payload that is sent in chunks.
pub(super) struct Transfer {
    kind: Kind,
    id: u64,
    flags: Flags,
    /// The node whose call it answers, or 0.
    pub(super) called: u32,
    payload: Arc<dyn PayloadParts>,
    at: usize,
    /// Bytes that may still be sent before the receiver asks for more.
    pub(super) window: usize,
    /// The payload lies in shared memory, and its receiver has not asked for it in chunks.
    pub(super) shared: bool,
    /// Progress of writing it to shared memory, which comes before anything of it is sent.
    laying: SharedWriteState,
    /// Its first frame has left the lane once so many bytes are drained.
    begins: u64,
    /// Frames that have to follow its last chunk: published messages of its lane, or further frames
    /// of its exchange.
    after: VecDeque<QueuedAfter>,
    /// Bytes of that.
    behind: usize,
}

/// How far it is with laying a payload in shared memory.
enum SharedWriteState {
    /// No writing to shared memory: it is not wanted, or is done.
    No,
    /// Its first frame is held back; true once a caller is writing the payload.
    Waits(Vec<u8>, bool),
}

pub(super) enum QueuedAfter {
    Frame(Vec<u8>),
    Transfer(Vec<u8>, Transfer),
}

impl Lane {
    pub(super) fn is_idle(&self) -> bool {
        self.frames.is_empty() && self.transfers.iter().all(|transfer| transfer.window == 0)
    }

    pub(super) fn owes(&self) -> bool {
        let is_request = |transfer: &Transfer| !transfer.is_published() && !transfer.flags.answer();
        !self.frames.is_empty() || !self.transfers.iter().all(is_request)
    }

    pub(super) fn has_drained(&self, until: u64) -> bool {
        self.drained >= until
    }

    pub(super) fn buffer_bytes(&self) -> usize {
        self.frames.buffer_bytes()
            + self.transfers.capacity() * size_of::<Transfer>()
            + self.ends.capacity() * size_of::<(u64, u64)>()
    }

    /// The transfer that a frame has to wait for, so that frames stay in order.
    pub(super) fn holder(&mut self, kind: Kind, answer: bool, id: u64) -> Option<&mut Transfer> {
        match kind {
            Kind::Publish => self.transfers.iter_mut().find(|transfer| transfer.is_published()),
            Kind::Item | Kind::End | Kind::Reply | Kind::Fail => self.transfer(id, answer),
            _ => None,
        }
    }

    pub(super) fn transfers(&self) -> impl DoubleEndedIterator<Item = &Transfer> {
        self.transfers.iter()
    }

    pub(super) fn transfer(&mut self, id: u64, answer: bool) -> Option<&mut Transfer> {
        self.transfers.iter_mut().find(|transfer| transfer.is(id, answer))
    }

    /// Bytes that wait behind a payload of an exchange, if one is under way.
    pub(super) fn behind(&self, id: u64, answer: bool) -> Option<usize> {
        self.transfers.iter().find(|transfer| transfer.is(id, answer)).map(|transfer| transfer.behind)
    }

    pub(super) fn begin(&mut self, first: &[u8], mut transfer: Transfer) {
        match &mut transfer.laying {
            SharedWriteState::Waits(frames, _) => {
                frames.extend_from_slice(first);
                self.to_lay += 1;
            }
            SharedWriteState::No => {
                self.frames.copy(first);
                transfer.begins = self.queued();
            }
        }
        self.transfers.push_back(transfer);
    }

    pub(super) fn has_to_lay(&self) -> bool {
        self.to_lay > 0
    }

    pub(super) fn next_to_lay(&mut self) -> Option<PendingSharedPayload> {
        self.to_lay = self.to_lay.checked_sub(1)?;
        self.transfers.iter_mut().find_map(|transfer| match &mut transfer.laying {
            SharedWriteState::Waits(_, begun @ false) => {
                *begun = true;
                let (id, answer) = (transfer.id, transfer.flags.answer());
                Some(PendingSharedPayload { id, answer, payload: Arc::clone(&transfer.payload) })
            }
            _ => None,
        })
    }

    pub(super) fn is_to_lay(&self, id: u64, answer: bool) -> bool {
        self.transfers
            .iter()
            .any(|transfer| transfer.is(id, answer) && matches!(transfer.laying, SharedWriteState::Waits(..)))
    }

    pub(super) fn lay(
        &mut self,
        id: u64,
        answer: bool,
        shared: Option<SharedPayload>,
        window: usize,
        counts: &mut WriteCounts,
    ) {
        let Some(at) = self.transfers.iter().position(|transfer| transfer.is(id, answer)) else { return };
        let SharedWriteState::Waits(mut first, _) =
            std::mem::replace(&mut self.transfers[at].laying, SharedWriteState::No)
        else {
            return;
        };
        counts.took(first.len());
        if let Some(shared) = &shared {
            wire::set_place(&mut first, &shared.place);
        }
        counts.add(first.len());
        self.frames.copy(&first);
        let begins = self.queued();
        let transfer = &mut self.transfers[at];
        transfer.begins = begins;
        match shared {
            Some(shared) => (transfer.payload, transfer.shared) = (Arc::from(shared.payload), true),
            None => transfer.window = window,
        }
    }

    pub(super) fn ends(&mut self, id: u64) {
        let at = self.queued();
        self.ends.push_back((at, id));
    }

    pub(super) fn drop_transfer(&mut self, id: u64, answer: bool, counts: &mut WriteCounts) {
        let Some(at) = self.transfers.iter().position(|transfer| transfer.is(id, answer)) else { return };
        let Some(transfer) = self.transfers.remove(at) else { return };
        counts.bytes -= transfer.remaining();
        if let SharedWriteState::Waits(first, begun) = &transfer.laying {
            counts.took(first.len());
            self.to_lay -= usize::from(!begun);
        }
        if transfer.is_published() {
            self.go_on(transfer);
        } else {
            transfer.after.into_iter().for_each(|behind| behind.uncount(counts));
        }
    }

    pub(super) fn end_shared(&mut self, id: u64, answer: bool, counts: &mut WriteCounts) {
        let is = |transfer: &Transfer| transfer.is(id, answer) && transfer.shared;
        let Some(at) = self.transfers.iter().position(is) else { return };
        if let Some(transfer) = self.transfers.remove(at) {
            counts.bytes -= transfer.remaining();
            self.go_on(transfer);
        }
    }

    pub(super) fn take(&mut self, out: &mut impl FrameSink, budget: usize, chunk: usize, counts: &mut WriteCounts) {
        let (before, until) = (out.length(), out.length() + budget);
        // Whole frames go first, but if there are always more of them the chunks must not wait for
        // ever.
        let reserved = if self.transfers.iter().any(|transfer| transfer.window > 0) { chunk } else { 0 };
        self.take_frames(out.bytes(), budget.saturating_sub(reserved), counts);
        while out.length() < until {
            let Some(at) = self.next_transfer() else { break };
            let transfer = &mut self.transfers[at];
            counts.bytes -= transfer.cut(out, chunk);
            if !transfer.is_over() {
                self.turn += 1;
                continue;
            }
            let Some(transfer) = self.transfers.remove(at) else { break };
            if transfer.is_published() {
                counts.ended.push(transfer.id);
            }
            self.go_on(transfer);
            let budget = until.saturating_sub(out.length());
            self.take_frames(out.bytes(), budget, counts);
        }
        if out.length() - before < KEPT_BYTES {
            // While much goes through, the next burst would need the same memory again.
            self.release();
        }
    }

    /// The transfer whose chunk is next: the first few transfers with a window take turns.
    fn next_transfer(&mut self) -> Option<usize> {
        let may_go = |(at, transfer): (usize, &Transfer)| transfer.may_go(self.drained).then_some(at);
        let mut ready = [0; ABREAST];
        let mut count = 0;
        for at in self.transfers.iter().enumerate().filter_map(may_go).take(ABREAST) {
            ready[count] = at;
            count += 1;
        }
        if count == 0 {
            return None;
        }
        self.turn %= count;
        Some(ready[self.turn])
    }

    pub(super) fn queued(&self) -> u64 {
        self.drained + self.frames.len() as u64
    }

    /// Continues the frames that waited for the end of a transfer.
    fn go_on(&mut self, Transfer { mut after, mut behind, .. }: Transfer) {
        while let Some(next) = after.pop_front() {
            behind -= next.bytes();
            match next {
                QueuedAfter::Frame(frame) => {
                    self.frames.copy(&frame);
                }
                QueuedAfter::Transfer(first, mut transfer) => {
                    (transfer.after, transfer.behind) = (after, behind);
                    return self.begin(&first, transfer);
                }
            }
        }
    }

    /// Moves what there is of whole frames, or, of very much, the first part.
    fn take_frames(&mut self, out: &mut Vec<u8>, budget: usize, counts: &mut WriteCounts) {
        let count = self.frames.take(out, budget);
        counts.took(count);
        self.drained += count as u64;
        while let Some(&(at, id)) = self.ends.front()
            && at <= self.drained
        {
            counts.ended.push(id);
            self.ends.pop_front();
        }
    }

    fn release(&mut self) {
        self.frames.release(KEPT_BYTES);
        if self.transfers.is_empty() && self.transfers.capacity() > KEPT_ENTRIES {
            self.transfers = VecDeque::new();
        }
        if self.ends.is_empty() && self.ends.capacity() > KEPT_ENTRIES {
            self.ends = VecDeque::new();
        }
    }
}

impl Transfer {
    pub(super) fn new(kind: Kind, id: u64, flags: Flags, payload: Payload, window: usize, called: u32) -> Self {
        let (payload, after, laying) = (Arc::from(payload), VecDeque::new(), SharedWriteState::No);
        Self { kind, id, flags, called, payload, at: 0, window, shared: false, laying, begins: 0, after, behind: 0 }
    }

    /// A transfer that is to be written to shared memory.
    pub(super) fn to_lay(kind: Kind, id: u64, flags: Flags, payload: Payload, called: u32) -> Self {
        Self { laying: SharedWriteState::Waits(Vec::new(), false), ..Self::new(kind, id, flags, payload, 0, called) }
    }

    fn is_published(&self) -> bool {
        self.kind == Kind::Publish
    }

    pub(super) fn is_item(&self) -> bool {
        self.kind == Kind::Item
    }

    /// True if it is a whole answer that waits for its receiver.
    pub(super) fn is_stuck(&self) -> bool {
        let is_direct = matches!(self.laying, SharedWriteState::No);
        self.called != 0 && is_direct && self.window == 0 && matches!(self.kind, Kind::Reply | Kind::Fail)
    }

    pub(super) fn named(&self) -> (u64, Flags) {
        (self.id, self.flags)
    }

    /// Its bytes that wait, and what waits behind them.
    pub(super) fn waiting(&self) -> usize {
        self.remaining() + self.behind
    }

    /// Adds a frame or transfer that must follow it.
    pub(super) fn follow(&mut self, next: QueuedAfter) {
        self.behind += next.bytes();
        self.after.push_back(next);
    }

    fn is(&self, id: u64, answer: bool) -> bool {
        self.id == id && self.flags.answer() == answer
    }

    /// True if a chunk can be sent after so many bytes of whole frames: chunks follow the first
    /// frame.
    fn may_go(&self, drained: u64) -> bool {
        self.window > 0 && self.begins <= drained
    }

    fn cut(&mut self, out: &mut impl FrameSink, chunk: usize) -> usize {
        let count = chunk.min(self.window).min(self.remaining());
        let flags = self.flags.with_more(count < self.remaining()).with_compressed(false).with_again(false);
        let begun = wire::begin(out.bytes(), Kind::Chunk, flags, self.id, |_| Ok(()), count);
        debug_assert!(begun.is_ok(), "a chunk is shorter than a frame may be");
        out.part(&self.payload, self.at, count);
        self.at += count;
        self.window -= count;
        count
    }

    pub(super) fn remaining(&self) -> usize {
        self.payload.bytes() - self.at
    }

    fn is_over(&self) -> bool {
        self.remaining() == 0
    }
}

impl QueuedAfter {
    fn bytes(&self) -> usize {
        match self {
            Self::Frame(frame) => frame.len(),
            Self::Transfer(first, transfer) => first.len() + transfer.remaining(),
        }
    }

    /// Removes a dropped frame from the counts.
    fn uncount(self, counts: &mut WriteCounts) {
        match self {
            Self::Frame(frame) => counts.took(frame.len()),
            Self::Transfer(first, transfer) => {
                counts.took(first.len());
                counts.bytes -= transfer.remaining();
            }
        }
    }
}
