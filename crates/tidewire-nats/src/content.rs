//! Content of bucket entries: a value of Tidewire has a header that says so, bytes have none.
//!
//! Other clients write entries without the header, so these are bytes here; and bytes are written
//! as they are, so other clients can read them.

use async_nats::HeaderMap;
use bytes::{BufMut, Bytes, BytesMut};

const NAME: &str = "content-type";
const VALUE: &str = "tidewire";
/// Start of an encoded value that is one buffer of bytes: mark, version, one buffer, a head of six
/// bytes (`spec/values.md`).
const ONE_BUFFER: [u8; 16] = [0xc1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 6];
/// Head of this value: extension 5 with the number of its buffer; then the gap before the buffer.
const BUFFER_HEAD: [u8; 8] = [0xd6, 5, 0, 0, 0, 0, 0, 0];

/// The payload of an encoded value, and its header in `headers` unless it is bytes.
pub(crate) fn payload_of(value: Bytes, headers: &mut HeaderMap) -> Bytes {
    if let Some(start) = start_of_bytes(&value) {
        return value.slice(start..);
    }
    headers.insert(NAME, VALUE);
    value
}

pub(crate) fn value_of(payload: Bytes, headers: Option<&HeaderMap>) -> Bytes {
    if headers.is_some_and(is_value) {
        return payload;
    }
    let mut value = BytesMut::with_capacity(payload.len() + 5);
    match payload.len() {
        length @ ..=0xff => value.put_slice(&[0xc4, length as u8]),
        length @ ..=0xffff => {
            value.put_u8(0xc5);
            value.put_u16(length as u16);
        }
        length => {
            value.put_u8(0xc6);
            // NATS carries at most 64 MiB.
            value.put_u32(length as u32);
        }
    }
    value.put_slice(&payload);
    value.freeze()
}

fn is_value(headers: &HeaderMap) -> bool {
    let mut named = headers.iter().filter(|(name, _)| AsRef::<str>::as_ref(name).eq_ignore_ascii_case(NAME));
    named.any(|(_, values)| values.iter().any(|value| value.as_str().eq_ignore_ascii_case(VALUE)))
}

/// Where the bytes begin in an encoded value that is bytes and nothing else.
fn start_of_bytes(value: &[u8]) -> Option<usize> {
    let (start, length) = match *value {
        [0xc4, length, ..] => (2, u64::from(length)),
        [0xc5, a, b, ..] => (3, u64::from(u16::from_be_bytes([a, b]))),
        [0xc6, a, b, c, d, ..] => (5, u64::from(u32::from_be_bytes([a, b, c, d]))),
        _ => {
            let rest = value.strip_prefix(&ONE_BUFFER)?;
            let (length, rest) = rest.split_first_chunk::<8>()?;
            rest.strip_prefix(&BUFFER_HEAD)?;
            (ONE_BUFFER.len() + length.len() + BUFFER_HEAD.len(), u64::from_be_bytes(*length))
        }
    };
    ((value.len() - start) as u64 == length).then_some(start)
}

#[cfg(test)]
mod tests;
