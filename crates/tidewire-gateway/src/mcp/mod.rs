//! `/mcp`: the public methods as tools of the Model Context Protocol, over its streamable HTTP
//! transport.
//!
//! The server has no sessions: each POST has one message of JSON-RPC 2.0, and its response is JSON.

mod names;

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};
use tidewire_node::MethodInfo;
use tidewire_node::values::Value;

use crate::answer::{Answer, json as of_json, nothing};
use crate::caller::Caller;
use crate::calls::client;
use crate::catalog::{Service, Services};
use crate::headers::check_json;
use crate::json::{arguments, to_json};
use crate::problem::Problem;
use crate::request;
use crate::routes::{RequestHead, only};
use crate::server::Shared;
use crate::streams::collected;

/// Versions of the protocol, the newest first.
const VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
const VERSION: &str = "mcp-protocol-version";
/// Tools that one answer lists.
const PAGE: usize = 500;

const NO_REQUEST: i32 = -32_600;
const NO_METHOD: i32 = -32_601;
const WRONG_PARAMETERS: i32 = -32_602;
const NO_JSON: i32 = -32_700;

#[derive(Deserialize)]
struct Message<'a> {
    jsonrpc: String,
    id: Option<Json>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Call<'a> {
    name: String,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

/// Why a request of the protocol itself fails.
struct Fault(i32, String);

pub(crate) async fn answer(shared: &Arc<Shared>, head: &RequestHead, body: Incoming) -> Result<Answer, Problem> {
    if head.path.len() != 1 {
        return Err(Problem::nothing("path: the tools are at /mcp"));
    }
    only(head, &[Method::POST])?;
    if let Some(version) = head.headers.get(VERSION)
        && !VERSIONS.iter().any(|known| version == known)
    {
        return Err(Problem::invalid(format!(
            "MCP-Protocol-Version: {version:?} is not one of {}",
            VERSIONS.join(", ")
        )));
    }
    let caller = Caller::of(shared, &head.headers).await?;
    let body = request::read(shared, body).await?;
    check_json(&head.headers, &body.bytes)?;
    let message: Message<'_> = match serde_json::from_slice(&body.bytes) {
        Ok(message) => message,
        Err(wrong) => return Ok(response(Json::Null, Err(Fault(NO_JSON, wrong.to_string())))),
    };
    let (Some(id), Some(method)) = (message.id.clone(), message.method.as_deref()) else {
        // Notifications, and answers to requests that this server does not make, are taken note of.
        return Ok(nothing(StatusCode::ACCEPTED));
    };
    let is_request = message.jsonrpc == "2.0" && (id.is_string() || id.is_number());
    if !is_request {
        return Ok(response(
            Json::Null,
            Err(Fault(NO_REQUEST, "give a request of JSON-RPC 2.0 with an id".to_owned())),
        ));
    }
    let result = match method {
        "initialize" => Ok(initialized(shared, message.params)),
        "ping" => Ok(json!({})),
        "tools/list" => tools(shared, &caller, message.params).await?,
        "tools/call" => called(shared, &caller, head, message.params).await?,
        other => Err(Fault(NO_METHOD, format!("{other:?} is not a method of this server: there are tools"))),
    };
    Ok(response(id, result))
}

fn response(id: Json, result: Result<Json, Fault>) -> Answer {
    let message = match result {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(Fault(code, text)) => json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": text } }),
    };
    of_json(message.to_string())
}

fn initialized(shared: &Shared, params: Option<&RawValue>) -> Json {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Wanted {
        protocol_version: String,
    }
    let wanted = params.and_then(|params| serde_json::from_str::<Wanted>(params.get()).ok());
    let known = wanted.and_then(|wanted| VERSIONS.into_iter().find(|known| *known == wanted.protocol_version));
    json!({
        "protocolVersion": known.unwrap_or(VERSIONS[0]),
        "capabilities": { "tools": {} },
        "serverInfo": { "name": shared.options.name, "title": "Tidewire", "version": env!("CARGO_PKG_VERSION") },
    })
}

