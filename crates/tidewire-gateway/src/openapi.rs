//! The description of the public services: OpenAPI 3.1, made of the schemas that they declare.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value, json};
use tidewire_node::MethodInfo;

use crate::caller::Caller;
use crate::catalog::Services;
use crate::schema::NamedArguments;
use crate::shared::Shared;

/// The schemas of the gateway itself.
const SCHEMAS: &str = include_str!("openapi_schemas.json");
/// The paths of a command, without what differs.
const COMMAND: &str = include_str!("openapi_command.json");
/// Place of the result in the state of a command.
const RESULT: &str = "/responses/200/content/application~1json/schema/allOf/1/properties/result";
const PREFIX: &str = "#/components/schemas/";

/// Describes the methods that a caller may call.
pub(crate) fn description(shared: &Shared, caller: &Caller, services: &Services) -> Value {
    let mut components = Components::new();
    let (mut paths, mut tags) = (Map::new(), Vec::new());
    for service in services.values() {
        let name = &service.info.name;
        for method in &service.info.methods {
            if caller.may_call(&shared.access, service, &method.name) {
                let path = format!("/services/{name}/{}", method.name);
                let post = operation(name, method, &mut components);
                let get = method.safe.then(|| query_operation(&post));
                let mut operations = json!({ "post": post });
                get.into_iter().for_each(|get| operations["get"] = get);
                paths.insert(path, operations);
            }
        }
        for command in service.commands.values() {
            if caller.may_call(&shared.access, service, &command.name) {
                paths.extend(command_paths(name, command, service.is_exclusive(command), &mut components));
            }
        }
        tags.push(json!({ "name": name, "description": service.info.description }));
    }
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": format!("Services of {}", shared.options.name),
            "description": "Each method is called with POST: an array holds its arguments by position, an object or a form (multipart/form-data) by name.",
            "version": "1",
        },
        "tags": tags,
        "paths": paths,
        "components": { "schemas": components.schemas },
    });
    if !shared.is_open() {
        document["components"]["securitySchemes"] = json!({ "token": { "type": "http", "scheme": "bearer" } });
        document["security"] = json!([{ "token": [] }]);
    }
    document
}

