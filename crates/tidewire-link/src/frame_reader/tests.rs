//! Stories of frames that arrive in pieces.

use super::*;

use tidewire_core::link::assembly::{Assemblies, Inflated, Progress};
use tidewire_core::link::compression::Packed;
use tidewire_proto::wire::Flags;

const ID: u64 = 1 << 32;

fn frame(kind: Kind, flags: Flags, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    wire::write(&mut out, kind, flags, ID, |_| Ok(()), payload).expect("it is short enough");
    out
}

fn payload(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

/// A payload of three chunks, with a short frame before each, and one after all.
fn sent(payload: &[u8]) -> Vec<u8> {
    sent_with(Flags::NORMAL.with_answer(true), payload)
}

fn sent_with(flags: Flags, payload: &[u8]) -> Vec<u8> {
    let mut out = frame(Kind::Reply, flags.with_more(true), &(payload.len() as u64).to_le_bytes());
    let answer = flags.with_compressed(false);
    let chunks = payload.chunks(payload.len().div_ceil(3));
    for (number, chunk) in chunks.enumerate() {
        out.extend(frame(Kind::Ping, Flags::URGENT, &[]));
        out.extend(frame(Kind::Chunk, answer.with_more(number < 2), chunk));
    }
    out.extend(frame(Kind::Ping, Flags::URGENT, &[]));
    out
}

/// Reads as a node does, at most `step` bytes at a time. Answers the payload that came, and
/// after how many pings.
fn received(mut sent: &[u8], step: usize, straight: bool) -> (Vec<u8>, usize, usize) {
    let (mut reading, mut parts) = (FrameReader::new(1 << 20), Assemblies::new(1 << 20));
    let (mut whole, mut pings, mut beside) = (None, 0, 0);
    let came = |parts: &mut Assemblies, progress| {
        let inflated = parts.to_inflate().map(|mut inflating| {
            inflating.inflate();
            parts.inflated(inflating)
        });
        match (progress, inflated) {
            (Progress::Whole(message), None) | (_, Some(Inflated::Whole(message))) => Some(message.payload().to_vec()),
            _ => None,
        }
    };
    while !sent.is_empty() {
        let mut give = |places: &mut [IoSliceMut<'_>]| {
            let mut given = 0;
            for place in places {
                let count = place.len().min(sent.len()).min(step - given);
                place[..count].copy_from_slice(&sent[..count]);
                (sent, given) = (&sent[count..], given + count);
            }
            Ok(given)
        };
        match reading.begun().filter(|_| straight) {
            Some(mut chunk) => {
                let key = (ID, chunk.flags.answer());
                let filled = parts.fill(key, chunk.left, |spare| reading.beside(spare, give).map(|(count, _)| count));
                let count = filled.expect("it is awaited").expect("it can be read");
                beside += count;
                let flags = chunk.take(count);
                reading.set_begun(chunk);
                let progress = parts.filled(ID, flags, count).expect("it is as was stated");
                whole = came(&mut parts, progress).map(|payload| (payload, pings)).or(whole);
            }
            None => {
                let filled = reading.fill_between(|spare| give(&mut [IoSliceMut::new(spare)]));
                assert_ne!(filled.expect("it can be read"), ReadProgress::Closed);
            }
        }
        let visited = reading.frames_and_begun(|frame| match frame.kind {
            Kind::Ping => pings += 1,
            _ => {
                let progress = parts.take(frame).expect("it is as was stated");
                whole = came(&mut parts, progress).map(|payload| (payload, pings)).or(whole.take());
            }
        });
        visited.expect("they are frames");
    }
    assert_eq!(pings, 4, "a short frame was lost");
    let (whole, before) = whole.expect("it is complete");
    (whole, before, beside)
}

#[test]
fn a_payload_is_whole_and_in_its_place_however_its_bytes_come() {
    let payload = payload(30_000);
    let sent = sent(&payload);
    for straight in [false, true] {
        for step in [1, 7, 15, 16, 17, 4_095, 4_096, 4_097, 10_000, 10_016, 14_000, 1 << 20] {
            let (whole, before, beside) = received(&sent, step, straight);
            assert!(whole == payload, "other bytes came with steps of {step}");
            assert_eq!(before, 3, "a frame overtook another one with steps of {step}");
            assert_eq!(beside > payload.len() / 2, straight, "copied with steps of {step}");
        }
    }
}

#[test]
fn a_payload_that_is_compressed_is_inflated_however_its_bytes_come() {
    let payload: Vec<u8> =
        (0..200_000_u32).map(|at| if at % 3 == 0 { (at.wrapping_mul(at) >> 7) as u8 } else { 0 }).collect();
    let packed = Packed::of(&&payload[..]).expect("it gets shorter");
    let sent = sent_with(Flags::NORMAL.with_answer(true).with_compressed(true), packed.bytes());
    for straight in [false, true] {
        for step in [1, 7, 4_095, 4_097, 30_000, 1 << 20] {
            let (whole, before, beside) = received(&sent, step, straight);
            assert!(whole == payload, "other bytes came with steps of {step}");
            assert_eq!(before, 3, "a frame overtook another one with steps of {step}");
            assert_eq!(beside > packed.bytes().len() / 2, straight, "copied with steps of {step}");
        }
    }
}

#[test]
fn chunks_of_an_abandoned_payload_are_passed_over() {
    let (sent, mut pings) = (sent(&payload(30_000)), 0);
    let (mut reading, mut left) = (FrameReader::new(1 << 20), &sent[..]);
    while !left.is_empty() {
        let filled = reading.fill(|spare| {
            let count = spare.len().min(left.len()).min(900);
            spare[..count].copy_from_slice(&left[..count]);
            left = &left[count..];
            Ok(count)
        });
        filled.expect("it can be read");
        reading.frames_and_begun(|frame| pings += usize::from(frame.kind == Kind::Ping)).expect("they are frames");
    }
    assert_eq!((pings, reading.waiting()), (4, 0));
}

#[test]
fn a_chunk_that_is_read_beside_tells_of_the_end() {
    let mut reading = FrameReader::new(1 << 20);
    let (mut chunk, most) = ([0; 100], 100 + BETWEEN_BYTES);
    for (count, filled) in
        [(0, ReadProgress::Closed), (40, ReadProgress::All), (100, ReadProgress::All), (101, ReadProgress::All)]
    {
        let read = reading.beside(&mut chunk, |_| Ok(count)).expect("it can be read");
        assert_eq!(read, (count.min(100), filled));
        (reading.from, reading.to) = (0, 0);
    }
    assert_eq!(reading.beside(&mut chunk, |_| Ok(most)).expect("it can be read"), (100, ReadProgress::Some));
}
