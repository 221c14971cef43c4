//! The description of the public services: OpenAPI 3.1, made of the schemas that they declare.

use serde_json::{Map, Value, json};
use tidewire_node::MethodInfo;

use crate::caller::Caller;
use crate::catalog::Services;
use crate::server::Shared;

/// Describes the methods that a caller may call.
pub(crate) fn description(shared: &Shared, caller: &Caller, services: &Services) -> Value {
    let (mut paths, mut schemas) = (Map::new(), own_schemas());
    let mut tags = Vec::new();
    for service in services.values() {
        let name = &service.info.name;
        for method in &service.info.methods {
            if caller.may_call(&shared.access, service, &method.name) {
                let path = format!("/services/{name}/{}", method.name);
                paths.insert(path, json!({ "post": operation(name, method, &mut schemas) }));
            }
        }
        tags.push(json!({ "name": name, "description": service.info.description }));
    }
    let mut made = json!({
        "openapi": "3.1.0",
        "info": {
            "title": format!("Services of {}", shared.options.name),
            "description": "Each method is called with POST: an array holds its arguments by position, an object by name.",
            "version": "1",
        },
        "tags": tags,
        "paths": paths,
        "components": { "schemas": schemas },
    });
    if !shared.is_open() {
        made["components"]["securitySchemes"] = json!({ "token": { "type": "http", "scheme": "bearer" } });
        made["security"] = json!([{ "token": [] }]);
    }
    made
}

fn operation(service: &str, method: &MethodInfo, schemas: &mut Map<String, Value>) -> Value {
    let title = format!("{service}.{}", method.name);
    let parameters = hoisted(&method.parameters, &format!("{title}.arguments"), schemas, Form::Input);
    let result = hoisted(&method.result, &format!("{title}.result"), schemas, Form::Output);
    let has_required = parameters.get("required").and_then(Value::as_array).is_some_and(|names| !names.is_empty());
    let arguments = json!({ "anyOf": [parameters, positional(&parameters)] });
    let answers = if method.stream {
        let item = json!({ "schema": { "type": "string" }, "x-item-schema": result });
        json!({ "application/x-ndjson": item.clone(), "text/event-stream": item })
    } else {
        json!({ "application/json": { "schema": result } })
    };
    let what = if method.stream { "Its items, one after the other." } else { "What it gives." };
    let mut made = json!({
        "operationId": title,
        "tags": [service],
        "summary": method.description,
        "requestBody": { "required": has_required, "content": { "application/json": { "schema": arguments } } },
        "responses": {
            "200": { "description": what, "content": answers },
            "default": {
                "description": "Why it was not done.",
                "content": { "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } },
            },
        },
    });
    if !method.notes.is_empty() {
        made["description"] = method.notes.join("\n").into();
    }
    if method.idempotent {
        made["x-idempotent"] = true.into();
    }
    made
}

/// The same arguments by position.
fn positional(parameters: &Value) -> Value {
    let properties = parameters.get("properties").and_then(Value::as_object);
    let items: Vec<Value> = properties.map(|of| of.values().cloned().collect()).unwrap_or_default();
    json!({ "type": "array", "prefixItems": items })
}

/// Direction of a value.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Input,
    Output,
}

/// A schema as a part of the description: its definitions move to those of all, under names of
/// their own, as references are read from the root of the document.
fn hoisted(schema: &Value, title: &str, schemas: &mut Map<String, Value>, form: Form) -> Value {
    let mut schema = schema.clone();
    let defined = schema.as_object_mut().and_then(|schema| schema.remove("$defs"));
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("$schema");
    }
    rewrite(&mut schema, title, form);
    for (name, mut one) in defined.as_ref().and_then(Value::as_object).cloned().unwrap_or_default() {
        rewrite(&mut one, title, form);
        schemas.insert(component(title, &name), one);
    }
    schema
}

fn rewrite(schema: &mut Value, title: &str, form: Form) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(|item| rewrite(item, title, form)),
        Value::Object(fields) => {
            if let Some(Value::String(to)) = fields.get_mut("$ref")
                && let Some(name) = to.strip_prefix("#/$defs/")
            {
                *to = format!("#/components/schemas/{}", component(title, name));
            }
            fields.values_mut().for_each(|value| rewrite(value, title, form));
            if fields.get("contentEncoding").and_then(Value::as_str) == Some("base64") {
                *schema = binary(std::mem::take(schema), form);
            }
        }
        _ => {}
    }
}

/// Bytes are returned in a form of their own; parameters of the type bytes also accept plain
/// base64.
fn binary(text: Value, form: Form) -> Value {
    let bytes = json!({ "$ref": "#/components/schemas/Bytes" });
    if form == Form::Output { bytes } else { json!({ "anyOf": [text, bytes] }) }
}

fn component(title: &str, name: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
    format!("{title}.{name}").chars().map(|letter| if is_plain(letter) { letter } else { '_' }).collect()
}

fn own_schemas() -> Map<String, Value> {
    let made = json!({
        "Problem": {
            "type": "object",
            "description": "Problem details of RFC 9457.",
            "properties": {
                "type": { "type": "string" },
                "title": { "type": "string" },
                "status": { "type": "integer" },
                "detail": { "type": "string" },
                "code": { "type": "string", "description": "Which error it is, as docs/reference/errors.md has them." },
                "retryable": { "type": "boolean" },
                "error": { "type": "string", "description": "The type of the error that the method has raised." },
            },
            "required": ["type", "title", "status", "detail", "code", "retryable"],
        },
        "Bytes": {
            "type": "object",
            "properties": { "$type": { "const": "bytes" }, "base64": { "type": "string", "contentEncoding": "base64" } },
            "required": ["$type", "base64"],
        },
    });
    made.as_object().cloned().unwrap_or_default()
}
