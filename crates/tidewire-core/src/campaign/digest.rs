//! The digest of a campaign: the sum of a 128-bit hash of each row, so that it does not depend on
//! ranges, workers or order.

use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher24};

use super::rows::{Data, Rows};

const HASH_KEY: [u8; 16] = *b"tidewire rows 01";

/// The digest of some rows. Digests add up with `wrapping_add`; no rows have 0.
///
/// A row is hashed as words: run, row, then for each column its tag and its value. -0.0 is hashed
/// as 0.0, and every NaN alike, as stores may not tell them apart.
///
/// ```
/// use tidewire_core::campaign::digest::digest;
/// use tidewire_core::campaign::rows::{Column, ColumnType, Rows, Value};
///
/// let columns = [Column::new("hits", ColumnType::Integer)];
/// let (mut all, mut first, mut second) = (Rows::new(&columns), Rows::new(&columns), Rows::new(&columns));
/// for (rows, run) in [(&mut first, 0), (&mut second, 1)] {
///     rows.push(run, 0, &[Value::Integer(65)])?;
///     all.push(run, 0, &[Value::Integer(65)])?;
/// }
/// assert_eq!(digest(&all), digest(&second).wrapping_add(digest(&first)));
/// # Ok::<(), String>(())
/// ```
pub fn digest(rows: &Rows) -> u128 {
    (0..rows.len()).fold(0, |sum: u128, index| sum.wrapping_add(of_row(rows, index)))
}

fn of_row(rows: &Rows, index: usize) -> u128 {
    let mut hash = SipHasher24::new_with_key(&HASH_KEY);
    hash.write_u64(rows.runs[index]);
    hash.write_u64(u64::from(rows.rows[index]));
    for column in &rows.columns {
        if column.is_null(index) {
            hash.write_u64(0);
            continue;
        }
        let text = |hash: &mut SipHasher24, tag: u64, text: &str| {
            hash.write_u64(tag | (text.len() as u64) << 8);
            write_padded(hash, text.as_bytes());
        };
        let word = |hash: &mut SipHasher24, tag: u64, word: u64| {
            hash.write_u64(tag);
            hash.write_u64(word);
        };
        match column.data() {
            Data::Integer(values) => word(&mut hash, 1, values[index] as u64),
            Data::Float(values) => word(&mut hash, 2, canonical(values[index])),
            Data::Text(texts) => text(&mut hash, 3, texts.at(index)),
            Data::Boolean(values) => word(&mut hash, 4, u64::from(values[index])),
            Data::Time(values) => word(&mut hash, 5, values[index] as u64),
            Data::Json(texts) => text(&mut hash, 6, texts.at(index)),
        }
    }
    hash.finish128().as_u128()
}

/// Hashes bytes as whole words: the last one is filled up with zeros.
pub(super) fn write_padded(hash: &mut SipHasher24, bytes: &[u8]) {
    hash.write(bytes);
    hash.write(&[0; 8][..bytes.len().next_multiple_of(8) - bytes.len()]);
}

fn canonical(value: f64) -> u64 {
    if value.is_nan() { 0x7ff8_0000_0000_0000 } else { (value + 0.0).to_bits() }
}

/// The digest as people see it: 32 hexadecimal digits.
pub fn written(digest: u128) -> String {
    format!("{digest:032x}")
}

/// Reads what [`written`] has written.
pub fn read(written: &str) -> Option<u128> {
    (written.len() == 32).then(|| u128::from_str_radix(written, 16).ok())?
}
