//! The codec of links at its limits, and its errors for broken rules.

use tidewire_proto::generated::limits::{LINK_FIELDS, LINK_FRAME_BYTES, LINK_HEAD_BYTES};
use tidewire_proto::wire::{
    BegunChunk, CallHead, FRAME_HEAD, Fields, FieldsWriter, Flags, Hello, Kind, LENGTH_BYTES, PublishHead,
    SubscribeHead, Welcome, WireError, common_version, read, set_id, set_route, write,
};

const LENGTH_MAX: usize = LINK_FRAME_BYTES.default as usize;

#[test]
fn a_frame_may_be_as_long_as_the_limit_and_not_longer() {
    let mut out = Vec::new();
    let most = vec![7; LENGTH_MAX - (FRAME_HEAD - LENGTH_BYTES)];
    write(&mut out, Kind::Chunk, Flags::NORMAL, 1, |_| Ok(()), &most).unwrap();
    assert_eq!(read(&out, LENGTH_MAX).unwrap().unwrap().payload, most);
    let refused = WireError::FrameTooLong { bytes: LENGTH_MAX as u64, max: LENGTH_MAX as u64 - 1 };
    assert_eq!(read(&out, LENGTH_MAX - 1), Err(refused));
}

#[test]
fn a_reader_without_a_limit_has_that_of_the_table() {
    let max = LINK_FRAME_BYTES.max;
    let too_long = (max as u32 + 1).to_le_bytes();
    assert_eq!(read(&too_long, usize::MAX), Err(WireError::FrameTooLong { bytes: max + 1, max }));
    assert_eq!(read(&(max as u32).to_le_bytes(), usize::MAX), Ok(None));
}

#[test]
fn a_wrong_length_is_told_before_anything_follows_it() {
    let length = |bytes: u32| read(&bytes.to_le_bytes(), LENGTH_MAX).map(|frame| frame.map(|frame| frame.bytes.len()));
    assert_eq!(length(11), Err(WireError::FrameTooShort { bytes: 11 }));
    assert_eq!(length(12), Ok(None));
    let max = LENGTH_MAX as u64;
    assert_eq!(length(LENGTH_MAX as u32), Ok(None));
    assert_eq!(length(LENGTH_MAX as u32 + 1), Err(WireError::FrameTooLong { bytes: max + 1, max }));
}

#[test]
fn each_flag_and_each_lane_is_set_and_cleared_alone() {
    for byte in 0..128 {
        let flags = Flags::of(byte).unwrap();
        assert_eq!((flags.byte(), flags.lane()), (byte, usize::from(byte % 4)));
        (0..4).for_each(|lane| assert_eq!(flags.in_lane(lane).byte(), byte / 4 * 4 + lane));
        let other = flags.with_more(!flags.more()).with_answer(!flags.answer());
        let other = other.with_compressed(!other.compressed()).with_again(!other.again()).with_placed(!other.placed());
        assert_eq!(other.byte(), byte ^ 0b111_1100);
    }
}

#[test]
fn a_writer_refuses_a_frame_that_no_reader_takes_and_writes_nothing() {
    let mut out = b"before".to_vec();
    let payload = vec![0; LINK_FRAME_BYTES.max as usize];
    let error = write(&mut out, Kind::Chunk, Flags::NORMAL, 1, |_| Ok(()), &payload).unwrap_err();
    assert_eq!(error, WireError::FrameTooLong { bytes: payload.len() as u64 + 12, max: LINK_FRAME_BYTES.max });
    for head_bytes in [LINK_HEAD_BYTES.default as usize + 1, 65_536] {
        let head = |out: &mut Vec<u8>| {
            out.resize(out.len() + head_bytes, 0);
            Ok(())
        };
        let error = write(&mut out, Kind::Call, Flags::NORMAL, 1, head, b"").unwrap_err();
        assert_eq!(error, WireError::Limit { name: "link_head_bytes", max: LINK_HEAD_BYTES.default });
    }
    assert_eq!(out, b"before");
}

#[test]
fn heads_that_no_reader_takes_are_not_written() {
    let refused = |head: &dyn Fn(&mut Vec<u8>) -> Result<(), WireError>| {
        let mut out = Vec::new();
        let error = write(&mut out, Kind::Call, Flags::NORMAL, 1, head, b"").unwrap_err();
        assert_eq!(out, b"");
        error.to_string()
    };
    let call = CallHead { subject: "a", choice: 4, ..CallHead::default() };
    let told =
        "CALL: choice=4 is not allowed: send 0 for the least busy, 1 for the first, 2 for any, or 3 after a refusal";
    assert_eq!(refused(&|out| call.put(out)), told);
    let told = "subject \"a.*\": token 2 holds '*' at byte 2; wildcards belong in patterns; name the subject in full";
    assert_eq!(refused(&|out| PublishHead { subject: "a.*", ..PublishHead::default() }.put(out)), told);
    let queue = "q".repeat(256);
    let told = "queue_name_bytes=255 is exceeded: send less";
    assert_eq!(refused(&|out| SubscribeHead { queue: &queue, pattern: "a" }.put(out)), told);
    let told = "pattern \"\": is empty; write at least one token, such as \"orders\"";
    assert_eq!(refused(&|out| SubscribeHead { queue: "", pattern: "" }.put(out)), told);
}

