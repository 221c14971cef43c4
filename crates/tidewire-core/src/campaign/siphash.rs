//! SipHash-2-4 with 128 bits (Aumasson and Bernstein 2012): a short hash that is the same on every
//! machine.

/// Hashes whole words; bytes are hashed as words whose last one is filled up with zeros.
#[derive(Clone)]
pub(super) struct SipHash {
    state: [u64; 4],
    words: u64,
}

impl SipHash {
    pub(super) fn new(key: [u8; 16]) -> Self {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| key[at + index]));
        let (first, second) = (word(0), word(8));
        let state = [
            first ^ 0x736f_6d65_7073_6575,
            second ^ 0x646f_7261_6e64_6f6d ^ 0xee,
            first ^ 0x6c79_6765_6e65_7261,
            second ^ 0x7465_6462_7974_6573,
        ];
        Self { state, words: 0 }
    }

    #[inline]
    pub(super) fn word(&mut self, word: u64) {
        self.words += 1;
        self.compress(word);
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..piece.len()].copy_from_slice(piece);
            self.word(u64::from_le_bytes(word));
        }
    }

    #[inline]
    pub(super) fn finish(mut self) -> u128 {
        // The last word of SipHash has the length in bytes, modulo 256, in its highest byte.
        self.compress((self.words * 8) << 56);
        self.state[2] ^= 0xee;
        let low = self.fold();
        self.state[1] ^= 0xdd;
        let high = self.fold();
        u128::from(low) | u128::from(high) << 64
    }

    #[inline]
    fn compress(&mut self, word: u64) {
        self.state[3] ^= word;
        self.round();
        self.round();
        self.state[0] ^= word;
    }

    #[inline]
    fn fold(&mut self) -> u64 {
        for _ in 0..4 {
            self.round();
        }
        self.state[0] ^ self.state[1] ^ self.state[2] ^ self.state[3]
    }

    #[inline]
    fn round(&mut self) {
        let [a, b, c, d] = &mut self.state;
        *a = a.wrapping_add(*b);
        *b = b.rotate_left(13) ^ *a;
        *a = a.rotate_left(32);
        *c = c.wrapping_add(*d);
        *d = d.rotate_left(16) ^ *c;
        *a = a.wrapping_add(*d);
        *d = d.rotate_left(21) ^ *a;
        *c = c.wrapping_add(*b);
        *b = b.rotate_left(17) ^ *c;
        *c = c.rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::SipHash;

    #[test]
    fn it_is_the_hash_of_its_authors() {
        // From vectors.h of the reference implementation: key 00 to 0f, and nothing, 8 and 16 of
        // the bytes 00 to 0f.
        let hash = |bytes: &[u8]| {
            let mut hash = SipHash::new(std::array::from_fn(|index| index as u8));
            hash.bytes(bytes);
            hash.finish().to_le_bytes()
        };
        let bytes: [u8; 16] = std::array::from_fn(|index| index as u8);
        assert_eq!(
            hash(&[]),
            [0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93]
        );
        assert_ne!(hash(&bytes[..8]), hash(&bytes));
    }
}
