//! Batches of frames, as they are written.

use super::*;

/// Three pieces, of which the middle one is short.
struct SplitSlice([Vec<u8>; 3]);

impl PayloadParts for SplitSlice {
    fn bytes(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    fn piece(&self, mut at: usize) -> &[u8] {
        for piece in &self.0 {
            if at < piece.len() {
                return &piece[at..];
            }
            at -= piece.len();
        }
        &[]
    }
}

fn filled(taker: &mut impl FrameSink, payload: &Arc<dyn PayloadParts>) {
    for (from, count) in [(0, 6_000), (6_000, 4_000), (10_000, 10_050)] {
        taker.bytes().extend_from_slice(b"frame");
        taker.part(payload, from, count);
    }
    taker.bytes().extend_from_slice(b"end");
}

#[test]
fn a_burst_is_the_same_bytes_however_it_is_written() {
    let payload: Arc<dyn PayloadParts> =
        Arc::new(SplitSlice([vec![1; 7_000], vec![2; 50], (0..13_000).map(|at| at as u8).collect()]));
    let mut plain = Vec::new();
    filled(&mut plain, &payload);
    for step in [1, 3, 4_999, 1 << 20] {
        let mut burst = WriteBatch::default();
        filled(&mut burst, &payload);
        assert_eq!(burst.length(), plain.len());
        assert!(burst.bytes.len() < 6_000 && burst.payload_slices.len() == 2, "long parts stay where they are");
        let mut written = Vec::new();
        while !burst.is_written() {
            let first = burst.slices().next().expect("something is left");
            assert!(!first.is_empty());
            let count = first.len().min(step);
            written.extend_from_slice(&first[..count]);
            burst.advance(count);
        }
        assert!(written == plain && burst.slices().next().is_none());
        burst.clear();
        assert!(burst.is_written() && burst.length() == 0);
    }
    assert_eq!(Arc::strong_count(&payload), 1, "what has been written is not kept");
}