async fn tools(shared: &Shared, caller: &Caller, params: Option<&RawValue>) -> Result<Result<Json, Fault>, Problem> {
    #[derive(Default, Deserialize)]
    struct From {
        cursor: Option<String>,
    }
    let from: From = params.and_then(|params| serde_json::from_str(params.get()).ok()).unwrap_or_default();
    let services = shared.catalog.services().await?;
    let all = methods(&services).filter(|(service, method)| caller.may_call(&shared.access, service, &method.name));
    // A cursor is the name of the last tool of the page before.
    let mut rest = all
        .map(|(service, method)| (name_of(service, method), method))
        .filter(|(name, _)| from.cursor.as_ref().is_none_or(|last| name > last));
    let page: Vec<_> = rest.by_ref().take(PAGE).collect();
    let mut result = json!({ "tools": page.iter().map(|(name, method)| tool(name, method)).collect::<Vec<_>>() });
    if let (Some(_), Some((last, _))) = (rest.next(), page.last()) {
        result["nextCursor"] = last.as_str().into();
    }
    Ok(Ok(result))
}

fn methods(services: &Services) -> impl Iterator<Item = (&Service, &MethodInfo)> {
    let mut all: Vec<_> = services
        .values()
        .flat_map(|service| service.info.methods.iter().map(move |method| (service, method)))
        .collect();
    all.sort_by_cached_key(|(service, method)| name_of(service, method));
    all.into_iter()
}

fn name_of(service: &Service, method: &MethodInfo) -> String {
    names::tool_name(&service.info.name, &method.name)
}

fn tool(name: &str, method: &MethodInfo) -> Json {
    let mut schema = method.parameters.clone();
    if schema.get("type").is_none() {
        schema = json!({ "type": "object" });
    }
    json!({
        "name": name,
        "description": method.description,
        "inputSchema": schema,
        "annotations": { "idempotentHint": method.idempotent },
    })
}

async fn called(
    shared: &Arc<Shared>,
    caller: &Caller,
    head: &RequestHead,
    params: Option<&RawValue>,
) -> Result<Result<Json, Fault>, Problem> {
    let call = params.and_then(|params| serde_json::from_str::<Call<'_>>(params.get()).ok());
    let Some(call) = call else {
        return Ok(Err(Fault(WRONG_PARAMETERS, "params: give the name of a tool, and arguments".to_owned())));
    };
    let services = shared.catalog.services().await?;
    let found = methods(&services).find(|(service, method)| name_of(service, method) == call.name);
    let Some((service, method)) = found else {
        let text = format!("name: there is no tool {:?}: tools/list has those that there are", call.name);
        return Ok(Err(Fault(WRONG_PARAMETERS, text)));
    };
    let given = arguments(call.arguments.map_or("", RawValue::get).as_bytes());
    let given = match given {
        Ok(given) => given,
        Err(wrong) => return Ok(Err(Fault(WRONG_PARAMETERS, format!("arguments: {wrong}")))),
    };
    let done = match client(shared, caller, service, method, head) {
        Ok(client) if method.stream => collected(client.stream(&method.name, &given)).await,
        Ok(client) => {
            client.call(&method.name, &given).await.map(|value: Value| to_json(&value)).map_err(Problem::from)
        }
        Err(problem) => Err(problem),
    };
    let (text, is_error) = match done {
        Ok(bytes) => (String::from_utf8(bytes).unwrap_or_default(), false),
        // The model reads the problem, and may correct its call.
        Err(problem) => (problem.json().to_string(), true),
    };
    let mut result = json!({ "content": [{ "type": "text", "text": text }], "isError": is_error });
    if !is_error && let Ok(value) = serde_json::from_str::<Json>(&text) {
        result["structuredContent"] = json!({ "result": value });
    }
    Ok(Ok(result))
}
