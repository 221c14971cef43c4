//! The send queue of one link: frames by priority, long payloads in chunks, bounded in bytes.
//!
//! Whole frames gather in one buffer for each lane, so that all frames that queued up while the
//! wire was busy make one write. A long payload is not copied: a chunk is cut when there is
//! capacity for it. Between the chunks other frames go first.

mod frames;
mod priority_lane;
mod write_batch;

use std::collections::BTreeMap;
use std::ops::Range;

use std::sync::Arc;

use tidewire_proto::generated::limits;
use tidewire_proto::wire::{self, Flags, Kind, MemoryLocation, WireError};

use priority_lane::{Lane, QueuedAfter, Transfer};
pub use write_batch::{FrameSink, WriteBatch};

pub(super) const LANES: usize = 4;
/// Bytes that each lane gets of a write while higher lanes have more than fits.
const SHARE_BYTES: usize = 8_192;

/// Bytes that mandatory control frames may always queue.
const CONTROL_BYTES: usize = 65_536;
/// Queued items for one caller take at most so many times the capacity that is left for others.
const ITEM_SHARE: usize = 3;
/// Bytes of the frame that tells a caller about its dropped answer.
const TOLD_BYTES: usize = 256;

/// A payload in one or more pieces that the sender of it owns. No piece is empty.
pub trait PayloadParts: Send + Sync {
    /// All of its bytes.
    fn bytes(&self) -> usize;

    /// The bytes from an offset to the end of the piece that contains it.
    fn piece(&self, at: usize) -> &[u8];
}

impl dyn PayloadParts + '_ {
    /// Adds a part of it to the end of `out`.
    pub(super) fn copy_to(&self, out: &mut Vec<u8>, part: Range<usize>) {
        let mut at = part.start;
        while at < part.end {
            let piece = self.piece(at);
            let piece = &piece[..piece.len().min(part.end - at)];
            out.extend_from_slice(piece);
            at += piece.len();
        }
    }
}

impl<T: AsRef<[u8]> + Send + Sync> PayloadParts for T {
    fn bytes(&self) -> usize {
        self.as_ref().len()
    }

    fn piece(&self, at: usize) -> &[u8] {
        &self.as_ref()[at..]
    }
}

/// A payload that is cut while it is sent.
pub type Payload = Box<dyn PayloadParts>;

/// A payload that lies in shared memory.
pub struct SharedPayload {
    /// Its bytes, of which the pieces are asked for only if a receiver can't read them there.
    /// Dropped when nobody reads there any more.
    pub payload: Payload,
    /// Where it lies.
    pub place: MemoryLocation,
}

/// A payload that is to be written to shared memory.
pub struct PendingSharedPayload {
    /// Its exchange.
    pub id: u64,
    /// True if it is a transfer of the answering side.
    pub answer: bool,
    /// Its bytes.
    pub payload: Arc<dyn PayloadParts>,
}

/// The frames that wait for one link.
pub struct Outbox {
    lanes: [Lane; LANES],
    counts: WriteCounts,
    bytes_max: usize,
    /// Bytes that may wait at present, where other links share the capacity.
    capacity: usize,
    chunk: usize,
    window: usize,
}

/// Counters that change while frames are taken.
#[derive(Default)]
struct WriteCounts {
    /// Bytes that wait, long payloads included.
    bytes: usize,
    /// The part of them that is whole frames.
    whole: usize,
    ended: Vec<u64>,
}

/// Up to where the lanes of an outbox were filled at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushMark([u64; LANES]);

/// How a payload came to be refused.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::From)]
pub enum Unsent {
    /// Too much waits already.
    Full {
        /// Bytes that wait.
        bytes: usize,
    },
    /// The frame can't be written.
    #[from]
    Wire(WireError),
}

