//! The compressed form of payloads: whole, in parts, and broken.

use proptest::prelude::*;
use tidewire_core::link::compression::{Bound, Inflater, Packed, Unreadable, inflate};
use tidewire_core::link::outbox::PayloadParts;

use crate::link::support::compressed::{broken, noise, text};
use crate::link::support::{KIB, MIB, filled};

fn inflated(packed: &[u8], most: usize) -> Result<Vec<u8>, Unreadable> {
    let mut out = Vec::new();
    inflate(packed, most, &mut out).map(|()| out)
}

#[test]
fn a_bomb_costs_no_memory_before_its_length_is_known_to_be_allowed() {
    let bomb = Packed::of(&vec![0; 64 * MIB]).unwrap().into_bytes();
    assert!(bomb.len() < MIB);
    let mut out = Vec::new();
    assert_eq!(
        inflate(&bomb, 64 * MIB - 1, &mut out),
        Err(Unreadable::TooLong { bytes: 64 * MIB as u64, max: 64 * MIB - 1 })
    );
    assert_eq!(out.capacity(), 0);
    // One that lies about its length is given up at the block where that shows.
    let lying = [&(2 * MIB as u64).to_le_bytes(), &bomb[8..]].concat();
    assert_eq!(inflate(&lying, 64 * MIB, &mut out), Err(Unreadable::Broken("bytes follow its last block")));
    assert!(out.len() <= 2 * MIB && out.capacity() <= 2 * MIB);
    assert!(Packed::of(&vec![0; 64 * MIB + 1]).is_none(), "what nobody would take is not compressed");
}

#[test]
fn a_payload_that_does_not_shrink_is_sent_as_it_is() {
    for bytes in [0, 1, 16, 9_000, 300 * KIB] {
        assert!(Packed::of(&noise(bytes, 7)).is_none(), "{bytes}");
    }
    // The first block decides soon, and so does the whole.
    assert!(Packed::of(&[noise(64 * KIB, 1), text(MIB)].concat()).is_none());
    assert!(Packed::of(&[text(64 * KIB), noise(MIB, 1)].concat()).is_none());
    assert!(Packed::of(&filled(MIB, 1)).is_some());
}

/// The hex after a name in the golden frame "reply, compressed".
fn golden(name: &str) -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/vectors/frames.json");
    let text = std::fs::read_to_string(path).expect("the golden frames are there");
    let vector = text.split("\"reply, compressed\"").nth(1).expect("it is among them");
    let hex = vector.split(&format!("\"{name}\": \"")).nth(1).and_then(|rest| rest.split('"').next());
    let digits = hex.expect("it has this part").as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

#[test]
fn the_golden_payload_inflates_to_what_it_was_made_of() {
    assert_eq!(inflated(&golden("payload"), 100), Ok(golden("inflated")));
}

/// As [`inflated`], with the compressed form in pieces of these lengths, in turns.
fn inflated_in_parts(packed: &[u8], lengths: &[usize], most: usize) -> Result<Vec<u8>, Unreadable> {
    let (mut inflater, mut out, mut at) = (Inflater::default(), Vec::new(), 0);
    for length in lengths.iter().cycle() {
        let end = (at + length).min(packed.len());
        inflater.packed().extend_from_slice(&packed[at..end]);
        at = end;
        if inflater.is_ready() {
            inflater.inflate(Bound { most, room: most }, &mut out)?;
            assert!(!inflater.is_ready(), "nothing more can be done");
        }
        assert!(inflater.packed().len() < 66_000, "{} bytes are kept", inflater.packed().len());
        if at == packed.len() {
            break;
        }
    }
    inflater.end().map(|()| out)
}