fn operation(service: &str, method: &MethodInfo, components: &mut Components) -> Value {
    let title = format!("{service}.{}", method.name);
    let parameters = components.add(&method.parameters, service, Form::Input);
    let result = components.add(&method.result, service, Form::Output);
    let has_required = parameters.get("required").and_then(Value::as_array).is_some_and(|names| !names.is_empty());
    let arguments = json!({ "anyOf": [by_name(&parameters), positional(&parameters)] });
    let answers = if method.stream {
        let item = json!({ "schema": { "type": "string" }, "x-item-schema": result });
        json!({ "application/x-ndjson": item.clone(), "text/event-stream": item })
    } else {
        json!({ "application/json": { "schema": result } })
    };
    let what = if method.stream { "Its items, one after the other." } else { "What it gives." };
    let mut operation = json!({
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
    if let Some(form) = multipart(method, &parameters) {
        // Alone: some generators of clients do not take two types of bodies.
        operation["requestBody"]["content"] = json!({ "multipart/form-data": { "schema": form } });
    }
    if !method.notes.is_empty() {
        operation["description"] = method.notes.join("\n").into();
    }
    if method.idempotent {
        operation["x-idempotent"] = true.into();
    }
    operation
}

/// The paths of a command: its start, its state, its reports and its cancellation.
fn command_paths(
    service: &str,
    command: &MethodInfo,
    needs_key: bool,
    components: &mut Components,
) -> Map<String, Value> {
    let mut start = operation(service, command, components);
    let result = start["responses"]["200"]["content"]["application/json"]["schema"].take();
    let refused = start["responses"]["default"].take();
    let mut paths = Map::new();
    for (path, mut item) in serde_json::from_str::<Map<_, _>>(COMMAND).unwrap_or_default() {
        for operation in item.as_object_mut().into_iter().flat_map(Map::values_mut) {
            let kind = operation["operationId"].as_str().unwrap_or_default();
            operation["operationId"] = format!("{service}.{}{kind}", command.name).into();
            operation["tags"] = json!([service]);
            operation["responses"]["default"] = refused.clone();
            if let Some(place) = operation.pointer_mut(RESULT) {
                *place = result.clone();
            }
        }
        paths.insert(format!("/commands/{service}/{}{path}", command.name), item);
    }
    let post = &mut paths[&format!("/commands/{service}/{}", command.name)]["post"];
    post["summary"] = start["summary"].take();
    post["requestBody"] = start["requestBody"].take();
    post["parameters"][0]["required"] = needs_key.into();
    paths
}

/// The operation of a safe method with its arguments in the query.
fn query_operation(post: &Value) -> Value {
    let mut get = post.clone();
    let named = post["requestBody"]["content"]["application/json"]["schema"]["anyOf"][0].clone();
    let required = |name: &str| named["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name));
    let parameters = named["properties"].as_object().into_iter().flatten();
    let parameters = parameters
        .map(|(name, schema)| json!({ "name": name, "in": "query", "required": required(name), "schema": schema }));
    get["parameters"] = parameters.collect();
    get["operationId"] = format!("{}.get", post["operationId"].as_str().unwrap_or_default()).into();
    get.as_object_mut().map(|get| get.shift_remove("requestBody"));
    get
}

/// The arguments as a form, if one of them is a stream. The stream is the last, and optional:
/// generators of clients send what is required first.
fn multipart(method: &MethodInfo, parameters: &Value) -> Option<Value> {
    let declared = NamedArguments::new(method);
    let file = json!({ "type": "string", "format": "binary", "contentMediaType": "application/octet-stream" });
    let mut form = by_name(parameters);
    let properties = form.get_mut("properties")?.as_object_mut()?;
    let stream = properties.keys().find(|name| declared.is_stream(name))?.clone();
    for (name, schema) in properties.iter_mut() {
        if declared.is_bytes(name) && schema["type"] != "array" {
            *schema = file.clone();
        }
    }
    properties.shift_remove(&stream);
    properties.insert(stream.clone(), file);
    if let Some(required) = form.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| *name != stream);
    }
    Some(form)
}

/// The arguments by name. Those of a parameter that takes all that follow have no name.
fn by_name(parameters: &Value) -> Value {
    let mut named = parameters.clone();
    if let Some(properties) = named.get_mut("properties").and_then(Value::as_object_mut) {
        properties.retain(|_, schema| schema.get("x-rest").is_none());
    }
    named
}

/// The same arguments by position.
fn positional(parameters: &Value) -> Value {
    let properties = parameters.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    let (rest, places): (Vec<_>, Vec<_>) =
        properties.into_iter().partition(|(_, schema)| schema.get("x-rest").is_some());
    let required = parameters.get("required").and_then(Value::as_array).map_or(0, Vec::len);
    let mut array = json!({ "type": "array", "minItems": required });
    match rest.into_iter().next() {
        Some((_, schema)) => array["items"] = schema["items"].clone(),
        None => array["maxItems"] = places.len().into(),
    }
    if !places.is_empty() {
        array["prefixItems"] = places.into_iter().map(|(_, schema)| schema).collect();
    } else if array.get("items").is_none() {
        array["items"] = json!({});
    }
    array
}

/// Direction of a value.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Input,
    Output,
}

/// The schemas that others refer to: one for each type, whatever methods name it.
struct Components {
    schemas: Map<String, Value>,
    /// Their names, by the content of them and of those that they refer to.
    names: HashMap<String, String>,
}

impl Components {
    fn new() -> Self {
        Self { schemas: serde_json::from_str(SCHEMAS).unwrap_or_default(), names: HashMap::new() }
    }

