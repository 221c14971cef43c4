//! Seeds: the key of a campaign from what a person writes, and the seed of each run from that key.

use std::hash::Hasher as _;
use std::str::FromStr;

use siphasher::sip128::{Hasher128 as _, SipHasher24};

use super::digest::write_padded;
use super::random::{self, Key, Scope, Use};

const HASH_KEY: [u8; 16] = *b"tidewire seed 01";
/// Digits of an integer seed, at most: 4,096 bits.
const DIGITS_MAX: usize = 1_234;
/// Bytes of a text seed, at most.
const TEXT_BYTES_MAX: usize = 4_096;

/// The seed of a campaign as a person writes it: an integer of any sign, or text.
///
/// Its written form, `int:-7` or `text:monday`, is hashed and stored.
///
/// ```
/// use tidewire_core::campaign::seed::Seed;
///
/// let seed = Seed::integer("7")?;
/// assert_eq!(seed.to_string(), "int:7");
/// assert_ne!(seed.key(), Seed::text("7")?.key());
/// assert!(Seed::integer("seven").is_err());
/// # Ok::<(), tidewire_core::campaign::seed::SeedError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, derive_more::Display)]
#[display("{_0}")]
pub struct Seed(String);

impl Seed {
    /// An integer in decimal digits, with `-` before it if it is negative.
    ///
    /// # Errors
    ///
    /// If it is no integer, or has more than 1,234 digits.
    pub fn integer(decimal: &str) -> Result<Self, SeedError> {
        let (sign, digits) = decimal.strip_prefix('-').map_or(("", decimal), |digits| ("-", digits));
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(SeedError(format!("seed: {decimal:?} is no integer")));
        }
        if digits.len() > DIGITS_MAX {
            let length = digits.len();
            return Err(SeedError(format!("seed: an integer of {length} digits; at most {DIGITS_MAX}, or pass text")));
        }
        let digits = match digits.trim_start_matches('0') {
            "" => return Ok(Self("int:0".to_owned())),
            digits => digits,
        };
        Ok(Self(format!("int:{sign}{digits}")))
    }

    /// Text.
    ///
    /// # Errors
    ///
    /// If it is longer than 4,096 bytes, or has a NUL.
    pub fn text(text: &str) -> Result<Self, SeedError> {
        if text.len() > TEXT_BYTES_MAX {
            let length = text.len();
            return Err(SeedError(format!("seed: a text of {length} bytes; at most {TEXT_BYTES_MAX}")));
        }
        if text.contains('\0') {
            return Err(SeedError("seed: a text with NUL, which stores can't keep: leave it out".to_owned()));
        }
        Ok(Self(format!("text:{text}")))
    }

    /// The key of a campaign with this seed: SipHash-2-4-128 of the written form.
    pub fn key(&self) -> Key {
        let mut hash = SipHasher24::new_with_key(&HASH_KEY);
        hash.write_u64(self.0.len() as u64);
        write_padded(&mut hash, self.0.as_bytes());
        let hash = hash.finish128();
        [hash.h1, hash.h2]
    }
}

impl From<i64> for Seed {
    fn from(integer: i64) -> Self {
        Self(format!("int:{integer}"))
    }
}

impl FromStr for Seed {
    type Err = SeedError;

    fn from_str(written: &str) -> Result<Self, SeedError> {
        match written.split_once(':') {
            Some(("int", decimal)) => Self::integer(decimal),
            Some(("text", text)) => Self::text(text),
            _ => Err(SeedError(format!("seed: {written:?} begins neither with int: nor with text:"))),
        }
    }
}

/// An invalid seed; the text names the value and the fix.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
#[display("{_0}")]
pub struct SeedError(String);

impl std::error::Error for SeedError {}

/// The seed of a run or replication: 64 bits that depend on the key of the campaign and the index
/// alone.
pub fn of_run(key: Key, index: u64, scope: Scope) -> u64 {
    random::philox(key, random::counter(index, Use::Seed, scope))[0]
}
