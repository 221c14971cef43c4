//! MessagePack, written to the end of a vector in the shortest form.

use std::fmt::Debug;

use rmp::encode as mp;

pub fn nil(out: &mut Vec<u8>) {
    put(mp::write_nil(out));
}

pub fn boolean(out: &mut Vec<u8>, value: bool) {
    put(mp::write_bool(out, value));
}

#[inline]
pub fn signed(out: &mut Vec<u8>, value: i64) {
    put(mp::write_sint(out, value));
}

#[inline]
pub fn unsigned(out: &mut Vec<u8>, value: u64) {
    put(mp::write_uint(out, value));
}

pub fn float(out: &mut Vec<u8>, value: f64) {
    put(mp::write_f64(out, value));
}

#[inline]
pub fn text(out: &mut Vec<u8>, value: &str) {
    put(mp::write_str(out, value));
}

pub fn bytes(out: &mut Vec<u8>, value: &[u8]) {
    put(mp::write_bin(out, value));
}

pub fn array(out: &mut Vec<u8>, items: usize) {
    put(mp::write_array_len(out, items as u32));
}

pub fn map(out: &mut Vec<u8>, entries: usize) {
    put(mp::write_map_len(out, entries as u32));
}

/// An extension whose bytes are known.
pub fn extension(out: &mut Vec<u8>, kind: i8, content: &[u8]) {
    put(mp::write_ext_meta(out, content.len() as u32, kind));
    out.extend_from_slice(content);
}

/// Begins an extension that holds values. `close` fills in its length.
pub fn open(out: &mut Vec<u8>, kind: i8) -> usize {
    out.extend_from_slice(&[0xc9, 0, 0, 0, 0, kind as u8]);
    out.len()
}

/// Ends what `open` began. False if it is longer than an extension can be.
#[must_use]
pub fn close(out: &mut [u8], start: usize) -> bool {
    let Ok(length) = u32::try_from(out.len() - start) else { return false };
    out[start - 5..start - 1].copy_from_slice(&length.to_be_bytes());
    true
}

/// Writing to memory does not fail.
#[inline]
fn put<T, E: Debug>(written: Result<T, E>) {
    debug_assert!(written.is_ok(), "{:?}", written.as_ref().err());
}