#[test]
fn a_field_too_many_is_refused_and_leaves_the_others_as_they_are() {
    let mut out = Vec::new();
    let mut writer = FieldsWriter::new(&mut out);
    assert_eq!(writer.add(&"n".repeat(256), b""), Err(WireError::Limit { name: "field_name_bytes", max: 255 }));
    assert_eq!(writer.add("n", &[0; 65_536]), Err(WireError::Limit { name: "field_value_bytes", max: 65_535 }));
    for n in 0..LINK_FIELDS.default {
        writer.add(&n.to_string(), b"v").unwrap();
    }
    let error = writer.add("one more", b"v").unwrap_err();
    assert_eq!(error.to_string(), "link_fields=64 is exceeded: send fewer fields");
    let fields = Fields::parse("CALL", &out).unwrap();
    assert_eq!((fields.len(), fields.get("63"), fields.get("one more")), (64, Some(&b"v"[..]), None));
}

#[test]
fn only_decimal_digits_are_a_number() {
    let mut out = Vec::new();
    let mut writer = FieldsWriter::new(&mut out);
    for text in ["0", "18446744073709551615", "18446744073709551616", "+5", "-1", " 5", "5 ", "", "٥", "0x10", "1_000"]
    {
        writer.add(text, text.as_bytes()).unwrap();
    }
    let fields = Fields::parse("HELLO", &out).unwrap();
    let numbers: Vec<(&str, u64)> = fields.iter().filter_map(|(name, _)| Some((name, fields.number(name)?))).collect();
    assert_eq!(numbers, [("0", 0), ("18446744073709551615", u64::MAX)]);
}

#[test]
fn only_a_hello_is_read_as_one() {
    let mut out = Vec::new();
    write(&mut out, Kind::Ping, Flags::URGENT, 0, |out| Hello::put(1, 2, out), b"").unwrap();
    let error = Hello::parse(&read(&out, LENGTH_MAX).unwrap().unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "the first frame is not a HELLO: join with a client of Tidewire");
    out[4] = Kind::Hello as u8;
    assert_eq!(Hello::parse(&read(&out, LENGTH_MAX).unwrap().unwrap()).unwrap().newest, 2);
}

#[test]
fn only_a_welcome_is_read_as_one() {
    let mut out = Vec::new();
    let head = |out: &mut Vec<u8>| {
        out.extend_from_slice(&1_u16.to_le_bytes());
        Ok(())
    };
    write(&mut out, Kind::Error, Flags::URGENT, 0, head, b"").unwrap();
    let error = Welcome::parse(&read(&out, LENGTH_MAX).unwrap().unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "ERROR: the first frame must be a WELCOME or an ERROR: send one of them");
    out[4] = Kind::Welcome as u8;
    assert_eq!(Welcome::parse(&read(&out, LENGTH_MAX).unwrap().unwrap()).unwrap().version, 1);
}

#[test]
fn the_newest_common_version_is_chosen() {
    let cases =
        [((1, 1), (1, 1), Some(1)), ((1, 3), (2, 5), Some(3)), ((4, 5), (1, 4), Some(4)), ((1, 1), (2, 3), None)];
    for (one, other, common) in cases {
        assert_eq!((common_version(one, other), common_version(other, one)), (common, common));
    }
}

#[test]
fn a_route_changes_a_call_in_place() {
    let mut out = Vec::new();
    let head = CallHead { subject: "a.b", deadline_ms: 5, ..CallHead::default() };
    write(&mut out, Kind::Call, Flags::NORMAL, 1, |out| head.put(out), b"value").unwrap();
    set_id(&mut out, u64::MAX - 1);
    set_route(&mut out, 7, 8);
    let frame = read(&out, LENGTH_MAX).unwrap().unwrap();
    assert_eq!((frame.id, frame.payload), (u64::MAX - 1, &b"value"[..]));
    assert_eq!(CallHead::parse(frame.head), Ok(CallHead { origin: 7, to: 8, ..head }));
}

#[test]
fn the_parts_of_a_chunk_that_comes_bit_by_bit_are_chunks() {
    for more in [false, true] {
        let flags = Flags::NORMAL.with_answer(true).with_more(more);
        let mut out = Vec::new();
        write(&mut out, Kind::Chunk, flags, 9, |_| Ok(()), &[7; 50]).unwrap();
        assert_eq!(BegunChunk::of(&out[..FRAME_HEAD - 1]), None, "it can't be told yet what it is");
        let mut chunk = BegunChunk::of(&out[..FRAME_HEAD]).unwrap();
        assert_eq!(chunk, BegunChunk { flags, id: 9, left: 50 });
        assert_eq!(chunk.take(20), flags.with_more(true), "more of the same payload follows");
        assert_eq!(chunk.take(30), flags);
        assert_eq!(chunk.left, 0);
    }
    let mut other = Vec::new();
    write(&mut other, Kind::Ping, Flags::URGENT, 9, |_| Ok(()), &[]).unwrap();
    assert_eq!(BegunChunk::of(&other), None, "other frames are taken whole");
}
