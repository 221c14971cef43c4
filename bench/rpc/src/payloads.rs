//! Bytes by chance from a seed, in the sizes that the Python peers have too.

use bytes::Bytes;

pub const LARGE_BYTES: usize = 2 * 1024 * 1024;
pub const SMALL_BYTES: usize = 256;
const ARRAYS_PERCENT: u64 = 14;

/// `count` payloads of a named size; nobody gains from compressing them, and no two are the same.
pub fn payloads_of(size: &str, count: usize) -> Vec<Bytes> {
    let sizes = match size {
        "small" => vec![SMALL_BYTES; count],
        "medium" => vec![20 * 1024; count],
        "large" => vec![LARGE_BYTES; count],
        "mixed" => mixed_sizes(count),
        _ => panic!("size {size}: small, medium, large or mixed is expected"),
    };
    let mut content = Chances(2);
    sizes.into_iter().map(|size| content.bytes(size)).collect()
}

/// A dashboard's: status updates of 50 to 500 bytes, and arrays of 1 to 10 KB among them.
fn mixed_sizes(count: usize) -> Vec<usize> {
    let mut numbers = Chances(1);
    let mut size = || match numbers.next() % 100 {
        kind if kind < ARRAYS_PERCENT => 1_000 + numbers.next() % 9_001,
        _ => 50 + numbers.next() % 451,
    };
    (0..count).map(|_| size() as usize).collect()
}

struct Chances(u64);

impl Chances {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn bytes(&mut self, size: usize) -> Bytes {
        let words = (0..size.div_ceil(4)).flat_map(|_| (self.next() as u32).to_le_bytes());
        words.take(size).collect()
    }
}