#[test]
fn wherever_a_compressed_form_is_cut_the_payload_is_the_same() {
    let form = Packed::of(&text(2_000)).unwrap().into_bytes();
    for cut in 1..form.len() {
        assert_eq!(inflated_in_parts(&form, &[cut, form.len()], 2_000), Ok(text(2_000)), "cut at {cut}");
        let ended = inflated(&form[..cut], 2_000);
        assert!(matches!(ended, Err(Unreadable::Broken(_))), "{ended:?} of the first {cut}");
        assert_eq!(inflated_in_parts(&form[..cut], &[1], 2_000), ended);
    }
    for (form, problem) in broken() {
        for cut in 1..=form.len().max(1) {
            let said = inflated_in_parts(&form, &[cut], 256 * MIB);
            assert!(matches!(said, Err(Unreadable::Broken(why)) if why.contains(problem)), "{said:?}, not {problem}");
        }
    }
}

#[test]
fn a_fault_in_any_of_several_blocks_is_found_there() {
    let payload = [text(64 * KIB), filled(64 * KIB, 1), text(10_000)].concat();
    let form = Packed::of(&payload).unwrap().into_bytes();
    let mut block = 8;
    for blocks in 0..3 {
        let bytes = u32::from_le_bytes(form[block..block + 4].try_into().unwrap());
        for wrong in [0, bytes - 1, bytes + 1, 70_000, u32::MAX] {
            let mut form = form.clone();
            form[block..block + 4].copy_from_slice(&wrong.to_le_bytes());
            let (mut inflater, mut out) = (Inflater::default(), Vec::new());
            inflater.packed().extend_from_slice(&form);
            let done = inflater.inflate(Bound { most: MIB, room: MIB }, &mut out).and_then(|()| inflater.end());
            assert!(matches!(done, Err(Unreadable::Broken(_))), "{done:?}");
            assert_eq!(out[..blocks * 64 * KIB], payload[..blocks * 64 * KIB]);
            assert_eq!(inflated_in_parts(&form, &[5_000], MIB), done.map(|()| out));
        }
        block += 4 + bytes as usize;
    }
    assert_eq!(block, form.len());
}

/// A payload in pieces of these lengths.
struct Cut(Vec<u8>, Vec<usize>);

impl PayloadParts for Cut {
    fn bytes(&self) -> usize {
        self.0.len()
    }

    fn piece(&self, at: usize) -> &[u8] {
        let mut end = 0;
        for length in self.1.iter().cycle() {
            end = (end + length).min(self.0.len());
            if end > at {
                return &self.0[at..end];
            }
        }
        &[]
    }
}

fn payloads() -> impl Strategy<Value = Vec<u8>> {
    let part = (0_usize..70_000, any::<u64>(), any::<bool>())
        .prop_map(|(bytes, seed, plain)| if plain { noise(bytes / 8, seed) } else { filled(bytes, seed as u32) });
    prop::collection::vec(part, 0..6).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_payload_that_shrinks_comes_back_whole(payload in payloads(), cuts in prop::collection::vec(1_usize..90_000, 1..5)) {
        let (whole, cut) = (Packed::of(&payload), Packed::of(&Cut(payload.clone(), cuts)));
        prop_assert_eq!(&whole, &cut);
        if let Some(packed) = whole {
            prop_assert!(packed.bytes().len() <= payload.len() - payload.len() / 8);
            prop_assert!(inflated(packed.bytes(), payload.len()).as_ref() == Ok(&payload));
            prop_assert!(inflated(packed.bytes(), payload.len() - 1).is_err());
        }
    }

    #[test]
    fn a_form_that_comes_in_parts_is_read_as_one_that_is_whole(
        payload in payloads(),
        lengths in prop::collection::vec(1_usize..90_000, 1..5),
        wrong in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
    ) {
        let Some(packed) = Packed::of(&payload) else { return Ok(()) };
        let mut form = packed.into_bytes();
        if let Some((at, byte)) = wrong {
            let at = at.index(form.len());
            form[at] = byte;
        }
        prop_assert!(inflated_in_parts(&form, &lengths, MIB) == inflated(&form, MIB));
    }

    #[test]
    fn every_payload_is_inflated_to_its_stated_length_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400), stated in 0_u64..70_000) {
        let block = bytes.len() as u32;
        let form = [&stated.to_le_bytes()[..], &block.to_le_bytes(), &bytes].concat();
        if let Ok(payload) = inflated(&form, 65_536) {
            prop_assert_eq!(payload.len() as u64, stated);
        }
    }
}
