//! Lists of tools and prompts, and calls of tools.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};
use tidewire_node::values::Value;
use tidewire_node::{Error, MethodInfo};

use super::commands;
use super::content::contents;
use super::names::tool_name;
use super::prompts::prompt;
use super::{Fault, Request, WRONG_PARAMETERS, notification};
use crate::calls::{client, read_arguments};
use crate::catalog::{Service, Services};
use crate::json::to_json;
use crate::problem::Problem;
use crate::streams::{Reports, collected};

/// Tools or resources that one answer lists.
const PAGE: usize = 500;
/// Letters of an item in the report of its progress.
const MESSAGE_LETTERS: usize = 1_024;
#[derive(Deserialize)]
struct Call<'a> {
    name: String,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

/// Use of a method by clients.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Tool,
    Prompt,
}

impl Kind {
    /// The word of the protocol for the methods of this kind.
    pub fn word(self) -> &'static str {
        if self == Self::Tool { "tools" } else { "prompts" }
    }
}

pub(super) async fn list(request: &Request, kind: Kind, params: &Json) -> Result<Result<Json, Fault>, Problem> {
    let services = request.shared.catalog.services().await?;
    Ok(page(params, kind.word(), listed(request, kind, &services).into_iter()))
}

/// A page of a list that is sorted by names, of which a cursor is the last one of the page before.
pub(super) fn page(params: &Json, list: &str, all: impl Iterator<Item = (Json, String)>) -> Result<Json, Fault> {
    let cursor = match &params["cursor"] {
        Json::Null => None,
        Json::String(last) => Some(last.as_str()),
        other => return Err(Fault(WRONG_PARAMETERS, format!("cursor: {other} is not one of this server: it is text"))),
    };
    let mut rest = all.filter(|(_, name)| cursor.is_none_or(|last| name.as_str() > last));
    let (shown, names): (Vec<_>, Vec<_>) = rest.by_ref().take(PAGE).unzip();
    let mut result = json!({ list: shown, "ttlMs": 0, "cacheScope": "private" });
    if let (Some(_), Some(last)) = (rest.next(), names.last()) {
        result["nextCursor"] = last.as_str().into();
    }
    Ok(result)
}

/// The tools or prompts of a caller, sorted by their names.
fn listed(request: &Request, kind: Kind, services: &Services) -> Vec<(Json, String)> {
    let Request { shared, caller, .. } = request;
    let may = |(service, method): &(&Service, &MethodInfo)| caller.may_call(&shared.access, service, &method.name);
    let shown = |(service, method)| {
        let name = name_of(service, method);
        (if kind == Kind::Tool { tool(&name, service, method) } else { prompt(&name, service, method) }, name)
    };
    let allowed: Vec<_> = methods(services, kind).filter(may).collect();
    let has_commands = allowed.iter().any(|(service, method)| service.command(&method.name).is_some());
    let mut all: Vec<_> = allowed.into_iter().map(shown).collect();
    if has_commands {
        all.extend(commands::tools());
    }
    all.sort_by(|(_, one), (_, other)| one.cmp(other));
    all
}

/// Hash of all that the caller sees of a list, from services that are requested now.
pub(super) async fn fingerprint(request: &Request, kind: Kind) -> Result<u64, Error> {
    let services = request.shared.catalog.services_since(Some(Instant::now())).await?;
    let mut hasher = DefaultHasher::new();
    for (shown, _) in listed(request, kind, &services) {
        shown.to_string().hash(&mut hasher);
    }
    Ok(hasher.finish())
}

fn methods(services: &Services, kind: Kind) -> impl Iterator<Item = (&Service, &MethodInfo)> {
    let all = services.values().flat_map(|service| service.callable().map(move |method| (service, method)));
    all.filter(move |(_, method)| method.prompt == (kind == Kind::Prompt))
}

/// The method that a tool or a prompt calls.
pub(super) fn find<'a>(services: &'a Services, kind: Kind, name: &str) -> Option<(&'a Service, &'a MethodInfo)> {
    methods(services, kind).find(|(service, method)| name_of(service, method) == name)
}

fn name_of(service: &Service, method: &MethodInfo) -> String {
    tool_name(&service.info.name, &method.name)
}

/// The title and the description of a tool or a prompt.
pub(super) fn labels(service: &Service, method: &MethodInfo) -> (String, String) {
    let title = format!("{}.{}", service.info.name, method.name);
    let description = match method.description.as_str() {
        "" => format!("Calls {title}. {}", service.info.description).trim_end().to_owned(),
        text => text.to_owned(),
    };
    (title, description)
}

