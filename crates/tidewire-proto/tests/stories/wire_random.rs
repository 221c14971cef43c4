//! The codec of links against random frames, cut streams and bytes that are not frames.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use tidewire_proto::generated::limits::LINK_FRAME_BYTES;
use tidewire_proto::wire::{
    CallHead, FRAME_HEAD, FailHead, Fields, FieldsWriter, Flags, Frame, Hello, Kind, LENGTH_BYTES, PLACE_BYTES,
    PublishHead, SubscribeHead, Welcome, WireError, read, read_u32, write,
};

const LENGTH_MAX: usize = LINK_FRAME_BYTES.default as usize;

/// The parts of a frame, owned.
#[derive(Clone, Debug)]
struct Parts {
    kind: Kind,
    flags: Flags,
    id: u64,
    numbers: (u32, u64, u32, u32, u8),
    versions: (u16, u16),
    subject: String,
    pattern: String,
    queue: String,
    fields: Vec<(String, Vec<u8>)>,
    payload: Vec<u8>,
}

impl Parts {
    fn write(&self, out: &mut Vec<u8>) {
        let payload = if self.has_fields() { self.fields_bytes() } else { self.payload.clone() };
        write(out, self.kind, self.flags, self.id, |out| self.put_head(out), &payload).unwrap();
    }

    fn has_fields(&self) -> bool {
        [Kind::Hello, Kind::Welcome, Kind::Node, Kind::Subscribe].contains(&self.kind)
    }

    fn put_head(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let (oldest, newest) = self.versions;
        match self.kind {
            Kind::Hello => return Hello::put(oldest, newest, out),
            Kind::Welcome | Kind::Error | Kind::Fail => out.extend_from_slice(&newest.to_le_bytes()),
            Kind::Node | Kind::Credit | Kind::Window | Kind::Alive => {
                out.extend_from_slice(&self.numbers.0.to_le_bytes())
            }
            Kind::Subscribe => return SubscribeHead { queue: &self.queue, pattern: &self.pattern }.put(out),
            Kind::Publish => return self.publish(&self.fields_bytes()).put(out),
            Kind::Call => return self.call(&self.fields_bytes()).put(out),
            _ => {}
        }
        Ok(())
    }

    fn publish<'a>(&'a self, fields: &'a [u8]) -> PublishHead<'a> {
        let (origin, to, ..) = self.numbers;
        PublishHead { origin, to, subject: &self.subject, fields: Fields::parse("PUBLISH", fields).unwrap() }
    }

    fn call<'a>(&'a self, fields: &'a [u8]) -> CallHead<'a> {
        let (origin, to, deadline_ms, credit, choice) = self.numbers;
        let fields = Fields::parse("CALL", fields).unwrap();
        CallHead { origin, to, deadline_ms, choice, credit, subject: &self.subject, fields }
    }

