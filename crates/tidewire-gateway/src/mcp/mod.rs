//! `/mcp`: the public methods as tools of the Model Context Protocol, over its streamable HTTP
//! transport.
//!
//! A session is a name alone: clients that have one can cancel their calls. Version 2026-07-28 has
//! no sessions; there a client cancels by closing its request.

mod commands;
mod content;
mod events;
mod names;
mod prompts;
mod resources;
pub(crate) mod sessions;
mod tools;
mod updates;

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{ALLOW, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};

use crate::answer::{Answer, json as of_json, nothing};
use crate::caller::Caller;
use crate::catalog::Service;
use crate::headers::{StreamForm, check_json, stream_form};
use crate::problem::Problem;
use crate::request;
use crate::request::{RequestHead, only};
use crate::shared::Shared;
use tools::Kind;

/// Versions of the protocol, the newest first.
const VERSIONS: [&str; 5] = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// The version whose requests stand alone, without `initialize`.
const STATELESS: &str = VERSIONS[0];
/// The one version that has batches.
const BATCHES: &str = VERSIONS[3];
const VERSION: &str = "mcp-protocol-version";
const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const META_SERVER: &str = "io.modelcontextprotocol/serverInfo";

const NO_REQUEST: i32 = -32_600;
const NO_METHOD: i32 = -32_601;
const WRONG_PARAMETERS: i32 = -32_602;
const NO_JSON: i32 = -32_700;
const INTERNAL: i32 = -32_603;
const NO_VERSION: i32 = -32_022;

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(default)]
    jsonrpc: String,
    /// Null is an id, and not allowed.
    #[serde(default, deserialize_with = "some_json")]
    id: Option<Json>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

fn some_json<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(from).map(Some)
}

/// Why a request of the protocol itself fails.
struct Fault(i32, String);

/// A request to the server, besides its message.
#[derive(Clone)]
struct Request {
    shared: Arc<Shared>,
    caller: Caller,
    headers: HeaderMap,
    /// True if its answer may be an event stream.
    takes_events: bool,
}

pub(crate) async fn answer(shared: &Arc<Shared>, head: &RequestHead, body: Incoming) -> Result<Answer, Problem> {
    if head.path.len() != 1 {
        return Err(Problem::nothing(format!("{}: the tools are at /mcp", head.shown_path())));
    }
    only(head, &[Method::POST, Method::GET, Method::DELETE])?;
    let caller = Caller::of(shared, &head.headers).await?;
    let (shared, headers) = (Arc::clone(shared), head.headers.clone());
    let mut request = Request {
        takes_events: stream_form(&headers).is_ok_and(|form| form == StreamForm::Events),
        shared,
        caller,
        headers,
    };
    if head.method == Method::DELETE {
        request.shared.sessions.cancel(&request.caller.user, &head.headers, &Json::Null);
        return Ok(nothing(StatusCode::NO_CONTENT));
    }
    if head.method != Method::POST {
        if head.method == Method::HEAD || request.version() == Some(STATELESS) {
            let problem = Problem::invalid("GET is for the event stream of a session: POST a message");
            return Err(problem.with_status(StatusCode::METHOD_NOT_ALLOWED).with_header(ALLOW, "POST, DELETE"));
        }
        if !request.takes_events {
            let problem = Problem::invalid("Accept: GET is for the event stream of a session: take text/event-stream");
            return Err(problem.with_status(StatusCode::NOT_ACCEPTABLE));
        }
        return events::of_changes(request, None).await;
    }
    let body = request::read(&request.shared, body).await?;
    check_json(&head.headers, &body.bytes)?;
    let messages = match serde_json::from_slice::<Vec<&RawValue>>(&body.bytes) {
        Ok(messages) if messages.is_empty() => {
            return Ok(failed(Fault(NO_REQUEST, "the batch is empty: send a message".to_owned())));
        }
        Ok(messages) if request.version() == Some(BATCHES) || request.version().is_none() => messages,
        Ok(_) => return Ok(failed(Fault(NO_REQUEST, "batches are not offered: send one message".to_owned()))),
        Err(_) => match serde_json::from_slice(&body.bytes) {
            Ok(message) => return request.answer(message).await,
            Err(wrong) => return Ok(failed(Fault(NO_JSON, wrong.to_string()))),
        },
    };
    request.takes_events = false;
    let mut answers = Vec::new();
    for message in messages {
        let answer = request.answer(message).await?;
        answers.extend(answer.body().bytes().filter(|bytes| !bytes.is_empty()).map(|bytes| bytes.to_vec()));
    }
    Ok(if answers.is_empty() {
        nothing(StatusCode::ACCEPTED)
    } else {
        of_json([b"[", &*answers.join(&b','), b"]"].concat())
    })
}

