//! Commands as tools: a tool starts its command, and two more tell of commands by their ids.

use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value as Json, json};
use tidewire_node::MethodInfo;
use tidewire_node::values::Value;

use super::Request;
use crate::catalog::Service;
use crate::commands::{find, options, start, state};
use crate::json::to_json;
use crate::problem::Problem;
use crate::streams::Reports;

const STATE: &str = "tidewire-_commands-state";
const CANCEL: &str = "tidewire-_commands-cancel";
/// Options of a start, beside the arguments.
const OPTIONS: [(&str, &str); 2] =
    [("key", "The object of the command."), ("id", "An idempotency key: a second start returns the first command.")];
/// Longest wait of one call for the end of a command.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The tools for commands by their ids.
pub(super) fn tools() -> [(Json, String); 2] {
    let wait = json!({ "type": "number", "description": "Seconds to wait for its end, at most 60." });
    let id = json!({ "type": "string", "description": "The id that the start has returned." });
    let description = "Gives stage, fraction and note of a command, and its result or problem once it has ended.";
    let all = [
        (STATE, description, json!({ "id": id, "wait": wait }), true),
        (CANCEL, "Cancels a command, and gives its state.", json!({ "id": id }), false),
    ];
    all.map(|(name, text, properties, is_safe)| {
        let schema = json!({ "type": "object", "properties": properties, "required": ["id"] });
        let hints = json!({ "title": text, "idempotentHint": true, "readOnlyHint": is_safe });
        (json!({ "name": name, "description": text, "inputSchema": schema, "annotations": hints }), name.to_owned())
    })
}

/// Calls one of them; none if the name is that of another tool.
pub(super) async fn call(request: &Request, name: &str, arguments: Option<&RawValue>) -> Option<Result<Json, Problem>> {
    let Request { shared, caller, .. } = request;
    let values: Json = arguments.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    let call = async {
        let services = shared.catalog.services().await?;
        let (run, _) = find(shared, caller, &services, values["id"].as_str().unwrap_or_default()).await?;
        if name == CANCEL {
            run.cancel().await?;
        }
        let wait = values["wait"].as_f64().and_then(|wait| Duration::try_from_secs_f64(wait).ok());
        state(&run, wait.map(|wait| wait.min(WAIT_MAX))).await
    };
    if matches!(name, STATE | CANCEL) { Some(call.await) } else { None }
}

/// The schema of a start: that of the arguments, with options.
pub(super) fn with_options(mut schema: Json, service: &Service, command: &MethodInfo) -> Json {
    for (name, text) in own(command) {
        schema["properties"][name] = json!({ "type": "string", "description": text });
    }
    if service.is_exclusive(command) {
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        schema["required"] = required.into_iter().chain(["key".into()]).collect();
    }
    schema
}

fn own(command: &MethodInfo) -> impl Iterator<Item = (&'static str, &'static str)> {
    OPTIONS.into_iter().filter(|(name, _)| command.parameters["properties"].get(name).is_none())
}

/// Starts a command and gives its id; with reports, waits for its end and gives its result.
pub(super) async fn run(
    request: &Request,
    service: &Service,
    command: &MethodInfo,
    body: &[u8],
    reports: Option<Reports<'_>>,
) -> Result<Vec<u8>, Problem> {
    let mut values: Map<String, Json> = serde_json::from_slice(body).unwrap_or_default();
    let mut chosen = Vec::new();
    for (name, _) in own(command) {
        match values.shift_remove(name) {
            Some(Json::String(text)) => chosen.push((name, text)),
            None | Some(Json::Null) => {}
            Some(other) => return Err(Problem::invalid(format!("{name}: {other} is not allowed: give text"))),
        }
    }
    let options = options(service, command, chosen.into_iter())?;
    let run = start(&request.shared, service, command, Json::Object(values).to_string().as_bytes(), options)?.await?;
    let Some((out, report)) = reports else { return Ok(json!({ "id": run.id() }).to_string().into_bytes()) };
    let (mut progress, mut last) = (run.progress(), -1.0);
    while let Some(newest) = progress.next().await {
        let newest = newest?;
        // Attempts count as wholes, so that progress rises after a retry, too.
        let at = f64::from(newest.attempt) - 1.0 + newest.fraction;
        if at > last {
            last = at;
            let mut message = report(0, &Value::Text(newest.note), b"");
            message["params"]["progress"] = at.into();
            message["params"]["total"] = newest.attempt.into();
            let _ = out.send(message).await;
        }
    }
    Ok(to_json(&run.result::<Value>().await?))
}
