//! A compressed payload inflates to as much as it states, within the bound, or is refused, also
//! when it comes in parts; what gets shorter comes back whole.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidewire_core::link::compression::{Bound, Inflater, Packed, Unreadable, inflate};

const MOST: usize = 1 << 20;
/// More than the longest block of a compressed form has, with its length.
const KEPT: usize = 66_000;

fn inflate_in_parts(parts: &[&[u8]], payload: &mut Vec<u8>) -> Result<(), Unreadable> {
    let mut inflater = Inflater::default();
    for part in parts {
        inflater.packed().extend_from_slice(part);
        if inflater.is_ready() {
            inflater.inflate(Bound { most: MOST, capacity: MOST }, payload)?;
        }
        assert!(inflater.packed().len() < KEPT, "it keeps more than a block");
    }
    inflater.end()
}

fuzz_target!(|bytes: &[u8]| {
    let mut payload = Vec::new();
    let inflated = inflate(bytes, MOST, &mut payload);
    match &inflated {
        Ok(()) => {
            let stated = bytes.first_chunk().map(|stated| u64::from_le_bytes(*stated));
            assert_eq!(stated, Some(payload.len() as u64));
        }
        Err(Unreadable::TooLong { bytes, .. }) => assert!(*bytes > MOST as u64 && payload.capacity() == 0),
        Err(other) => assert!(other.to_string().contains(": "), "no fix in {other}"),
    }
    assert!(payload.capacity() <= MOST, "it takes more memory than it may");
    let cut = bytes.len() / 2;
    for parts in [vec![&bytes[..cut], &bytes[cut..]], bytes.chunks(7).collect()] {
        let mut same = Vec::new();
        assert_eq!(inflate_in_parts(&parts, &mut same), inflated);
        assert_eq!(same, payload);
    }
    if let Some(packed) = Packed::of(&bytes) {
        assert!(packed.bytes().len() < bytes.len());
        let mut same = Vec::new();
        inflate(packed.bytes(), bytes.len(), &mut same).expect("it was compressed here");
        assert_eq!(same, bytes);
    }
});