    /// A schema as a part of the description. References are read from the root of the document, so
    /// the definitions of the schema move there.
    fn add(&mut self, schema: &Value, service: &str, form: Form) -> Value {
        let mut schema = schema.clone();
        let defined = schema.as_object_mut().and_then(|schema| schema.remove("$defs"));
        if let Some(schema) = schema.as_object_mut() {
            schema.remove("$schema");
        }
        let defined = defined.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
        let (mut names, mut new) = (HashMap::new(), Vec::new());
        for name in defined.keys() {
            let mut parts = BTreeMap::new();
            reachable(name, &defined, &mut parts);
            let text = Value::from_iter(parts).to_string();
            let is_binary = form == Form::Output && text.contains("contentEncoding");
            let content = format!("{name} {is_binary} {text}");
            let known = self.names.get(&content).cloned();
            let chosen = known.unwrap_or_else(|| {
                new.push(name);
                self.reserve(name, service, content)
            });
            names.insert(name.as_str(), chosen);
        }
        for name in new {
            let mut part = defined[name].clone();
            rewrite(&mut part, &names, form);
            self.schemas.insert(names[name.as_str()].clone(), part);
        }
        rewrite(&mut schema, &names, form);
        schema
    }

    /// The first name that is free.
    fn reserve(&mut self, name: &str, service: &str, content: String) -> String {
        let qualified = format!("{service}.{name}");
        let numbered = (2..).map(|number| format!("{qualified}.{number}"));
        let mut all = [name.to_owned(), qualified.clone()].into_iter().chain(numbered).map(|name| plain(&name));
        let free = all.find(|name| !self.schemas.contains_key(name)).unwrap_or_default();
        self.schemas.insert(free.clone(), Value::Null);
        self.names.insert(content, free.clone());
        free
    }
}

/// A definition, with all that it refers to.
fn reachable<'a>(name: &'a str, defined: &'a Map<String, Value>, found: &mut BTreeMap<String, Value>) {
    let Some(part) = defined.get(name).filter(|_| !found.contains_key(name)) else { return };
    found.insert(name.to_owned(), part.clone());
    let mut open = vec![part];
    while let Some(part) = open.pop() {
        if let Some(name) = part.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix("#/$defs/")) {
            reachable(name, defined, found);
        }
        open.extend(part.as_array().into_iter().flatten());
        open.extend(part.as_object().into_iter().flat_map(Map::values));
    }
}

fn rewrite(schema: &mut Value, names: &HashMap<&str, String>, form: Form) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(|item| rewrite(item, names, form)),
        Value::Object(fields) => {
            if let Some(Value::String(to)) = fields.get_mut("$ref")
                && let Some(name) = to.strip_prefix("#/$defs/").and_then(|name| names.get(name))
            {
                *to = format!("{PREFIX}{name}");
            }
            if let Some(Value::Object(mapping)) = fields.get_mut("discriminator").and_then(|of| of.get_mut("mapping")) {
                for to in mapping.values_mut() {
                    let name = to.as_str().and_then(|to| to.strip_prefix("#/$defs/")).and_then(|name| names.get(name));
                    name.into_iter().for_each(|name| *to = format!("{PREFIX}{name}").into());
                }
            }
            // A tuple has as many items as places; readers that know no places get all their types.
            if let Some(places) = fields.get("prefixItems").filter(|_| fields.get("items") == Some(&Value::Bool(false)))
            {
                fields["items"] = json!({ "anyOf": places });
            }
            // Generators of clients ask for the type of items, whatever they are.
            if fields.get("type").is_some_and(|kind| kind == "array") && !fields.contains_key("prefixItems") {
                fields.entry("items").or_insert_with(|| json!({}));
            }
            fields.values_mut().for_each(|value| rewrite(value, names, form));
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

fn plain(name: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
    name.chars().map(|letter| if is_plain(letter) { letter } else { '_' }).collect()
}
