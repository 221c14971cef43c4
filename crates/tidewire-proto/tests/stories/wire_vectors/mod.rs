//! The golden frames of `spec/vectors/frames.json`, read and written.
//!
//! To add a frame, write its parts and leave `hex` empty: the test that fails then tells the hex.

mod json;
mod parts;

use std::collections::BTreeSet;

use json::Json;
use parts::{frame_of, parts_of};
use tidewire_proto::generated::limits::LINK_FRAME_BYTES;
use tidewire_proto::wire::{Kind, WireError, read};

const LENGTH_MAX: usize = LINK_FRAME_BYTES.default as usize;

#[test]
fn every_frame_is_written_as_it_is_in_the_file() {
    for vector in vectors().at("frames").list() {
        let wanted = vector.get("written").unwrap_or(vector.at("hex"));
        let written = frame_of(vector).unwrap();
        let told: String = written.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(told, wanted.text(), "the hex of {}", vector.at("name").text());
    }
}

#[test]
fn every_frame_is_read_as_it_is_in_the_file() {
    for vector in vectors().at("frames").list() {
        let (name, bytes) = (vector.at("name").text(), vector.at("hex").hex());
        let frame = read(&bytes, LENGTH_MAX).unwrap().unwrap_or_else(|| panic!("{name}: not all there"));
        assert_eq!(frame.bytes, bytes, "{name}: its length");
        assert_eq!(frame.check(), Ok(()), "{name}");
        let Json::Object(entries) = parts_of(&frame) else { panic!("{name}: the parts are an object") };
        for (part, value) in entries {
            assert_eq!(Some(&value), vector.get(&part), "{part} of {name}");
        }
    }
}

#[test]
fn every_malformed_frame_is_refused_for_its_rule() {
    for vector in vectors().at("malformed").list() {
        let (name, bytes) = (vector.at("name").text(), vector.at("hex").hex());
        let error = refusal(&bytes).unwrap_or_else(|| panic!("{name}: taken"));
        assert_eq!(rule(&error), vector.at("rule").text(), "{name}: {error}");
        let told = error.to_string();
        assert!(told.contains(": ") || told.contains("; "), "{name}: no fix in {told}");
    }
}

#[test]
fn each_kind_has_a_frame_and_each_rule_a_malformed_one() {
    let vectors = vectors();
    let kinds: BTreeSet<&str> = vectors.at("frames").list().iter().map(|vector| vector.at("kind").text()).collect();
    assert_eq!(kinds, Kind::ALL.iter().map(|kind| kind.name()).collect());
    let rules: BTreeSet<&str> = vectors.at("malformed").list().iter().map(|vector| vector.at("rule").text()).collect();
    assert_eq!(rules, BTreeSet::from(RULES));
}

#[test]
fn every_name_is_told_once() {
    let vectors = vectors();
    let all: Vec<&Json> = ["frames", "malformed"].iter().flat_map(|part| vectors.at(part).list()).collect();
    let names: BTreeSet<&str> = all.iter().map(|vector| vector.at("name").text()).collect();
    assert_eq!(names.len(), all.len());
}

const RULES: [&str; 12] = [
    "frame_long",
    "frame_short",
    "kind",
    "flags",
    "link_head_bytes",
    "link_fields",
    "not_tidewire",
    "short",
    "long",
    "utf8",
    "subject",
    "value",
];

fn vectors() -> Json {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/vectors/frames.json");
    Json::read(&std::fs::read_to_string(path).expect("the vectors are in spec/vectors"))
}

fn refusal(bytes: &[u8]) -> Option<WireError> {
    match read(bytes, LENGTH_MAX) {
        Ok(frame) => frame.expect("all of a malformed frame is in the file").check().err(),
        Err(error) => Some(error),
    }
}

fn rule(error: &WireError) -> &'static str {
    match error {
        WireError::FrameTooLong { .. } => "frame_long",
        WireError::FrameTooShort { .. } => "frame_short",
        WireError::UnknownKind(_) => "kind",
        WireError::UnknownFlags(_) => "flags",
        WireError::Limit { name, .. } => name,
        WireError::NotTidewire => "not_tidewire",
        WireError::Short { .. } => "short",
        WireError::Long { .. } => "long",
        WireError::NotUtf8 { .. } => "utf8",
        WireError::Subject(_) => "subject",
        WireError::NotAllowed { .. } => "value",
        other => panic!("no rule of the vectors: {other}"),
    }
}
