//! Answers in zstd or gzip, for clients that accept one of them.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::header::{ACCEPT_ENCODING, HeaderMap};

use crate::headers::{media_type, quality};

/// The bytes in an encoding that the client accepts, and its name.
pub(crate) fn encode(request: &HeaderMap, bytes: &[u8]) -> Option<(&'static str, Vec<u8>)> {
    if accepts(request, "zstd") {
        return Some(("zstd", zstd::bulk::compress(bytes, 1).ok()?));
    }
    if !accepts(request, "gzip") {
        return None;
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).ok()?;
    Some(("gzip", encoder.finish().ok()?))
}

fn accepts(request: &HeaderMap, name: &str) -> bool {
    let all = request.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(',')).any(|one| media_type(one) == name && quality(one) > 0)
}

#[cfg(test)]
mod tests;