impl Request {
    /// The version that the headers name.
    fn version(&self) -> Option<&str> {
        self.headers.get(VERSION).map(|version| version.to_str().unwrap_or("?"))
    }

    async fn answer(&self, message: &RawValue) -> Result<Answer, Problem> {
        let Ok(message) = serde_json::from_str::<Message<'_>>(message.get()) else {
            return Ok(failed(Fault(NO_REQUEST, "give an object with jsonrpc, id and method".to_owned())));
        };
        let params =
            message.params.and_then(|params| serde_json::from_str::<Json>(params.get()).ok()).unwrap_or_default();
        let version = self.version().or_else(|| params["_meta"][META_VERSION].as_str()).unwrap_or_default();
        if !version.is_empty() && !VERSIONS.contains(&version) {
            let error = json!({
                "code": NO_VERSION,
                "message": format!("MCP-Protocol-Version: {version:?} is not one of {}", VERSIONS.join(", ")),
                "data": { "supported": VERSIONS, "requested": version },
            });
            let mut answer = of_json(json!({ "jsonrpc": "2.0", "id": message.id, "error": error }).to_string());
            *answer.status_mut() = StatusCode::BAD_REQUEST;
            return Ok(answer);
        }
        let (Some(id), Some(method)) = (message.id, message.method.as_deref()) else {
            if message.method.as_deref() == Some("notifications/cancelled") {
                self.shared.sessions.cancel(&self.caller.user, &self.headers, &params["requestId"]);
            }
            // Notifications, and answers to requests that this server does not make.
            return Ok(nothing(StatusCode::ACCEPTED));
        };
        if message.jsonrpc != "2.0" || !(id.is_string() || id.is_number()) {
            return Ok(failed(Fault(NO_REQUEST, "give a request of JSON-RPC 2.0 with an id".to_owned())));
        }
        let is_stateless = version == STATELESS;
        let result = match method {
            "initialize" if !is_stateless => Ok(self.initialized(&params).await?),
            "server/discover" if is_stateless => Ok(self.discovered().await?),
            "subscriptions/listen" if is_stateless => {
                if self.takes_events {
                    return events::of_changes(self.clone(), Some((id, &params))).await;
                }
                Err(Fault(NO_REQUEST, "Accept: the answer is a stream: take text/event-stream".to_owned()))
            }
            "ping" => Ok(json!({})),
            "resources/list" => resources::list(self, &params).await?,
            "resources/templates/list" => Ok(resources::templates()),
            "resources/read" => resources::read(self, &params).await?,
            "resources/subscribe" if !is_stateless => updates::subscribe(self, &params, true).await,
            "resources/unsubscribe" if !is_stateless => updates::subscribe(self, &params, false).await,
            "completion/complete" => prompts::complete(self, &params).await?,
            "prompts/list" => tools::list(self, Kind::Prompt, &params).await?,
            "prompts/get" => events::until_cancelled(self, &id, prompts::get(self, &params)).await?,
            "tools/list" => tools::list(self, Kind::Tool, &params).await?,
            "tools/call" => {
                let token = &params["_meta"]["progressToken"];
                let is_followed = self.takes_events && (token.is_string() || token.is_number());
                if is_followed && tools::is_stream(self, &params).await? {
                    let call = message.params.map(RawValue::to_owned);
                    return events::of_call(self.clone(), call, id, token.clone(), is_stateless).await;
                }
                events::until_cancelled(self, &id, tools::call(self, message.params, None)).await?
            }
            other => Err(Fault(
                NO_METHOD,
                format!("{other:?} is not a method of this server: there are tools, prompts and resources"),
            )),
        };
        let mut answer = response(&id, result, is_stateless);
        if method == "initialize" {
            let name = HeaderValue::from_str(&sessions::new_name());
            answer.headers_mut().extend(name.ok().map(|name| (HeaderName::from_static(sessions::HEADER), name)));
        }
        Ok(answer)
    }

    async fn initialized(&self, params: &Json) -> Result<Json, Problem> {
        let mut known = VERSIONS.into_iter().filter(|version| *version != STATELESS);
        let requested = known.clone().find(|version| params["protocolVersion"] == *version);
        Ok(json!({
            "protocolVersion": requested.or_else(|| known.next()),
            "capabilities": self.capabilities(),
            "serverInfo": self.server(),
            "instructions": self.instructions().await?,
        }))
    }

    async fn discovered(&self) -> Result<Json, Problem> {
        Ok(json!({
            "supportedVersions": VERSIONS,
            "capabilities": self.capabilities(),
            "_meta": { META_SERVER: self.server() },
            "instructions": self.instructions().await?,
            "ttlMs": 0,
            "cacheScope": "private",
        }))
    }

    fn may_read_storage(&self) -> bool {
        self.caller.may_read_storage(&self.shared.access)
    }

    fn capabilities(&self) -> Json {
        let mut all =
            json!({ "tools": { "listChanged": true }, "prompts": { "listChanged": true }, "completions": {} });
        if self.may_read_storage() {
            all["resources"] = json!({ "subscribe": true });
        }
        all
    }

    fn server(&self) -> Json {
        json!({ "name": self.shared.options.name, "title": "Tidewire", "version": env!("CARGO_PKG_VERSION") })
    }

    /// The services of the tools, for the model.
    async fn instructions(&self) -> Result<String, Problem> {
        let services = self.shared.catalog.services().await?;
        let access = &self.shared.access;
        let may = |one: &&Service| one.callable().any(|method| self.caller.may_call(access, one, &method.name));
        let lines = services.values().filter(may).map(|one| format!("{}: {}", one.info.name, one.info.description));
        let first = "Each tool calls a method of a service: SERVICE-METHOD.".to_owned();
        Ok([first].into_iter().chain(lines.take(50)).collect::<Vec<_>>().join("\n"))
    }
}

/// Refuses a message that has no id to answer.
fn failed(fault: Fault) -> Answer {
    response(&Json::Null, Err(fault), false)
}

fn response(id: &Json, result: Result<Json, Fault>, is_stateless: bool) -> Answer {
    let (message, status) = message(id, result, is_stateless);
    let mut answer = of_json(message.to_string());
    *answer.status_mut() = status;
    answer
}

fn notification(name: &str, params: Json) -> Json {
    json!({ "jsonrpc": "2.0", "method": format!("notifications/{name}"), "params": params })
}

/// A response of JSON-RPC, and the status of an answer with it alone.
fn message(id: &Json, result: Result<Json, Fault>, is_stateless: bool) -> (Json, StatusCode) {
    match result {
        Ok(mut result) => {
            if is_stateless {
                result["resultType"] = "complete".into();
            }
            (json!({ "jsonrpc": "2.0", "id": id, "result": result }), StatusCode::OK)
        }
        Err(Fault(code, text)) => {
            let status = match code {
                NO_METHOD if is_stateless => StatusCode::NOT_FOUND,
                _ if is_stateless => StatusCode::BAD_REQUEST,
                _ => StatusCode::OK,
            };
            (json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": text } }), status)
        }
    }
}
