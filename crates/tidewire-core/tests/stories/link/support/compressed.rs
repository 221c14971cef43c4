//! Payloads that get shorter, and compressed forms of them.

use tidewire_core::link::compression::Packed;
use tidewire_core::link::session::{Greeting, OutgoingPayload};

use super::{Random, World};

/// Text, which gets shorter.
pub fn text(bytes: usize) -> Vec<u8> {
    let words: [&[u8]; 4] = [b"wind ", b"tide ", b"harbour ", b"lighthouse "];
    let mut random = Random(5);
    let mut text = Vec::new();
    while text.len() < bytes {
        text.extend_from_slice(random.pick(&words));
    }
    text.truncate(bytes);
    text
}

pub fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    (0..bytes).map(|_| random.next() as u8).collect()
}

pub fn packed(payload: &[u8]) -> OutgoingPayload<'_> {
    let packed = OutgoingPayload::from(payload).packed();
    assert!(matches!(packed, OutgoingPayload::Packed(_)), "it gets shorter");
    packed
}

/// A caller and a callee on `svc`, with these greetings.
pub fn pair_of(seed: u64, caller: &Greeting, callee: &Greeting) -> (World, usize, usize) {
    let mut world = World::new(seed);
    let (caller, callee) = (world.join_with(caller), world.join_with(callee));
    world.subscribe(callee, "svc", "");
    (world, caller, callee)
}

/// Bytes that a node has in its outbox.
pub fn waiting(world: &World, node: usize) -> usize {
    world.nodes[node].session.out.bytes()
}

pub fn frame_of_text() -> Vec<u8> {
    Packed::of(&text(9_000)).unwrap().into_bytes()
}

/// Compressed forms that are broken, and what is said of each.
pub fn broken() -> Vec<(Vec<u8>, &'static str)> {
    let good = frame_of_text();
    let stated = |bytes: u64| [&bytes.to_le_bytes(), &good[8..]].concat();
    let mut twisted = good.clone();
    // The first match goes back before the beginning.
    twisted.splice(12.., [0x10, b'x', 0xff, 0xff, 0x00]);
    twisted.splice(8..12, 5_u32.to_le_bytes());
    vec![
        (vec![], "shorter than the 8 bytes"),
        (good[..7].to_vec(), "shorter than the 8 bytes"),
        (good[..11].to_vec(), "ends before"),
        (good[..good.len() - 1].to_vec(), "ends before"),
        ([&good[..], b"!"].concat(), "bytes follow"),
        (stated(8_999), "more than its share"),
        (stated(9_001), "less than its share"),
        (stated(64 * 1_024 * 1_024), "less than its share"),
        (stated(64 * 1_024 * 1_024 + 1), "link_compressed_bytes"),
        (twisted, "not LZ4"),
        (stated(0), "bytes follow"),
    ]
}
