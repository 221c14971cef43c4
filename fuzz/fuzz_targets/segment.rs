//! Any bytes are a segment of a log, a damaged one or none; and of one that was written, all that
//! lies before the first damage is read as it was.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidewire_core::stream::log::{New, Options, SegmentInfo, StreamLog};
use tidewire_core::stream::record::{Event, SEGMENT_BYTES, Segment, headers_of};
use tidewire_core::stream::scan::{Scanned, Tail, salvage, scan};

const ID: u64 = 7;

fuzz_target!(|bytes: &[u8]| {
    look(bytes);
    drop(SegmentInfo::decode(bytes));
    drop(headers_of(bytes));
    let Some((cuts, messages)) = bytes.split_at_checked(12) else { return };
    let (mut segment, ends) = written(messages);
    let (scanned, found) = look(&segment);
    assert_eq!(scanned.tail, Tail::Clean);
    assert_eq!((scanned.end, found.len()), (segment.len() as u64, ends.len()));
    // Up to four bytes change, and the end may be torn off.
    let mut first = segment.len();
    for cut in cuts[..8].chunks(2).filter(|cut| cut[1] > 0) {
        let at = usize::from(cut[0]) * segment.len() / 256;
        segment[at] ^= cut[1];
        first = first.min(at);
    }
    let length = usize::from(u16::from_le_bytes([cuts[8], cuts[9]])).min(segment.len());
    if cuts[10] & 1 > 0 {
        segment.truncate(length);
        first = first.min(length);
    }
    let (_, left) = look(&segment);
    let whole = ends.iter().filter(|end| **end <= first && first >= SEGMENT_BYTES).count();
    assert_eq!(left.get(..whole), found.get(..whole), "what lies before the damage was changed");
});

/// Reads a segment in each way: what is found lies within it.
fn look(bytes: &[u8]) -> (Scanned, Vec<(u64, Vec<u8>)>) {
    let mut found = Vec::new();
    let scanned = scan(bytes, &mut |record| {
        assert!(record.offset as usize + record.body.len() <= bytes.len());
        assert!(record.group.offset < record.offset);
        found.extend(Event::decode(record.body).map(|event| (event.sequence, event.payload.to_vec())));
    });
    assert!(scanned.end as usize <= bytes.len());
    if let Tail::Corrupt { at, proof } = scanned.tail {
        assert!(scanned.end <= at && at < proof && (proof as usize) < bytes.len());
    }
    let id = Segment::decode(bytes).map_or(ID, |segment| segment.id);
    let mut rescued = 0;
    salvage(bytes, id, &mut |offset, event| {
        rescued += 1;
        assert!(offset as usize + event.payload.len() <= bytes.len());
    });
    assert!(scanned.segment.is_none() || rescued >= found.len(), "a salvage finds at least what a scan does");
    (scanned, found)
}

/// A segment with a message of each nine bytes, and where the group of each message ends.
fn written(messages: &[u8]) -> (Vec<u8>, Vec<usize>) {
    let options = Options {
        max_age_us: None,
        max_bytes: None,
        max_messages: None,
        drop_old: false,
        dedupe_us: 0,
        ids_max: 0,
        compact: None,
        names_max: 0,
        segment_bytes: u64::MAX,
    };
    let mut log = StreamLog::new(options, vec![SegmentInfo::new(ID, 1, SEGMENT_BYTES as u64)], 1);
    let mut bytes = Segment { id: ID, base: 1, created_us: 1 }.encode();
    let mut ends = Vec::new();
    let chunks = messages.chunks(9);
    let last = chunks.len();
    for (number, payload) in chunks.enumerate() {
        let flags = payload[0];
        let new = New {
            subject: "a.b",
            key: (flags & 1 > 0).then_some("key"),
            id: (flags & 2 > 0).then_some("id"),
            headers: &[],
            due_us: (flags & 4 > 0).then_some(9),
            ttl_us: (flags & 8 > 0).then_some(9),
            origin: None,
            beat_us: (flags & 32 > 0).then_some(9),
            payload,
        };
        log.append(&new, u64::from(flags)).expect("there is no limit");
        if (flags & 16 > 0 || number + 1 == last)
            && let Some(group) = log.take_group()
        {
            assert_eq!(group.offset as usize, bytes.len());
            bytes.extend(group.bytes);
            log.synced();
            ends.resize(number + 1, bytes.len());
        }
    }
    (bytes, ends)
}
