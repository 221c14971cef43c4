//! Session of two bridges: tokens, order and flow control, without a clock and without I/O.
//!
//! Each side has a separate token for each session. A message counts only if it names both tokens,
//! so that messages in flight at the end of a session belong to none. NATS may lose messages: a
//! missing message ends the session, and another session begins.

use super::envelope::{Envelope, What};

/// Bytes of frames that may be in flight in one direction.
pub(super) const WINDOW: u64 = 4 << 20;

/// One side of a session.
#[derive(Debug)]
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
    /// A side that has not heard of the other one.
    pub fn new(me: u32, token: u64) -> Self {
        Self {
            me,
            own: token,
            theirs: None,
            open: false,
            sent: 0,
            sent_bytes: 0,
            acked_bytes: 0,
            received: 0,
            taken_bytes: 0,
            reported_bytes: 0,
        }
    }

    pub fn own(&self) -> u64 {
        self.own
    }

    pub fn is_open(&self) -> bool {
        self.open
    }

    /// The envelope of the next message. Frames count.
    pub fn say(&mut self, what: What, frame_bytes: usize) -> Envelope {
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

    /// Takes a message of the other side, with so many bytes behind the envelope.
    pub fn heard(&mut self, said: &Envelope, bytes: usize) -> Received {
        if said.what == What::Open {
            return self.opened(said);
        }
        if self.theirs != Some(said.own) || said.other != self.own {
            return Received::Nothing;
        }
        let begun = !std::mem::replace(&mut self.open, true);
        let expected = self.received + u64::from(said.what == What::Frames);
        if said.sequence != expected || said.taken > self.sent_bytes || said.taken < self.acked_bytes {
            return Received::Broken;
        }
        self.acked_bytes = said.taken;
        match said.what {
            What::Frames => {
                self.received += 1;
                self.taken_bytes += bytes as u64;
                Received::Frames { begun }
            }
            What::Ask => Received::Asked,
            What::Close => Received::Closed,
            What::Ack | What::Open if begun => Received::Begun,
            What::Ack | What::Open => Received::Nothing,
        }
    }

    fn opened(&mut self, said: &Envelope) -> Received {
        // Before it is open, no message carries these tokens: the session continues with the other
        // side's new token. If both sides restarted for each other, they would never end.
        if self.open && self.theirs != Some(said.own) {
            return Received::Broken;
        }
        self.theirs = Some(said.own);
        if said.other != self.own {
            return Received::Answer;
        }
        if std::mem::replace(&mut self.open, true) { Received::Nothing } else { Received::Begun }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    fn pass(from: &mut Session, to: &mut Session, what: What, bytes: usize) -> Received {
        let said = from.say(what, bytes);
        to.heard(&said, bytes)
    }

    fn open() -> (Session, Session) {
        let (mut a, mut b) = (Session::new(1, 11), Session::new(2, 22));
        assert_eq!(pass(&mut a, &mut b, What::Open, 0), Received::Answer);
        assert_eq!(pass(&mut b, &mut a, What::Open, 0), Received::Begun);
        assert_eq!(pass(&mut a, &mut b, What::Frames, 10), Received::Frames { begun: true });
        (a, b)
    }

    #[test]
    fn two_that_open_at_once_have_one_session() {
        let (mut a, mut b) = (Session::new(1, 11), Session::new(2, 22));
        let (mut to_a, mut to_b) = (VecDeque::from([b.say(What::Open, 0)]), VecDeque::from([a.say(What::Open, 0)]));
        for _ in 0..10 {
            if let Some(said) = to_a.pop_front()
                && a.heard(&said, 0) == Received::Answer
            {
                to_b.push_back(a.say(What::Open, 0));
            }
            if let Some(said) = to_b.pop_front()
                && b.heard(&said, 0) == Received::Answer
            {
                to_a.push_back(b.say(What::Open, 0));
            }
        }
        assert!(a.is_open() && b.is_open() && to_a.is_empty() && to_b.is_empty());
    }

    #[test]
    fn two_that_begin_anew_at_any_moment_have_one_session_in_the_end() {
        let mut state = 1_u64;
        let mut draw = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        for _ in 0..2_000 {
            let mut sides = [Session::new(1, 1), Session::new(2, 2)];
            let mut token = 3;
            // Messages in flight, by receiver.
            let mut in_flight = [VecDeque::new(), VecDeque::new()];
            let mut losses = draw(4);
            in_flight[1].push_back(sides[0].say(What::Open, 0));
            for step in 0.. {
                assert!(step < 1_000, "they begin anew for ever");
                let at = draw(2) as usize;
                if losses > 0 && draw(4) == 0 {
                    losses -= 1;
                    sides[at] = Session::new(at as u32 + 1, token);
                    token += 1;
                    let said = sides[at].say(What::Open, 0);
                    in_flight[1 - at].push_back(said);
                }
                let Some(said) = in_flight[at].pop_front() else {
                    if in_flight[1 - at].is_empty() && losses == 0 {
                        break;
                    }
                    continue;
                };
                let mut heard = sides[at].heard(&said, 0);
                if heard == Received::Broken {
                    sides[at] = Session::new(at as u32 + 1, token);
                    token += 1;
                    in_flight[1 - at].push_back(sides[at].say(What::Open, 0));
                    heard = if said.what == What::Open { sides[at].heard(&said, 0) } else { Received::Nothing };
                }
                match heard {
                    Received::Answer => in_flight[1 - at].push_back(sides[at].say(What::Open, 0)),
                    Received::Begun | Received::Frames { begun: true } => {
                        in_flight[1 - at].push_back(sides[at].say(What::Frames, 0))
                    }
                    _ => {}
                }
            }
            let [a, b] = &sides;
            assert!(a.is_open() && b.is_open() && a.theirs == Some(b.own) && b.theirs == Some(a.own));
        }
    }

    #[test]
    fn a_message_that_is_missing_breaks_the_session() {
        let (mut a, mut b) = open();
        a.say(What::Frames, 5);
        assert_eq!(pass(&mut a, &mut b, What::Frames, 5), Received::Broken);
        let (mut a, mut b) = open();
        a.say(What::Frames, 5);
        assert_eq!(pass(&mut a, &mut b, What::Ask, 0), Received::Broken, "the last one is missed, too");
    }

    #[test]
    fn messages_of_another_session_do_not_count() {
        let (mut a, _) = open();
        let late = a.say(What::Frames, 5);
        let mut b = Session::new(2, 23);
        assert_eq!(b.heard(&late, 5), Received::Nothing);
        assert_eq!(pass(&mut b, &mut a, What::Open, 0), Received::Broken);
    }

    #[test]
    fn messages_in_flight_are_bounded_until_taken() {
        let (mut a, mut b) = open();
        let (mut sent, part) = (10, 100_000);
        while a.sendable_bytes() > 0 {
            assert_eq!(pass(&mut a, &mut b, What::Frames, part), Received::Frames { begun: false });
            sent += part as u64;
        }
        assert!(sent >= WINDOW && sent < WINDOW + part as u64);
        assert!(b.owes_ack());
        assert_eq!(pass(&mut b, &mut a, What::Ack, 0), Received::Nothing);
        assert!(!b.owes_ack());
        assert_eq!(a.sendable_bytes(), WINDOW);
    }

    #[test]
    fn nobody_acks_what_was_not_sent() {
        let (mut a, mut b) = open();
        let mut said = b.say(What::Ack, 0);
        said.taken = 1_000_000;
        assert_eq!(a.heard(&said, 0), Received::Broken);
    }
}
