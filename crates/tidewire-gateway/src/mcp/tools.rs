//! Tools: their list, and calls of them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};
use tidewire_node::values::Value;
use tidewire_node::{Client, Error, MethodInfo};
use tokio::sync::mpsc;

use super::events::notification;
use super::names::tool_name;
use super::{Fault, Request, WRONG_PARAMETERS};
use crate::caller::Caller;
use crate::calls::{client, found, read_arguments};
use crate::catalog::{Service, Services};
use crate::json::to_json;
use crate::problem::Problem;
use crate::shared::Shared;
use crate::streams::{Report, collected};

/// Tools that one answer lists.
const PAGE: usize = 500;
/// Letters of an item in the report of its progress.
const MESSAGE_LETTERS: usize = 1_024;
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

#[derive(Deserialize)]
struct Call<'a> {
    name: String,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

pub(super) async fn list(request: &Request<'_>, params: &Json) -> Result<Result<Json, Fault>, Problem> {
    let cursor = match &params["cursor"] {
        Json::Null => None,
        Json::String(last) => Some(last.as_str()),
        other => {
            return Ok(Err(Fault(WRONG_PARAMETERS, format!("cursor: {other} is not one of this server: it is text"))));
        }
    };
    let services = request.shared.catalog.services().await?;
    // A cursor is the name of the last tool of the page before.
    let all = allowed(request.shared, request.caller, &services).into_iter();
    let mut rest = all.filter(|(name, ..)| cursor.is_none_or(|last| name.as_str() > last));
    let page: Vec<_> = rest.by_ref().take(PAGE).collect();
    let tools: Vec<_> = page.iter().map(|(name, service, method)| tool(name, service, method)).collect();
    let mut result = json!({ "tools": tools, "ttlMs": 0, "cacheScope": "private" });
    if let (Some(_), Some((last, ..))) = (rest.next(), page.last()) {
        result["nextCursor"] = last.as_str().into();
    }
    Ok(Ok(result))
}

/// The tools of a caller, sorted by their names.
fn allowed<'a>(shared: &Shared, caller: &Caller, services: &'a Services) -> Vec<(String, &'a Service, &'a MethodInfo)> {
    let may = |(service, method): &(&Service, &MethodInfo)| caller.may_call(&shared.access, service, &method.name);
    let named = |(service, method)| (name_of(service, method), service, method);
    let mut all: Vec<_> = methods(services).filter(may).map(named).collect();
    all.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    all
}

/// Hash of all that the caller sees of its tools, from a list that is requested now.
pub(super) async fn fingerprint(shared: &Shared, caller: &Caller) -> Result<u64, Error> {
    let services = shared.catalog.services_since(Some(Instant::now())).await?;
    let mut hasher = DefaultHasher::new();
    for (name, service, method) in allowed(shared, caller, &services) {
        tool(&name, service, method).to_string().hash(&mut hasher);
    }
    Ok(hasher.finish())
}

fn methods(services: &Services) -> impl Iterator<Item = (&Service, &MethodInfo)> {
    services.values().flat_map(|service| service.info.methods.iter().map(move |method| (service, method)))
}

fn name_of(service: &Service, method: &MethodInfo) -> String {
    tool_name(&service.info.name, &method.name)
}

fn tool(name: &str, service: &Service, method: &MethodInfo) -> Json {
    let mut schema = method.parameters.clone();
    if schema.get("type").is_none() {
        schema = json!({ "type": "object" });
    }
    let title = format!("{}.{}", service.info.name, method.name);
    let description = match method.description.as_str() {
        "" => format!("Calls {title}. {}", service.info.description).trim_end().to_owned(),
        said => said.to_owned(),
    };
    let mut tool = json!({
        "name": name,
        "title": title,
        "description": description,
        "inputSchema": schema,
        "annotations": { "title": title, "idempotentHint": method.idempotent, "readOnlyHint": method.safe },
    });
    if let Some(schema) = output_schema(method) {
        tool["outputSchema"] = schema;
    }
    tool
}

