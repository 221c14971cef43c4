//! Resources: streams and buckets of the hub, for callers that may read them over a link.

use std::collections::VecDeque;
use std::time::UNIX_EPOCH;

use serde_json::{Value as Json, json};
use tidewire_node::Error;
use tidewire_node::streams::{Event, ReadOptions, Start};
use tidewire_node::values::Value;
use tidewire_proto::generated::errors::ErrorCode;

use super::content::media;
use super::tools::page;
use super::{Fault, Request, WRONG_PARAMETERS};
use crate::json::to_json;
use crate::problem::Problem;
use crate::request::decoded;

/// Begins the URI of each resource.
const SCHEME: &str = "tidewire://";
const JSON: &str = "application/json";
/// Events of a stream that one read gives, and bytes of their payloads.
const EVENTS: u64 = 100;
const EVENTS_BYTES: usize = 1024 * 1024;
/// Keys of a bucket that one read gives.
const KEYS: usize = 1_000;

pub(super) async fn list(request: &Request, params: &Json) -> Result<Result<Json, Fault>, Problem> {
    let mut all = Vec::new();
    let mut add = |kind: &str, name: String, text: String| {
        let uri = format!("{SCHEME}{kind}/{name}");
        all.push((json!({ "uri": uri, "name": name, "description": text, "mimeType": JSON }), uri));
    };
    if request.may_read_storage() {
        let node = &request.shared.node;
        for stream in present(node.streams().await)? {
            add("streams", stream.settings.name, format!("Newest events of a stream, which has {}.", stream.messages));
        }
        for bucket in present(node.buckets().await)? {
            add("kv", bucket.settings.name, format!("Keys of a bucket, which has {}.", bucket.keys));
        }
    }
    all.sort_by(|(_, one), (_, other)| one.cmp(other));
    Ok(page(params, "resources", all.into_iter()))
}

/// All of them; none if the hub has no storage backend.
fn present<T>(listed: Result<Vec<T>, Error>) -> Result<Vec<T>, Error> {
    listed.or_else(|error| if error.code() == ErrorCode::HomeUnavailable { Ok(Vec::new()) } else { Err(error) })
}

pub(super) fn templates() -> Json {
    let all = [
        ("streams/{stream}", "Newest events of a stream."),
        ("streams/{stream}/{sequence}", "One event of a stream."),
        ("kv/{bucket}", "Keys of a bucket."),
        ("kv/{bucket}/{key}", "The value of a key, with its revision."),
    ];
    let all = all.map(|(path, text)| {
        json!({ "uriTemplate": format!("{SCHEME}{path}"), "name": path, "description": text, "mimeType": JSON })
    });
    json!({ "resourceTemplates": all, "ttlMs": 0, "cacheScope": "private" })
}

pub(super) async fn read(request: &Request, params: &Json) -> Result<Result<Json, Fault>, Problem> {
    let wrong = |text: String| Ok(Err(Fault(WRONG_PARAMETERS, format!("uri: {text}"))));
    if !request.may_read_storage() {
        return wrong("only a token with inspect_payloads reads streams and buckets".to_owned());
    }
    let uri = params["uri"].as_str().unwrap_or_default();
    match found(request, uri).await {
        Ok(Some(mut content)) => {
            content["uri"] = uri.into();
            Ok(Ok(json!({ "contents": [content], "ttlMs": 0, "cacheScope": "private" })))
        }
        Ok(None) => wrong(format!("there is no {uri}")),
        Err(error) if error.code() == ErrorCode::HomeUnavailable => Err(error.into()),
        Err(error) => wrong(error.to_string()),
    }
}

/// The parts of a URI behind its scheme.
pub(super) fn path(uri: &str) -> Vec<String> {
    let path = uri.strip_prefix(SCHEME).unwrap_or_default();
    path.split('/').map(|part| decoded(part).unwrap_or_default()).collect()
}

/// The content of a resource.
async fn found(request: &Request, uri: &str) -> Result<Option<Json>, Error> {
    match path(uri).iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["streams", stream] => events(request, stream, None).await,
        ["streams", stream, sequence] => {
            let wrong = |_| Error::invalid(format!("{sequence:?} is no sequence: give a whole number"));
            events(request, stream, Some(sequence.parse().map_err(wrong)?)).await
        }
        ["kv", bucket] => {
            let keys = request.shared.node.bucket(bucket).await?.keys(">").await?;
            Ok(Some(of_json(&keys.into_iter().take(KEYS).collect())))
        }
        ["kv", bucket, key] => {
            let Some(entry) = request.shared.node.bucket(bucket).await?.get(key).await? else { return Ok(None) };
            let value = entry.read::<Value>()?;
            Ok(value.map(|value| match media(&value) {
                Some(media) => json!({ "mimeType": media["mimeType"], "blob": media["data"] }),
                None => of_json(&json!({ "value": of_value(&value), "revision": entry.revision() })),
            }))
        }
        _ => Err(Error::invalid(format!("{uri:?} is no resource: resources/templates/list has the forms"))),
    }
}

/// One event, or the newest ones.
async fn events(request: &Request, stream: &str, one: Option<u64>) -> Result<Option<Json>, Error> {
    let stream = request.shared.node.stream(stream).await?;
    let last = one.unwrap_or(stream.info().await?.last);
    let first = one.unwrap_or(last.saturating_sub(EVENTS - 1).max(1));
    let mut replay = stream.read(ReadOptions::default().start(Start::Sequence(first)).stop(last));
    let (mut newest, mut bytes) = (VecDeque::new(), 0);
    while let Some(event) = replay.next().await {
        let event = event?;
        bytes += event.payload().len();
        newest.push_back(event);
        while bytes > EVENTS_BYTES && newest.len() > 1 {
            bytes -= newest.pop_front().map_or(0, |event| event.payload().len());
        }
    }
    let found = if one.is_some() { newest.front().map(shown) } else { Some(newest.iter().map(shown).collect()) };
    Ok(found.as_ref().map(of_json))
}

fn of_json(json: &Json) -> Json {
    json!({ "mimeType": JSON, "text": json.to_string() })
}

fn shown(event: &Event) -> Json {
    let time = event.time().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as i64);
    let payload = event.read().unwrap_or_else(|_| Value::Bytes(event.payload().to_vec()));
    json!({
        "sequence": event.sequence(),
        "time": of_value(&Value::Timestamp(time)),
        "subject": event.subject(),
        "key": event.key(),
        "payload": of_value(&payload),
    })
}

fn of_value(value: &Value) -> Json {
    serde_json::from_slice(&to_json(value)).unwrap_or_default()
}
