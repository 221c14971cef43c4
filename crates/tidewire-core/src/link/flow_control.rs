//! Flow control of payloads that pass through a hub.
//!
//! The hub does not store them, but checks their chunks: a receiver of a wrong chunk would close
//! the link to the hub.

use tidewire_proto::generated::limits;
use tidewire_proto::wire::{Frame, Kind, WireError};

/// Flow control of one side of an exchange: sent bytes of a long payload, and credit for items.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowWindow {
    /// Bytes that are still to come. None: no payload is under way.
    remaining: Option<u64>,
    /// Bytes of the first window of this payload that may still come.
    window: u64,
    /// Bytes that the receiver asked for and that have not come. A request for one payload may
    /// reach the sender only during the next.
    requested: u64,
    items: Credit,
    /// The payload lies in shared memory, and nobody has asked for it in chunks.
    placed: bool,
}

/// How many items one side of an exchange may send.
#[derive(Clone, Copy, Debug, Default)]
pub struct Credit {
    remaining: u64,
    granted: u64,
}

/// The most requested bytes that are counted: an honest sender never has more in hand.
const ASKED_MAX: u64 = 4 * limits::LINK_WINDOW_BYTES.default;

/// The length of a payload, as its first frame states it.
pub fn stated_bytes(frame: &Frame<'_>) -> u64 {
    let length = frame.payload.len() as u64;
    if frame.flags.more() { frame.stated().map_or(length, |(bytes, _)| bytes) } else { length }
}

impl Credit {
    /// A credit of so many items.
    pub fn new(items: u32) -> Self {
        Self { remaining: items.into(), granted: items.into() }
    }

    /// Adds credit for so many further items.
    pub fn give(&mut self, items: u32) {
        self.remaining = self.remaining.saturating_add(items.into());
        self.granted = self.granted.saturating_add(items.into());
    }

    /// Counts a received item.
    ///
    /// # Errors
    /// [`WireError::Limit`] if it exceeds the credit.
    pub fn take(&mut self) -> Result<(), WireError> {
        let exceeded = WireError::Limit { name: "stream_credit", max: self.granted };
        self.remaining = self.remaining.checked_sub(1).ok_or(exceeded)?;
        Ok(())
    }
}

impl FlowWindow {
    /// A window of a side that may send so many items.
    pub fn with_credit(items: u32) -> Self {
        Self { items: Credit::new(items), ..Self::default() }
    }

    /// The other side has granted credit for so many further items.
    pub fn credited(&mut self, items: u32) {
        self.items.give(items);
    }

    /// Checks a frame of this side. False: it belongs to nothing, and is skipped.
    ///
    /// # Errors
    /// [`WireError`] if it breaks the rules of long payloads.
    pub fn take(&mut self, frame: &Frame<'_>) -> Result<bool, WireError> {
        match frame.kind {
            Kind::Chunk => self.chunk(frame),
            // The exchange ends, even in the middle of a payload.
            Kind::Fail if !frame.flags.more() => Ok(true),
            Kind::Publish | Kind::Call | Kind::Reply | Kind::Fail | Kind::Item | Kind::End
                if self.remaining.is_some() =>
            {
                let problem = "the payload before it is not complete: send all of its chunks first";
                Err(WireError::Unexpected { kind: frame.kind.name(), problem })
            }
            Kind::Publish | Kind::Call | Kind::Reply | Kind::Fail | Kind::Item => {
                if frame.kind == Kind::Item {
                    self.items.take()?;
                }
                if frame.flags.more() {
                    self.placed = frame.is_placed();
                    self.window = if self.placed { 0 } else { limits::LINK_WINDOW_BYTES.default };
                    self.remaining = Some(stated_bytes(frame));
                }
                Ok(true)
            }
            _ => Ok(true),
        }
    }

    /// The receiver asks for more.
    pub fn requested(&mut self, bytes: u32) {
        self.requested = self.requested.saturating_add(bytes.into()).min(ASKED_MAX);
        self.placed = false;
    }

    /// The receiver has read the payload in shared memory. False: none is there.
    pub fn end_placed(&mut self) -> bool {
        if self.placed {
            self.remaining = None;
        }
        std::mem::take(&mut self.placed)
    }

    fn chunk(&mut self, frame: &Frame<'_>) -> Result<bool, WireError> {
        let Some(remaining) = self.remaining else { return Ok(false) };
        let (count, more) = (frame.payload.len() as u64, frame.flags.more());
        let problem = match count {
            _ if count > remaining => "the payload is longer than was stated",
            _ if !more && count < remaining => "the payload is shorter than was stated",
            0 if more => "a chunk that is not the last one is empty",
            _ => "",
        };
        if !problem.is_empty() {
            return Err(WireError::Malformed { kind: "CHUNK", problem });
        }
        if count > self.window + self.requested {
            return Err(WireError::Limit { name: "link_window_bytes", max: limits::LINK_WINDOW_BYTES.default });
        }
        let first = count.min(self.window);
        self.window -= first;
        self.requested -= count - first;
        self.remaining = more.then_some(remaining - count);
        Ok(true)
    }
}
