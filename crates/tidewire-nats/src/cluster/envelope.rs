//! The codec of messages between two bridges: an envelope of 38 bytes, and behind it frames of the
//! wire or a text.

use std::borrow::Cow;

use tidewire_proto::wire::{self, CallHead, Kind, PublishHead};

/// Bytes of an envelope.
pub(super) const BYTES: usize = 38;
/// Version of the messages between bridges.
const VERSION: u8 = 1;

/// Kind of a message between bridges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum What {
    /// It opens a session, or agrees to one; who the sender is follows.
    Open = 1,
    /// Frames follow.
    Frames = 2,
    /// So much was taken.
    Ack = 3,
    /// Asks for an Ack.
    Ask = 4,
    /// The sender ends the session; why follows.
    Close = 5,
}

/// Header of every message from one bridge to another. Numbers are little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Envelope {
    pub what: What,
    /// The number of the sender.
    pub from: u32,
    /// The sender's token of the session.
    pub own: u64,
    /// The receiver's token of the session, or 0 if it is not known.
    pub other: u64,
    /// Of frames: how many messages with frames there were, this one included. Else: how many there
    /// were.
    pub sequence: u64,
    /// Bytes of frames that the sender has taken.
    pub taken: u64,
}

impl Envelope {
    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[VERSION, self.what as u8]);
        out.extend_from_slice(&self.from.to_le_bytes());
        for number in [self.own, self.other, self.sequence, self.taken] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// Decodes the envelope of a message, and returns the rest. None: no envelope.
    pub fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = bytes.split_first_chunk::<BYTES>()?;
        let what = match head[1] {
            1 => What::Open,
            2 => What::Frames,
            3 => What::Ack,
            4 => What::Ask,
            5 => What::Close,
            _ => return None,
        };
        if head[0] != VERSION {
            return None;
        }
        let number = |at: usize| head[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let from = head[2..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let (own, other, sequence, taken) = (number(6), number(14), number(22), number(30));
        Some((Self { what, from, own, other, sequence, taken }, rest))
    }
}

/// True if a frame goes from one node to the other; the rest is between a node and its own hub.
pub(super) fn travels(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Subscribe
            | Kind::Unsubscribe
            | Kind::Publish
            | Kind::Call
            | Kind::Reply
            | Kind::Fail
            | Kind::Cancel
            | Kind::Item
            | Kind::End
            | Kind::Credit
            | Kind::Window
            | Kind::Chunk
            | Kind::Alive
            | Kind::Goodbye
    )
}

/// Check result of the frames of a message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Checked {
    /// The ids of exchanges that have failed.
    pub refused: Vec<u64>,
    /// Where messages are that mean one subscription, who published each, and the id of that.
    meant: Vec<(usize, u32, u64)>,
}

impl Checked {
    /// The frames, with the serial numbers of the subscriptions that are meant instead of their
    /// ids.
    pub fn with_routes<'a>(&self, frames: &'a [u8], serial: impl Fn(u64) -> u64) -> Cow<'a, [u8]> {
        if self.meant.is_empty() {
            return Cow::Borrowed(frames);
        }
        let mut frames = frames.to_vec();
        for &(at, origin, id) in &self.meant {
            wire::set_route(&mut frames[at..], origin, serial(id));
        }
        Cow::Owned(frames)
    }
}

/// Looks at the frames of a message: whole ones that may travel. A call comes first in its message,
/// and alone, on the subject that NATS has seen. Answers why the message is wrong, if it is.
pub(super) fn check(frames: &[u8], called: Option<&str>, frame_max: usize) -> Result<Checked, &'static str> {
    let (mut checked, mut called, mut at) = (Checked::default(), called, 0);
    while at < frames.len() {
        let frame = match wire::read(&frames[at..], frame_max) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Err("it ends within a frame"),
            Err(_) => return Err("it holds what is no frame"),
        };
        match frame.kind {
            Kind::Call => {
                let head = CallHead::parse(frame.head).map_err(|_| "it holds a call that can't be read")?;
                if called.take() != Some(head.subject) {
                    return Err("a call is not on its subject");
                }
            }
            _ if called.is_some() => return Err("it has the subject of a call, and begins with something else"),
            Kind::Fail => checked.refused.push(frame.id),
            Kind::Publish => {
                let head = PublishHead::parse(frame.head).map_err(|_| "it holds a message that can't be read")?;
                if head.to != 0 {
                    checked.meant.push((at, head.origin, head.to));
                }
            }
            kind if !travels(kind) => return Err("it holds a frame that does not travel"),
            _ => {}
        }
        at += frame.bytes.len();
    }
    match called {
        None => Ok(checked),
        Some(_) => Err("it has the subject of a call, and is empty"),
    }
}

#[cfg(test)]
mod tests;
