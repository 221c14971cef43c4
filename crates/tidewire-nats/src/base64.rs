//! Base64 and header blocks, in which the JetStream API writes a stored message.

use async_nats::{HeaderMap, HeaderName, HeaderValue};

/// The bytes of standard base64; None if it is none.
pub(crate) fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0);
    for letter in text.trim_end_matches('=').bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

/// The headers of a block that begins with `NATS/1.0`.
pub(crate) fn headers(block: &[u8]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for line in String::from_utf8_lossy(block).lines().skip(1) {
        let Some((name, value)) = line.split_once(':') else { continue };
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.trim().parse::<HeaderValue>()) {
            map.append(name, value);
        }
    }
    map
}

#[cfg(test)]
mod tests {
    use super::{decoded, headers};

    #[test]
    fn base64_is_read() {
        assert_eq!(decoded("").unwrap(), b"");
        assert_eq!(decoded("aGFsbG8=").unwrap(), b"hallo");
        assert_eq!(decoded("+/8A").unwrap(), [0xfb, 0xff, 0]);
        assert_eq!(decoded("a b"), None);
    }

    #[test]
    fn a_block_of_headers_is_read() {
        let map = headers(b"NATS/1.0\r\nA: b:c\r\nA:d\r\n\r\n");
        let values: Vec<_> = map.get_all("A").map(|value| value.as_str().to_owned()).collect();
        assert_eq!(values, ["b:c", "d"]);
    }
}
