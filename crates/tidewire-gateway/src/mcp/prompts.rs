//! Prompts: methods whose results are messages for a model.

use std::borrow::Cow;

use serde_json::{Map, Value as Json, json};
use tidewire_node::MethodInfo;
use tidewire_node::values::Value;

use super::content::content;
use super::tools::{Kind, find, labels};
use super::{Fault, INTERNAL, Request, WRONG_PARAMETERS};
use crate::calls::{client, read_arguments};
use crate::catalog::Service;
use crate::problem::Problem;
use crate::schema::{choices, text_arguments};

/// Values that one answer has at most, as the protocol demands.
const VALUES: usize = 100;

pub(super) fn prompt(name: &str, service: &Service, method: &MethodInfo) -> Json {
    let (title, description) = labels(service, method);
    let parameters = method.parameters["properties"].as_object().into_iter().flatten();
    let is_needed = |name: &str| method.parameters["required"].as_array().is_some_and(|all| all.contains(&name.into()));
    let arguments = parameters.map(|(name, schema)| {
        let mut argument = json!({ "name": name, "required": is_needed(name) });
        if let Some(text) = schema.get("description") {
            argument["description"] = text.clone();
        }
        argument
    });
    json!({ "name": name, "title": title, "description": description, "arguments": arguments.collect::<Json>() })
}

/// Arguments are texts: a text stands for JSON where the parameter takes no text.
pub(super) async fn get(request: &Request, params: &Json) -> Result<Result<Json, Fault>, Problem> {
    let services = request.shared.catalog.services().await?;
    let name = params["name"].as_str().unwrap_or_default();
    let Some((service, method)) = find(&services, Kind::Prompt, name) else { return Ok(Err(unknown(name))) };
    let none = Map::new();
    let values = params["arguments"].as_object().unwrap_or(&none);
    let text = |value: &Json| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let texts = values.iter().map(|(name, value)| (Cow::Borrowed(name.as_str()), Cow::Owned(text(value))));
    let body = text_arguments(method, texts)?;
    let done = async {
        let arguments = read_arguments(method, body.as_bytes())?;
        let client = client(&request.shared, &request.caller, service, method, &request.headers)?;
        client.call(&method.name, &arguments).await.map_err(Problem::from)
    };
    let result: Value = match done.await {
        Ok(result) => result,
        Err(problem) => {
            let code = if problem.status.is_client_error() { WRONG_PARAMETERS } else { INTERNAL };
            let problem = problem.explained(&service.info.name, method, body.as_bytes());
            return Ok(Err(Fault(code, problem.detail().to_owned())));
        }
    };
    let all = match &result {
        Value::List(all) | Value::Tuple(all) => all.iter().map(message).collect(),
        one => message(one).map(|one| vec![one]),
    };
    Ok(all.map(|messages| json!({ "description": labels(service, method).1, "messages": messages })).ok_or_else(|| {
        let text = "the result is no message: return text, or a list of messages with role and content";
        Fault(INTERNAL, format!("{}.{}: {text}", service.info.name, method.name))
    }))
}

fn unknown(name: &str) -> Fault {
    Fault(WRONG_PARAMETERS, format!("name: there is no prompt {name:?}: prompts/list has those that there are"))
}

/// The values of an argument that begin with a text, of a parameter with a list of values.
pub(super) async fn complete(request: &Request, params: &Json) -> Result<Result<Json, Fault>, Problem> {
    let services = request.shared.catalog.services().await?;
    let text = |json: &Json| json.as_str().unwrap_or_default().to_owned();
    let (name, argument, begin) =
        (text(&params["ref"]["name"]), text(&params["argument"]["name"]), text(&params["argument"]["value"]));
    let found = find(&services, Kind::Prompt, &name);
    if found.is_none() && params["ref"]["type"] == "ref/prompt" {
        return Ok(Err(unknown(&name)));
    }
    let parameters = found.map_or(&Json::Null, |(_, method)| &method.parameters);
    let values = choices(&parameters["properties"][&argument], parameters).filter(|value| value.starts_with(&begin));
    Ok(Ok(json!({ "completion": { "values": values.take(VALUES).collect::<Json>(), "hasMore": false } })))
}

/// A message with its role; content alone is what the user says.
fn message(value: &Value) -> Option<Json> {
    let Some(role) = value.get("role") else {
        return Some(json!({ "role": "user", "content": content(value)? }));
    };
    let role = role.as_str().filter(|role| ["user", "assistant"].contains(role))?;
    Some(json!({ "role": role, "content": content(value.get("content")?)? }))
}