/// The schema of `structuredContent`; None where a result may be in a form of its own, which its
/// schema does not know.
fn output_schema(method: &MethodInfo) -> Option<Json> {
    let mut result = method.result.clone();
    let members = result.as_object_mut().filter(|members| !members.is_empty())?;
    let defined = members.remove("$defs");
    if method.result.to_string().contains("contentEncoding") {
        return None;
    }
    if method.stream {
        result = json!({ "type": "array", "items": result });
    }
    let mut schema = json!({ "type": "object", "properties": { "result": result }, "required": ["result"] });
    if let Some(defined) = defined {
        schema["$defs"] = defined;
    }
    Some(schema)
}

/// A call of a tool with its arguments read.
pub(super) struct ToolCall {
    services: Arc<Services>,
    service: String,
    method: String,
    /// Fails if the caller may not call it.
    client: Result<Client, Problem>,
    arguments: Value,
    body: String,
}

/// Reports the items of a stream while its call runs.
pub(super) struct Progress {
    pub token: Json,
    pub out: mpsc::Sender<Json>,
}

impl ToolCall {
    pub async fn of(request: &Request<'_>, params: Option<&RawValue>) -> Result<Result<Self, Fault>, Problem> {
        let call = params.and_then(|params| serde_json::from_str::<Call<'_>>(params.get()).ok());
        let Some(call) = call else {
            return Ok(Err(Fault(WRONG_PARAMETERS, "params: give the name of a tool, and arguments".to_owned())));
        };
        let services = request.shared.catalog.services().await?;
        let found = methods(&services).find(|(service, method)| name_of(service, method) == call.name);
        let Some((service, method)) = found else {
            let text = format!("name: there is no tool {:?}: tools/list has those that there are", call.name);
            return Ok(Err(Fault(WRONG_PARAMETERS, text)));
        };
        let body = call.arguments.map_or("", RawValue::get).to_owned();
        let arguments = match read_arguments(method, body.as_bytes()) {
            Ok(arguments) => arguments,
            Err(wrong) => return Ok(Err(Fault(WRONG_PARAMETERS, format!("arguments: {}", wrong.detail())))),
        };
        let client = client(request.shared, request.caller, service, method, request.head);
        let (service, method) = (service.info.name.clone(), method.name.clone());
        Ok(Ok(Self { services, service, method, client, arguments, body }))
    }

    /// True if it returns a stream.
    pub fn is_stream(&self) -> bool {
        found(&self.services, &self.service, &self.method).is_ok_and(|(_, method)| method.stream)
    }

    pub async fn result(self, progress: Option<Progress>) -> Json {
        match self.done(progress).await {
            Ok((_, Some(content))) => json!({ "content": [content], "isError": false }),
            Ok((json, None)) => {
                let text = String::from_utf8(json).unwrap_or_default();
                let value: Json = serde_json::from_str(&text).unwrap_or_default();
                let content = json!([{ "type": "text", "text": text }]);
                json!({ "content": content, "structuredContent": { "result": value }, "isError": false })
            }
            // The model reads the problem, and may correct its call.
            Err(problem) => {
                let text = problem.json().to_string();
                json!({ "content": [{ "type": "text", "text": text }], "isError": true })
            }
        }
    }

    /// The result as JSON, and as content of its own.
    async fn done(self, progress: Option<Progress>) -> Result<(Vec<u8>, Option<Json>), Problem> {
        let (_, method) = found(&self.services, &self.service, &self.method)?;
        let explained = |problem: Problem| problem.explained(&self.service, method, self.body.as_bytes());
        let client = self.client.map_err(explained)?;
        if method.stream {
            let items = client.stream(&self.method, &self.arguments);
            return collected(items, &progress).await.map(|json| (json, None)).map_err(explained);
        }
        let value: Value = client.call(&self.method, &self.arguments).await.map_err(|error| explained(error.into()))?;
        Ok((to_json(&value), media(&value)))
    }
}

impl Report for Option<Progress> {
    async fn report(&self, number: usize, item: &Value, json: &[u8]) {
        let Some(Progress { token, out }) = self else { return };
        let json = String::from_utf8_lossy(json);
        let text = if let Value::Text(text) = item { text } else { json.as_ref() };
        let message: String = text.chars().take(MESSAGE_LETTERS).collect();
        let report = json!({ "progressToken": token, "progress": number, "message": message });
        let _ = out.send(notification("progress", report)).await;
    }
}

/// A picture or a sound as content of its own.
fn media(value: &Value) -> Option<Json> {
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