fn tool(name: &str, service: &Service, method: &MethodInfo) -> Json {
    let mut schema = method.parameters.clone();
    if schema.get("type").is_none() {
        schema = json!({ "type": "object" });
    }
    let (title, mut description) = labels(service, method);
    let is_command = service.command(&method.name).is_some();
    if is_command {
        description.push_str(" It is long work: the tool starts it, and returns its id.");
        schema = commands::with_options(schema, service, method);
    }
    let mut tool = json!({
        "name": name,
        "title": title,
        "description": description,
        "inputSchema": schema,
        "annotations": { "title": title, "idempotentHint": method.idempotent, "readOnlyHint": method.safe },
    });
    if let Some(schema) = output_schema(method).filter(|_| !is_command) {
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

/// True if the tool that a call names returns a stream, or starts a command.
pub(super) async fn is_stream(request: &Request, params: &Json) -> Result<bool, Problem> {
    let services = request.shared.catalog.services().await?;
    let found = find(&services, Kind::Tool, params["name"].as_str().unwrap_or_default());
    Ok(found.is_some_and(|(service, method)| method.stream || service.command(&method.name).is_some()))
}

pub(super) async fn call(
    request: &Request,
    params: Option<&RawValue>,
    reports: Option<Reports<'_>>,
) -> Result<Result<Json, Fault>, Problem> {
    let call = params.and_then(|params| serde_json::from_str::<Call<'_>>(params.get()).ok());
    let Some(call) = call else {
        return Ok(Err(Fault(WRONG_PARAMETERS, "params: give the name of a tool, and arguments".to_owned())));
    };
    if let Some(result) = commands::call(request, &call.name, call.arguments).await {
        return Ok(Ok(result.map_or_else(|problem| failed(&problem), |state| content(state.to_string().into_bytes()))));
    }
    let services = request.shared.catalog.services().await?;
    let Some((service, method)) = find(&services, Kind::Tool, &call.name) else {
        let text = format!("name: there is no tool {:?}: tools/list has those that there are", call.name);
        return Ok(Err(Fault(WRONG_PARAMETERS, text)));
    };
    let body = call.arguments.map_or("", RawValue::get).as_bytes();
    let arguments = match read_arguments(method, body) {
        Ok(arguments) => arguments,
        Err(wrong) => return Ok(Err(Fault(WRONG_PARAMETERS, format!("arguments: {}", wrong.detail())))),
    };
    let done = match client(&request.shared, &request.caller, service, method, &request.headers) {
        Ok(_) if service.command(&method.name).is_some() => {
            commands::run(request, service, method, body, reports).await.map(|json| (json, None))
        }
        Ok(client) if method.stream => {
            collected(client.stream(&method.name, &arguments), reports).await.map(|json| (json, None))
        }
        Ok(client) => {
            let done = client.call(&method.name, &arguments).await.map_err(Problem::from);
            done.map(|value: Value| (to_json(&value), contents(&value)))
        }
        Err(problem) => Err(problem),
    };
    let (json, contents) = match done {
        Ok(done) => done,
        Err(problem) => return Ok(Ok(failed(&problem.explained(&service.info.name, method, body)))),
    };
    // Clients refuse a result without structured content if its tool has an output schema.
    let is_structured = contents.is_none() || output_schema(method).is_some();
    Ok(Ok(done_with(json, contents, is_structured)))
}

fn content(json: Vec<u8>) -> Json {
    done_with(json, None, true)
}

fn done_with(json: Vec<u8>, contents: Option<Vec<Json>>, is_structured: bool) -> Json {
    let text = String::from_utf8(json).unwrap_or_default();
    let value: Json = serde_json::from_str(&text).unwrap_or_default();
    let content = contents.unwrap_or_else(|| vec![json!({ "type": "text", "text": text })]);
    let mut result = json!({ "content": content, "isError": false });
    if is_structured {
        result["structuredContent"] = json!({ "result": value });
    }
    result
}

/// The model reads the problem, and may correct its call.
fn failed(problem: &Problem) -> Json {
    json!({ "content": [{ "type": "text", "text": problem.json().to_string() }], "isError": true })
}

/// The report of an item of a stream, for a client that follows the call by this token.
pub(super) fn progress(token: &Json, number: usize, item: &Value, json: &[u8]) -> Json {
    let json = String::from_utf8_lossy(json);
    let text = if let Value::Text(text) = item { text } else { json.as_ref() };
    let message: String = text.chars().take(MESSAGE_LETTERS).collect();
    notification("progress", json!({ "progressToken": token, "progress": number, "message": message }))
}
