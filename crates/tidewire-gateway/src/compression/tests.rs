//! Stories of answers that are compressed.

use hyper::header::{ACCEPT_ENCODING, HeaderMap, HeaderValue};

use super::encode;

#[test]
fn zstd_is_preferred_and_can_be_decoded() {
    let text = b"na".repeat(5_000);
    let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("gzip, zstd"))]);
    let (name, bytes) = encode(&headers, &text).expect("it is accepted");
    assert_eq!((name, zstd::bulk::decompress(&bytes, text.len()).unwrap()), ("zstd", text));
    assert!(bytes.len() < 500);
}
