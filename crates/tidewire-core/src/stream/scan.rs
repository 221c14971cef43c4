//! Recovery of a segment: finds its whole groups, and tells a torn write at the end from
//! corruption.
//!
//! Each group states up to where the segment was synced when the group was written. A damaged place
//! was synced if a later group states so: then it has changed since, which is corruption. Any other
//! damaged place belongs to a write that a crash has torn. Nothing of that write was acknowledged,
//! so it may be cut off with all that follows.

use super::record::{Event, GROUP_BYTES, Group, HEAD, Kind, Parsed, SEGMENT_BYTES, Segment, parse};

/// The content of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// Its head; None if that is damaged, or was never written whole.
    pub segment: Option<Segment>,
    /// Where the next group goes.
    pub end: u64,
    /// How many groups there are.
    pub groups: u64,
    /// The sequence behind its last event, if it was closed: events before it that are not there
    /// were compacted away.
    pub closed: Option<u64>,
    /// The rest after the last whole group.
    pub tail: Tail,
}

/// The rest of a segment after the last whole group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Zeros, or nothing.
    Clean,
    /// A write that a crash has torn: so many bytes up to the last one that is not zero.
    Torn(u64),
    /// Data that was whole once: a later group begins at `proof`.
    Corrupt {
        /// Where the first damaged record begins.
        at: u64,
        /// Where a whole group begins behind it.
        proof: u64,
    },
    /// A file of another version.
    Foreign(u32),
}

/// A record of a whole group.
#[derive(Clone, Copy, Debug)]
pub struct ScannedRecord<'a> {
    /// The group that it is in.
    pub group: &'a Group,
    /// Where its head begins.
    pub offset: u64,
    /// The kind.
    pub kind: Kind,
    /// The body.
    pub body: &'a [u8],
}

/// Reads a whole segment; `visit` gets each record of each whole group, in order.
pub fn scan<'a>(bytes: &'a [u8], visit: &mut dyn FnMut(ScannedRecord<'_>)) -> Scanned {
    let segment = match Segment::decode(bytes) {
        Ok(segment) => segment,
        Err(Some(version)) => {
            return Scanned { segment: None, end: 0, groups: 0, closed: None, tail: Tail::Foreign(version) };
        }
        Err(None) => return Scanned { segment: None, end: 0, groups: 0, closed: None, tail: tail(bytes, None, 0) },
    };
    let (mut at, mut groups, mut closed) = (SEGMENT_BYTES, 0, None);
    while let Some(group) = whole_group(bytes, segment.id, at) {
        groups += 1;
        closed = (group.count == 0).then_some(group.first);
        let end = at + GROUP_BYTES + group.bytes as usize;
        let mut record = at + GROUP_BYTES;
        while record < end {
            let body_bytes = u32::from_le_bytes(bytes[record + 4..record + 8].try_into().expect("four bytes")) as usize;
            let kind = if bytes[record + 8] == Kind::Event as u8 { Kind::Event } else { Kind::Change };
            let body = &bytes[record + HEAD..record + HEAD + body_bytes];
            visit(ScannedRecord { group: &group, offset: record as u64, kind, body });
            record += HEAD + body_bytes;
        }
        at = end;
    }
    Scanned { segment: Some(segment), end: at as u64, groups, closed, tail: tail(bytes, Some(segment.id), at) }
}

/// The group at a place, if it and all its records are whole.
fn whole_group(bytes: &[u8], id: u64, at: usize) -> Option<Group> {
    let Parsed::Record { kind: Kind::Group, body, length } = parse(bytes.get(at..)?, id, at as u64) else {
        return None;
    };
    let group = Group::decode(body, id, at as u64)?;
    let mut record = at + length;
    let end = record.checked_add(group.bytes as usize)?;
    let inside = bytes.get(..end)?;
    for _ in 0..group.count {
        match parse(inside.get(record..)?, id, record as u64) {
            Parsed::Record { kind: Kind::Event, body, length } if Event::decode(body).is_some() => record += length,
            Parsed::Record { kind: Kind::Change, length, .. } => record += length,
            _ => return None,
        }
    }
    (record == end).then_some(group)
}

/// Classifies the rest of a segment from an offset at which no whole group begins.
fn tail(bytes: &[u8], id: Option<u64>, at: usize) -> Tail {
    let Some(last) = bytes.iter().rposition(|byte| *byte != 0).filter(|last| *last >= at) else {
        return Tail::Clean;
    };
    match (at + 1..=last).find(|place| synced_before(bytes, id, *place).is_some_and(|synced| synced > at as u64)) {
        Some(proof) => Tail::Corrupt { at: at as u64, proof: proof as u64 },
        None => Tail::Torn((last + 1 - at) as u64),
    }
}

/// The synced end that the header of a group states, if a group header stands at this offset. If
/// the id of the segment is unknown, a header of any segment counts.
fn synced_before(bytes: &[u8], id: Option<u64>, at: usize) -> Option<u64> {
    // Checked first: few offsets have the kind and length of a group header.
    let head = bytes.get(at..at + GROUP_BYTES)?;
    if head[8] != Kind::Group as u8 || head[4..8] != ((GROUP_BYTES - HEAD) as u32).to_le_bytes() {
        return None;
    }
    let id = id.unwrap_or_else(|| u64::from_le_bytes(head[HEAD..HEAD + 8].try_into().expect("eight bytes")));
    match parse(head, id, at as u64) {
        Parsed::Record { kind: Kind::Group, body, .. } => Group::decode(body, id, at as u64).map(|group| group.synced),
        _ => None,
    }
}

/// Every whole event of a damaged segment, wherever it lies: for salvage.
pub fn salvage<'a>(bytes: &'a [u8], id: u64, visit: &mut dyn FnMut(u64, Event<'a>)) {
    let mut at = SEGMENT_BYTES;
    while at + HEAD <= bytes.len() {
        match parse(&bytes[at..], id, at as u64) {
            Parsed::Record { kind, body, length } => {
                if let (Kind::Event, Some(event)) = (kind, Event::decode(body)) {
                    visit(at as u64, event);
                }
                at += length;
            }
            _ => at += 1,
        }
    }
}
