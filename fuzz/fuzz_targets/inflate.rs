//! A compressed payload inflates to as much as it states, within the bound, or is refused; what gets shorter comes back whole.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidewire_core::link::compression::{Packed, Unreadable, inflate};

const MOST: usize = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    let mut payload = Vec::new();
    match inflate(bytes, MOST, &mut payload) {
        Ok(()) => {
            let stated = bytes.first_chunk().map(|stated| u64::from_le_bytes(*stated));
            assert_eq!(stated, Some(payload.len() as u64));
        }
        Err(Unreadable::TooLong { bytes, .. }) => assert!(bytes > MOST as u64 && payload.capacity() == 0),
        Err(other) => assert!(other.to_string().contains(": "), "no mend in {other}"),
    }
    assert!(payload.capacity() <= MOST, "it takes more memory than it may");
    if let Some(packed) = Packed::of(&bytes) {
        assert!(packed.bytes().len() < bytes.len());
        assert_eq!(packed.inflate(), bytes);
    }
});