    fn fields_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = FieldsWriter::new(&mut out);
        self.fields.iter().for_each(|(name, value)| writer.add(name, value).unwrap());
        out
    }

    /// Panics unless the frame is what these parts make.
    fn check(&self, frame: &Frame<'_>) {
        assert_eq!((frame.kind, frame.flags, frame.id), (self.kind, self.flags, self.id));
        assert_eq!(frame.check(), Ok(()));
        self.check_head(frame);
        if self.has_fields() {
            self.check_fields(Fields::parse("payload", frame.payload).unwrap());
        } else {
            assert_eq!(frame.payload, self.payload);
        }
    }

    fn check_head(&self, frame: &Frame<'_>) {
        let (oldest, newest) = self.versions;
        match self.kind {
            Kind::Hello => {
                let hello = Hello::parse(frame).unwrap();
                assert_eq!((hello.oldest, hello.newest), (oldest, newest));
            }
            Kind::Welcome => assert_eq!(Welcome::parse(frame).unwrap().version, newest),
            Kind::Error | Kind::Fail => assert_eq!(FailHead::parse(frame.head), Ok(FailHead { number: newest })),
            Kind::Node | Kind::Credit | Kind::Window | Kind::Alive => {
                assert_eq!(read_u32(self.kind.name(), frame.head), Ok(self.numbers.0));
            }
            Kind::Subscribe => {
                let head = SubscribeHead { queue: &self.queue, pattern: &self.pattern };
                assert_eq!(SubscribeHead::parse(frame.head), Ok(head));
            }
            Kind::Publish => {
                let head = PublishHead::parse(frame.head).unwrap();
                assert_eq!(head, self.publish(&self.fields_bytes()));
                self.check_fields(head.fields);
            }
            Kind::Call => {
                let head = CallHead::parse(frame.head).unwrap();
                assert_eq!(head, self.call(&self.fields_bytes()));
                self.check_fields(head.fields);
            }
            _ => assert_eq!(frame.head, b""),
        }
    }

    fn check_fields(&self, read: Fields<'_>) {
        let owned: Vec<(String, Vec<u8>)> = read.iter().map(|(name, value)| (name.into(), value.into())).collect();
        assert_eq!(
            (owned, read.len(), read.is_empty()),
            (self.fields.clone(), self.fields.len(), self.fields.is_empty())
        );
        let firsts: BTreeMap<&str, &[u8]> = self.fields.iter().rev().map(|(name, value)| (&**name, &**value)).collect();
        firsts.into_iter().for_each(|(name, value)| assert_eq!(read.get(name), Some(value)));
    }
}

fn parts() -> impl Strategy<Value = Parts> {
    let numbers = (any::<u32>(), any::<u64>(), any::<u32>(), any::<u32>(), 0..4_u8);
    let versions = (1..=u16::MAX).prop_flat_map(|newest| (1..=newest, Just(newest)));
    let texts = ("([a-zü]{1,6}\\.){0,8}[a-z]{1,8}", "(([a-z]{1,3}|\\*)\\.){0,4}(\\*|>|[a-zü]{1,4})", "\\PC{0,30}");
    let fields = vec(("\\PC{0,12}", vec(any::<u8>(), 0..40)), 0..8);
    let fixed = (proptest::sample::select(Kind::ALL), 0..128_u8, any::<u64>());
    (fixed, numbers, versions, texts, fields, vec(any::<u8>(), 0..300)).prop_map(
        |((kind, flags, id), numbers, versions, (subject, pattern, queue), fields, payload)| {
            let flags = flags_for(kind, Flags::of(flags).unwrap());
            let (flags, payload) = payload_for(kind, flags, payload);
            Parts { kind, flags, id, numbers, versions, subject, pattern, queue, fields, payload }
        },
    )
}

fn flags_for(kind: Kind, flags: Flags) -> Flags {
    match kind {
        Kind::Ok | Kind::Reply | Kind::Fail | Kind::Alive => flags.with_answer(true),
        Kind::Call | Kind::Publish | Kind::Cancel | Kind::Subscribe | Kind::Unsubscribe => flags.with_answer(false),
        _ => flags,
    }
}

fn payload_for(kind: Kind, flags: Flags, payload: Vec<u8>) -> (Flags, Vec<u8>) {
    match kind {
        Kind::Error | Kind::Chunk => (flags, payload),
        Kind::Call | Kind::Reply | Kind::Item if flags.more() && flags.placed() => {
            (flags.with_compressed(false), vec![1; 8 + PLACE_BYTES])
        }
        Kind::Call | Kind::Publish | Kind::Reply | Kind::Fail | Kind::Item if flags.more() => (flags, vec![1; 8]),
        Kind::Call | Kind::Publish | Kind::Reply | Kind::Fail | Kind::Item => (flags, payload),
        _ => (flags, Vec::new()),
    }
}

