//! Tests of sessions between two bridges.

use std::collections::VecDeque;

use super::*;

fn pass(from: &mut Session, to: &mut Session, what: What, bytes: usize) -> Received {
    let said = from.next_envelope(what, bytes);
    to.receive(&said, bytes)
}

fn open() -> (Session, Session) {
    let (mut a, mut b) = (Session::new(1, 11), Session::new(2, 22));
    assert_eq!(pass(&mut a, &mut b, What::Open, 0), Received::Answer);
    assert_eq!(pass(&mut b, &mut a, What::Open, 0), Received::Begun);
    assert_eq!(pass(&mut a, &mut b, What::Frames, 10), Received::Frames { begun: true });
    (a, b)
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
        in_flight[1].push_back(sides[0].next_envelope(What::Open, 0));
        for step in 0.. {
            assert!(step < 1_000, "they begin anew for ever");
            let at = draw(2) as usize;
            if losses > 0 && draw(4) == 0 {
                losses -= 1;
                sides[at] = Session::new(at as u32 + 1, token);
                token += 1;
                let said = sides[at].next_envelope(What::Open, 0);
                in_flight[1 - at].push_back(said);
            }
            let Some(said) = in_flight[at].pop_front() else {
                if in_flight[1 - at].is_empty() && losses == 0 {
                    break;
                }
                continue;
            };
            let mut heard = sides[at].receive(&said, 0);
            if heard == Received::Broken {
                sides[at] = Session::new(at as u32 + 1, token);
                token += 1;
                in_flight[1 - at].push_back(sides[at].next_envelope(What::Open, 0));
                heard = if said.what == What::Open { sides[at].receive(&said, 0) } else { Received::Nothing };
            }
            match heard {
                Received::Answer => in_flight[1 - at].push_back(sides[at].next_envelope(What::Open, 0)),
                Received::Begun | Received::Frames { begun: true } => {
                    in_flight[1 - at].push_back(sides[at].next_envelope(What::Frames, 0))
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
    a.next_envelope(What::Frames, 5);
    assert_eq!(pass(&mut a, &mut b, What::Frames, 5), Received::Broken);
    let (mut a, mut b) = open();
    a.next_envelope(What::Frames, 5);
    assert_eq!(pass(&mut a, &mut b, What::Ask, 0), Received::Broken, "the last one is missed, too");
}

#[test]
fn messages_of_another_session_do_not_count() {
    let (mut a, _) = open();
    let late = a.next_envelope(What::Frames, 5);
    let mut b = Session::new(2, 23);
    assert_eq!(b.receive(&late, 5), Received::Nothing);
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
    let mut said = b.next_envelope(What::Ack, 0);
    said.taken = 1_000_000;
    assert_eq!(a.receive(&said, 0), Received::Broken);
}
