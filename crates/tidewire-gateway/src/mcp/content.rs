//! Values as content of the protocol: text, pictures, sounds and resources.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value as Json, json};
use tidewire_node::values::Value;

use crate::json::to_json;

/// First bytes of pictures and sounds, and their media types.
const MEDIA: [(&[u8], &str); 7] = [
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
];

/// The content of a result that has a picture, a sound or a resource.
pub(super) fn contents(value: &Value) -> Option<Vec<Json>> {
    let items = match value {
        Value::List(items) | Value::Tuple(items) => items.as_slice(),
        one => std::slice::from_ref(one),
    };
    if !items.iter().any(|item| media(item).or_else(|| resource(item)).is_some()) {
        return None;
    }
    let other = |item| json!({ "type": "text", "text": String::from_utf8_lossy(&to_json(item)) });
    Some(items.iter().map(|item| content(item).unwrap_or_else(|| other(item))).collect())
}

/// A text, a picture, a sound or a resource as content.
pub(super) fn content(value: &Value) -> Option<Json> {
    let text = || value.as_str().map(|text| json!({ "type": "text", "text": text }));
    text().or_else(|| media(value)).or_else(|| resource(value))
}

/// A resource, or a link of one, in the form of the protocol.
fn resource(value: &Value) -> Option<Json> {
    let place = match value.get("type")?.as_str()? {
        "resource" => value.get("resource")?,
        "resource_link" => value,
        _ => return None,
    };
    place.get("uri")?.as_str()?;
    serde_json::from_slice(&to_json(value)).ok()
}

/// A picture or a sound as content of its own.
pub(super) fn media(value: &Value) -> Option<Json> {
    let Value::Bytes(bytes) = value else { return None };
    let known = MEDIA.iter().find(|(first, _)| bytes.starts_with(first)).map(|(_, kind)| *kind);
    let kind = known.or_else(|| match (bytes.get(..4)?, bytes.get(8..12)?) {
        (b"RIFF", b"WEBP") => Some("image/webp"),
        (b"RIFF", b"WAVE") => Some("audio/wav"),
        _ => None,
    })?;
    let class = kind.split('/').next();
    Some(json!({ "type": class, "data": STANDARD.encode(bytes), "mimeType": kind }))
}
