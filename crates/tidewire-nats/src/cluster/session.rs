//! Session of two bridges: tokens, order and flow control, without a clock and without I/O.
//!
//! Each side has a separate token for each session. A message counts only if it names both tokens,
//! so that messages in flight at the end of a session belong to none. NATS may lose messages: a
//! missing message ends the session, and another session begins.

use super::envelope::{Envelope, What};

/// Bytes of frames that may be in flight in one direction.
pub(super) const WINDOW: u64 = 4 << 20;

/// One side of a session.
#[derive(Debug, Default)]
pub(super) struct Session {
    me: u32,
    own: u64,
    theirs: Option<u64>,
    open: bool,
    sent: u64,
    sent_bytes: u64,
    acked_bytes: u64,
    received: u64,
    taken_bytes: u64,
    reported_bytes: u64,
}

/// Effect of a message on its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// Nothing.
    Nothing,
    /// The receiver has to send the tokens to the other side.
    Answer,
    /// The session begins.
    Begun,
    /// Its frames are to be taken; with them a session may begin.
    Frames {
        /// It begins with them.
        begun: bool,
    },
    /// It asks for an Ack.
    Asked,
    /// A message was lost, or the other side has restarted: this session is over.
    Broken,
    /// The other side has ended it.
    Closed,
}

impl Session {
    /// A side before the first message of the other one.
    pub fn new(me: u32, token: u64) -> Self {
        Self { me, own: token, ..Self::default() }
    }

    pub fn own(&self) -> u64 {
        self.own
    }

    pub fn is_open(&self) -> bool {
        self.open
    }

    /// The envelope of the next message. Frames count.
    pub fn next_envelope(&mut self, what: What, frame_bytes: usize) -> Envelope {
        if what == What::Frames {
            self.sent += 1;
            self.sent_bytes += frame_bytes as u64;
        }
        self.reported_bytes = self.taken_bytes;
        let other = self.theirs.unwrap_or_default();
        Envelope { what, from: self.me, own: self.own, other, sequence: self.sent, taken: self.taken_bytes }
    }

    /// Bytes that may be sent now.
    pub fn sendable_bytes(&self) -> u64 {
        WINDOW.saturating_sub(self.sent_bytes - self.acked_bytes)
    }

    /// True if an ack is due to the other side.
    pub fn owes_ack(&self) -> bool {
        self.open && self.taken_bytes - self.reported_bytes >= WINDOW / 4
    }

    /// Processes a message of the other side, with so many bytes behind the envelope.
    pub fn receive(&mut self, envelope: &Envelope, bytes: usize) -> Received {
        if envelope.what == What::Open {
            return self.receive_open(envelope);
        }
        if self.theirs != Some(envelope.own) || envelope.other != self.own {
            return Received::Nothing;
        }
        let is_new = !std::mem::replace(&mut self.open, true);
        let expected = self.received + u64::from(envelope.what == What::Frames);
        if envelope.sequence != expected || envelope.taken > self.sent_bytes || envelope.taken < self.acked_bytes {
            return Received::Broken;
        }
        self.acked_bytes = envelope.taken;
        match envelope.what {
            What::Frames => {
                self.received += 1;
                self.taken_bytes += bytes as u64;
                Received::Frames { begun: is_new }
            }
            What::Ask => Received::Asked,
            What::Close => Received::Closed,
            What::Ack | What::Open if is_new => Received::Begun,
            What::Ack | What::Open => Received::Nothing,
        }
    }

    fn receive_open(&mut self, envelope: &Envelope) -> Received {
        // Before it is open, no message carries these tokens: the session continues with the other
        // side's new token. If both sides restarted for each other, they would never end.
        if self.open && self.theirs != Some(envelope.own) {
            return Received::Broken;
        }
        self.theirs = Some(envelope.own);
        if envelope.other != self.own {
            return Received::Answer;
        }
        if std::mem::replace(&mut self.open, true) { Received::Nothing } else { Received::Begun }
    }
}

#[cfg(test)]
mod tests;
