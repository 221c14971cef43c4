//! Tests of messages between bridges.

use tidewire_proto::wire::Flags;

use super::*;

const FRAME_MAX: usize = 1 << 20;

fn call(subject: &str, out: &mut Vec<u8>) {
    let head = CallHead { origin: 0, to: 0, deadline_ms: 0, choice: 0, credit: 0, subject, fields: Default::default() };
    wire::write(out, Kind::Call, Flags::NORMAL, 1 << 32, |out| head.put(out), b"\xc0").expect("it is short");
}

#[test]
fn an_envelope_is_read_as_it_was_written() {
    let said = Envelope { what: What::Frames, from: 7, own: 1, other: u64::MAX, sequence: 3, taken: 4 };
    let mut bytes = Vec::new();
    said.put(&mut bytes);
    assert_eq!(bytes.len(), BYTES);
    bytes.extend_from_slice(b"rest");
    assert_eq!(Envelope::read(&bytes), Some((said, &b"rest"[..])));
}

#[test]
fn a_message_without_envelope_is_not_read() {
    let mut bytes = Vec::new();
    Envelope { what: What::Ask, from: 7, own: 1, other: 2, sequence: 3, taken: 4 }.put(&mut bytes);
    assert_eq!(Envelope::read(&bytes[..BYTES - 1]), None);
    for (at, wrong) in [(0, 2), (1, 0), (1, 6), (1, 255)] {
        let mut other = bytes.clone();
        other[at] = wrong;
        assert_eq!(Envelope::read(&other), None, "byte {at} is {wrong}");
    }
}

#[test]
fn a_call_is_alone_on_its_subject() {
    let mut one = Vec::new();
    call("svc.bank.add", &mut one);
    assert!(check(&one, Some("svc.bank.add"), FRAME_MAX).is_ok());
    assert!(check(&one, Some("svc.bank.sub"), FRAME_MAX).is_err());
    assert!(check(&one, None, FRAME_MAX).is_err());
    let mut two = one.clone();
    call("svc.bank.sub", &mut two);
    assert!(check(&two, Some("svc.bank.add"), FRAME_MAX).is_err());
    assert!(check(&[], Some("svc.bank.add"), FRAME_MAX).is_err());
}

#[test]
fn hostile_frames_are_refused_and_never_panic() {
    let mut good = Vec::new();
    wire::write(&mut good, Kind::Item, Flags::NORMAL, 1 << 32, |_| Ok(()), b"\xc0").expect("it is short");
    wire::write(
        &mut good,
        Kind::Fail,
        Flags::NORMAL.with_answer(true),
        9,
        |out| {
            out.extend_from_slice(&[1, 0]);
            Ok(())
        },
        b"no",
    )
    .expect("it is short");
    assert_eq!(check(&good, None, FRAME_MAX).map(|checked| checked.refused), Ok(vec![9]));
    for length in 1..good.len() {
        let whole = wire::read(&good, FRAME_MAX).expect("it is one").expect("it is whole").bytes.len();
        assert_eq!(check(&good[..length], None, FRAME_MAX).is_ok(), length == whole, "{length} bytes");
    }
    let mut state = 1_u64;
    for _ in 0..20_000 {
        let mut bytes = good.clone();
        for _ in 0..3 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 33) as usize % bytes.len();
            bytes[at] = (state >> 17) as u8;
        }
        let _ = check(&bytes, None, FRAME_MAX);
        let _ = Envelope::read(&bytes);
    }
    for kind in [Kind::Hello, Kind::Welcome, Kind::Node, Kind::Error, Kind::Ping, Kind::Pong, Kind::Ok, Kind::Taken] {
        let mut bytes = Vec::new();
        wire::write(&mut bytes, kind, Flags::NORMAL, 1, |_| Ok(()), &[]).expect("it is short");
        assert!(check(&bytes, None, FRAME_MAX).is_err(), "{}", kind.name());
    }
}