impl Outbox {
    /// An empty one, in which about `bytes_max` bytes may wait.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            lanes: Default::default(),
            counts: WriteCounts::default(),
            bytes_max,
            capacity: bytes_max,
            chunk: limits::LINK_CHUNK_BYTES.default as usize,
            window: limits::LINK_WINDOW_BYTES.default as usize,
        }
    }

    /// The ids of exchanges whose last frame was taken since the last call: long published
    /// payloads, and exchanges ended by [`control_last`](Self::control_last) or
    /// [`ends`](Self::ends). Only now may their slots be reused: a frame of a higher lane could
    /// have overtaken that last frame.
    pub fn ended(&mut self) -> impl Iterator<Item = u64> + '_ {
        self.counts.ended.drain(..)
    }

    /// Sets the limit of waiting bytes from now on; frames that wait already stay.
    pub fn limit(&mut self, bytes_max: usize) {
        (self.bytes_max, self.capacity) = (bytes_max, bytes_max);
    }

    /// Sets the present capacity: the bytes that wait now plus so many further bytes, and never
    /// more than the limit of this queue.
    pub fn share(&mut self, capacity: usize) {
        self.capacity = self.bytes_max.min(capacity);
    }

    /// True if the present capacity is below the limit, because other links use it.
    pub fn is_shared(&self) -> bool {
        self.capacity < self.bytes_max
    }

    /// Cuts payloads that are longer than this.
    pub fn chunk_bytes(&mut self, chunk: usize) {
        self.chunk = chunk;
    }

    /// Bytes that wait, long payloads included.
    pub fn bytes(&self) -> usize {
        self.counts.bytes
    }

    /// True if anything waits except long payloads of this side's own calls. These payloads matter
    /// only to a caller that waits for an answer.
    pub fn owes(&self) -> bool {
        self.lanes.iter().any(Lane::owes)
    }

    /// Up to where each lane is filled with whole frames.
    pub fn filled(&self) -> FlushMark {
        FlushMark(std::array::from_fn(|lane| self.lanes[lane].queued()))
    }

    /// True if the frames up to this mark have been taken.
    pub fn has_drained(&self, filled: &FlushMark) -> bool {
        self.lanes.iter().zip(filled.0).all(|(lane, until)| lane.has_drained(until))
    }

    /// How many may wait.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// True if so much waits that the other side can't have read for long: mandatory frames have
    /// exceeded the limit by a wide margin.
    pub fn is_choked(&self) -> bool {
        let spare = (self.bytes_max / 2).max(CONTROL_BYTES);
        self.counts.whole > self.bytes_max.saturating_add(spare)
    }

    /// True if nothing can be written now. Payloads that wait for a window do not count.
    pub fn is_idle(&self) -> bool {
        self.lanes.iter().all(Lane::is_idle)
    }

    /// Bytes of memory that its buffers keep.
    pub fn buffer_bytes(&self) -> usize {
        self.lanes.iter().map(Lane::buffer_bytes).sum()
    }

    /// Adds a frame that has to be sent, even without capacity.
    ///
    /// # Errors
    /// [`WireError`] if its head can't be written.
    pub fn control(
        &mut self,
        kind: Kind,
        flags: Flags,
        id: u64,
        head: impl FnOnce(&mut Vec<u8>) -> Result<(), WireError>,
        payload: &[u8],
    ) -> Result<(), WireError> {
        let write = |out: &mut Vec<u8>| wire::write(out, kind, flags, id, head, payload);
        self.add(kind, flags, id, write)
    }

    /// Adds the frame that `write` writes, behind the frames that it must follow.
    fn add(
        &mut self,
        kind: Kind,
        flags: Flags,
        id: u64,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        let lane = &mut self.lanes[flags.lane()];
        if let Some(transfer) = lane.holder(kind, flags.answer(), id) {
            let mut frame = Vec::new();
            write(&mut frame)?;
            self.counts.add(frame.len());
            transfer.follow(QueuedAfter::Frame(frame));
            return Ok(());
        }
        let before = lane.frames.len();
        lane.frames.add(write)?;
        self.counts.add(lane.frames.len() - before);
        Ok(())
    }

    /// Adds the frame without head or payload that ends an exchange; [`ended`](Self::ended) tells
    /// when it has been taken.
    pub fn control_last(&mut self, kind: Kind, flags: Flags, id: u64) {
        let written = self.control(kind, flags, id, |_| Ok(()), &[]);
        debug_assert!(written.is_ok(), "a frame without head and payload can be written");
        self.ends(flags.lane(), id);
    }

    /// The last frame of an exchange was added to this lane; [`ended`](Self::ended) tells when it
    /// has been taken.
    pub fn ends(&mut self, lane: usize, id: u64) {
        self.lanes[lane].ends(id);
    }

    /// Adds a frame with a payload that is not sent in chunks.
    ///
    /// # Errors
    /// [`Unsent`] if there is no capacity, or the head can't be written; nothing has been added
    /// then.
    pub fn send(
        &mut self,
        kind: Kind,
        flags: Flags,
        id: u64,
        head: impl FnOnce(&mut Vec<u8>) -> Result<(), WireError>,
        payload: &[u8],
    ) -> Result<(), Unsent> {
        self.check_capacity(payload.len(), self.capacity)?;
        Ok(self.control(kind, flags, id, head, payload)?)
    }

    /// Does the same with a payload that lies in pieces.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn send_pieces(
        &mut self,
        kind: Kind,
        flags: Flags,
        id: u64,
        head: impl FnOnce(&mut Vec<u8>) -> Result<(), WireError>,
        payload: &dyn PayloadParts,
    ) -> Result<(), Unsent> {
        let bytes = payload.bytes();
        self.check_capacity(bytes, self.capacity)?;
        let write = |out: &mut Vec<u8>| {
            wire::begin(out, kind, flags, id, head, bytes)?;
            payload.copy_to(out, 0..bytes);
            Ok(())
        };
        Ok(self.add(kind, flags, id, write)?)
    }

    /// True if a payload of this length must be passed to [`send_long`](Self::send_long).
    pub fn is_long(&self, payload: usize) -> bool {
        payload > self.chunk
    }

    /// Adds a frame whose payload is sent in chunks. For the answer to a call, `called` is the
    /// number of the calling node, else 0.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn send_long(
        &mut self,
        kind: Kind,
        flags: Flags,
        id: u64,
        head: impl FnOnce(&mut Vec<u8>) -> Result<(), WireError>,
        payload: Payload,
        called: u32,
    ) -> Result<(), Unsent> {
        let stated = (payload.bytes() as u64).to_le_bytes();
        let transfer = Transfer::new(kind, id, flags, payload, self.window, called);
        self.begin_transfer(kind, flags, id, head, &stated, transfer)
    }

    fn begin_transfer(
        &mut self,
        kind: Kind,
        flags: Flags,
        id: u64,
        head: impl FnOnce(&mut Vec<u8>) -> Result<(), WireError>,
        stated: &[u8],
        transfer: Transfer,
    ) -> Result<(), Unsent> {
        self.check_capacity(transfer.remaining(), self.capacity)?;
        let mut first = Vec::with_capacity(256);
        wire::write(&mut first, kind, flags.with_more(true), id, head, stated)?;
        self.counts.add(first.len());
        self.counts.bytes += transfer.remaining();
        let lane = &mut self.lanes[flags.lane()];
        match lane.holder(kind, flags.answer(), id) {
            Some(before) => before.follow(QueuedAfter::Transfer(first, transfer)),
            None => lane.begin(&first, transfer),
        }
        Ok(())
    }

    /// True if the next item of an answer to the node `called` has to wait for further writes.
    /// There are three reasons:
    ///
    /// - More than a window of its own answer waits behind a long item.
    /// - With it, items would take more than half of the capacity.
    /// - With it, items for that node would take more than its share of that half.
    ///
    /// The other half is for frames that can't wait.
    pub fn holds_back(&self, id: u64, payload: usize, called: u32) -> bool {
        let behind = self.lanes.iter().find_map(|lane| lane.behind(id, true)).unwrap_or(0);
        if behind > self.window || self.check_capacity(payload, self.bytes_max).is_err() {
            return true;
        }
        let (items, half) = (self.counts.whole + self.untaken(Transfer::is_item), self.bytes_max / 2);
        let own = self.untaken(|transfer| transfer.is_item() && transfer.called == called);
        items > 0 && (items + payload > half || own > 0 && own + payload > ITEM_SHARE * (half - items))
    }

    /// True if there is capacity for a payload of this length at present.
    pub fn has_capacity(&self, payload: usize) -> bool {
        self.check_capacity(payload, self.capacity).is_ok()
    }

    /// Frees capacity for a payload to the node `called`, or to no particular node (0). Unread long
    /// answers of the node with the most waiting bytes are dropped, the newest first, as long as
    /// more waits for it than for `called`. Returns the ids and flags of the dropped answers. If
    /// that does not free enough, nothing is dropped (longest queue drop: Suter et al., IEEE
    /// INFOCOM 1998).
    pub fn free_capacity(&mut self, payload: usize, called: u32) -> Vec<(u64, Flags)> {
        let own = payload + self.untaken(|transfer| transfer.called == called);
        let mut waiting = BTreeMap::<u32, usize>::new();
        let stuck = self.lanes.iter().flat_map(Lane::transfers).filter(|one| one.is_stuck() && one.called != called);
        for transfer in stuck {
            *waiting.entry(transfer.called).or_default() += transfer.waiting();
        }
        let beyond: usize = waiting.values().map(|bytes| bytes.saturating_sub(own)).sum();
        let mut dropped = Vec::new();
        if self.counts.bytes + payload > self.capacity + beyond {
            return dropped;
        }
        // Each dropped answer needs capacity for the frame that reports it.
        while !self.has_capacity(payload + dropped.len() * TOLD_BYTES) {
            let Some((&most, bytes)) = waiting.iter_mut().max_by_key(|(_, bytes)| **bytes) else { break };
            let newest =
                self.lanes.iter().find_map(|lane| lane.transfers().rfind(|one| one.is_stuck() && one.called == most));
            let Some((id, flags)) = newest.map(Transfer::named).filter(|_| *bytes > own) else { break };
            let before = self.counts.bytes;
            self.drop_transfer(id, true);
            *bytes = bytes.saturating_sub(before - self.counts.bytes);
            dropped.push((id, flags));
        }
        dropped
    }

    /// Adds a frame whose payload is to be written to shared memory.
    /// [`next_to_lay`](Self::next_to_lay) returns the payload, and the frame waits for
    /// [`lay`](Self::lay). The payload then stays until [`end_shared`](Self::end_shared). If the
    /// receiver asks for a [`window`](Self::window) instead, the payload is sent in chunks.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn send_to_lay(
        &mut self,
        kind: Kind,
        flags: Flags,
        id: u64,
        head: impl FnOnce(&mut Vec<u8>) -> Result<(), WireError>,
        payload: Payload,
        called: u32,
    ) -> Result<(), Unsent> {
        let stated = (payload.bytes() as u64).to_le_bytes();
        self.begin_transfer(kind, flags, id, head, &stated, Transfer::to_lay(kind, id, flags, payload, called))
    }

    /// True if [`next_to_lay`](Self::next_to_lay) has a payload.
    pub fn has_to_lay(&self) -> bool {
        self.lanes.iter().any(Lane::has_to_lay)
    }

    /// The next payload to write to shared memory, if there is one. Each is returned once.
    pub fn next_to_lay(&mut self) -> Option<PendingSharedPayload> {
        self.lanes.iter_mut().find_map(Lane::next_to_lay)
    }

    /// Records that a payload was written to shared memory; with None it is sent in chunks.
    pub fn lay(&mut self, id: u64, answer: bool, shared: Option<SharedPayload>) {
        let window = self.window;
        if let Some(lane) = self.lanes.iter_mut().find(|lane| lane.is_to_lay(id, answer)) {
            lane.lay(id, answer, shared, window, &mut self.counts);
        }
    }

    /// Adds a whole frame from another link, under another id, and returns it for changes.
    ///
    /// # Errors
    /// [`Unsent::Full`] if there is no capacity.
    pub fn forward(&mut self, frame: &[u8], lane: usize, id: u64) -> Result<&mut [u8], Unsent> {
        self.check_capacity(frame.len(), self.capacity)?;
        Ok(self.append(frame, lane, id))
    }

    /// Adds a whole frame without a payload from another link, under another id. Some capacity is
    /// reserved for such frames: they cost little, and keep exchanges from hanging.
    ///
    /// # Errors
    /// [`Unsent::Full`] if that is used up, too.
    pub fn forward_bare(&mut self, frame: &[u8], lane: usize, id: u64) -> Result<(), Unsent> {
        self.check_capacity(frame.len(), self.capacity + self.capacity / 4)?;
        self.append(frame, lane, id);
        Ok(())
    }

    /// The receiver of a payload asks for more of it; if the payload is in shared memory, for all
    /// of it.
    pub fn window(&mut self, id: u64, answer: bool, bytes: u32) {
        if let Some(transfer) = self.lanes.iter_mut().find_map(|lane| lane.transfer(id, answer)) {
            transfer.window = transfer.window.saturating_add(bytes as usize);
            transfer.shared = false;
        }
    }

    /// Ends a payload that its receiver has read in shared memory.
    pub fn end_shared(&mut self, id: u64, answer: bool) {
        for lane in &mut self.lanes {
            lane.end_shared(id, answer, &mut self.counts);
        }
    }

    /// Sends no more of a payload, and nothing of what waits for its end in the same exchange.
    pub fn drop_transfer(&mut self, id: u64, answer: bool) {
        for lane in &mut self.lanes {
            lane.drop_transfer(id, answer, &mut self.counts);
        }
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        self.lanes = Default::default();
        self.counts = WriteCounts::default();
    }

    /// Moves about `budget` bytes of whole frames to the end of `out`, higher lanes first. Answers
    /// whether there was anything.
    pub fn take(&mut self, out: &mut impl FrameSink, budget: usize) -> bool {
        let before = out.length();
        for at in 0..LANES {
            let below = self.lanes[at + 1..].iter().filter(|lane| !lane.is_idle()).count();
            let used = out.length() - before;
            let share = budget.saturating_sub(used + below * SHARE_BYTES).max(SHARE_BYTES);
            self.lanes[at].take(out, share, self.chunk, &mut self.counts);
        }
        out.length() > before
    }

    fn append(&mut self, frame: &[u8], lane: usize, id: u64) -> &mut [u8] {
        self.counts.add(frame.len());
        let copied = self.lanes[lane].frames.copy(frame);
        wire::set_id(copied, id);
        copied
    }

    fn check_capacity(&self, payload: usize, bytes_max: usize) -> Result<(), Unsent> {
        // A single payload always fits, however long it is: otherwise it could never be sent.
        let bytes = self.counts.bytes;
        if bytes > 0 && bytes + payload > bytes_max { Err(Unsent::Full { bytes }) } else { Ok(()) }
    }

    /// Bytes of long payloads that wait, with what waits behind them.
    fn untaken(&self, of: impl Fn(&Transfer) -> bool) -> usize {
        self.lanes.iter().flat_map(Lane::transfers).filter(|transfer| of(transfer)).map(Transfer::waiting).sum()
    }
}

impl WriteCounts {
    fn add(&mut self, frame: usize) {
        self.bytes += frame;
        self.whole += frame;
    }

    fn took(&mut self, frames: usize) {
        self.bytes -= frames;
        self.whole -= frames;
    }
}