/// Reads all whole frames, and returns them and the rest, which is less than a frame.
fn read_all(mut bytes: &[u8]) -> Result<(Vec<Frame<'_>>, &[u8]), WireError> {
    let mut frames = Vec::new();
    while let Some(frame) = read(bytes, LENGTH_MAX)? {
        assert!(frame.bytes.len() >= FRAME_HEAD);
        bytes = &bytes[frame.bytes.len()..];
        frames.push(frame);
    }
    assert!(bytes.len() < LENGTH_BYTES + LENGTH_MAX, "a reader that has {} bytes asks for more", bytes.len());
    Ok((frames, bytes))
}

/// Reads arbitrary bytes, and decodes everything that seems to be a frame.
fn poke(bytes: &[u8]) {
    match read(bytes, LENGTH_MAX) {
        Ok(Some(frame)) => {
            let told = frame.check().err().map(|error| error.to_string());
            assert!(told.is_none_or(|told| told.contains(": ") || told.contains("; ")));
            assert!(frame.bytes.len() <= bytes.len());
        }
        Ok(None) => assert!(bytes.len() < LENGTH_BYTES + LENGTH_MAX),
        Err(error) => assert!(error.to_string().contains(": "), "no fix in {error}"),
    }
}

proptest! {
    #[test]
    fn written_frames_are_read(parts in parts(), before in vec(any::<u8>(), 0..20), after in vec(any::<u8>(), 0..20)) {
        let mut out = before.clone();
        parts.write(&mut out);
        let end = out.len();
        out.extend_from_slice(&after);
        let frame = read(&out[before.len()..], LENGTH_MAX).unwrap().unwrap();
        prop_assert_eq!(frame.bytes, &out[before.len()..end]);
        prop_assert_eq!(&out[..before.len()], before);
        parts.check(&frame);
    }

    #[test]
    fn a_stream_cut_anywhere_gives_the_same_frames(stream in vec(parts(), 1..6)) {
        let mut bytes = Vec::new();
        stream.iter().for_each(|parts| parts.write(&mut bytes));
        let (whole, rest) = read_all(&bytes).unwrap();
        prop_assert_eq!((whole.len(), rest), (stream.len(), &b""[..]));
        whole.iter().zip(&stream).for_each(|(frame, parts)| parts.check(frame));
        for cut in 0..=bytes.len() {
            let (mut frames, rest) = read_all(&bytes[..cut]).unwrap();
            let (further, rest) = read_all(&bytes[cut - rest.len()..]).map(|(frames, rest)| (frames, rest.len())).unwrap();
            frames.extend(further);
            prop_assert_eq!((&frames, rest), (&whole, 0), "cut at {}", cut);
        }
    }

    #[test]
    fn a_changed_bit_never_panics(parts in parts(), bit in any::<prop::sample::Index>()) {
        let mut bytes = Vec::new();
        parts.write(&mut bytes);
        let bit = bit.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        poke(&bytes);
    }

    #[test]
    fn a_head_or_payload_that_is_cut_never_panics(parts in parts(), cut in any::<prop::sample::Index>()) {
        let mut bytes = Vec::new();
        parts.write(&mut bytes);
        // The lengths say what is left, so that the cut is found by the form and not by the frame.
        bytes.truncate(FRAME_HEAD + cut.index(bytes.len() - FRAME_HEAD + 1));
        let head = usize::from(u16::from_le_bytes([bytes[6], bytes[7]])).min(bytes.len() - FRAME_HEAD);
        bytes[6..8].copy_from_slice(&(head as u16).to_le_bytes());
        let length = (bytes.len() - LENGTH_BYTES) as u32;
        bytes[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
        poke(&bytes);
    }

    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..200), kind in 0..24_u8, head in 0..70_u16) {
        poke(&bytes);
        let mut frame = (12 + bytes.len() as u32).to_le_bytes().to_vec();
        frame.extend_from_slice(&[kind, 0]);
        frame.extend_from_slice(&head.to_le_bytes());
        frame.extend_from_slice(&[0; 8]);
        frame.extend_from_slice(&bytes);
        poke(&frame);
    }
}
