//! Tests of the content of bucket entries.

use async_nats::HeaderMap;
use bytes::Bytes;

use super::{payload_of, value_of};

#[test]
fn bytes_have_no_header_and_come_back_in_every_length() {
    for length in [0, 1, 0xff, 0x100, 0xffff, 0x1_0000] {
        let payload = Bytes::from(vec![7; length]);
        let mut headers = HeaderMap::new();
        assert_eq!(payload_of(value_of(payload.clone(), None), &mut headers), payload, "{length}");
        assert!(headers.is_empty(), "{length}");
    }
}

#[test]
fn other_values_come_back_by_their_header() {
    for value in [&[][..], &[5], &[0xc4], &[0xc4, 2, 1], &[0xc4, 0, 0], &[0xc1, 1, 0, 0], b"text"] {
        let mut headers = HeaderMap::new();
        let payload = payload_of(Bytes::copy_from_slice(value), &mut headers);
        assert_eq!(value_of(payload, Some(&headers)), value);
    }
}
