//! JSON Schemas of methods: the faults of a body, and integers that are written as floats.

mod faults;
mod integers;
mod query;

use serde_json::Value as Json;

pub(crate) use faults::{Fault, faults};
pub(crate) use integers::restore_integers;
pub(crate) use query::{NamedArguments, choices, query_arguments, text_arguments};

/// Levels of a schema that are followed: a recursive type has no end of its own.
const DEPTH: usize = 64;

/// The schema that a schema refers to; `whole` has the definitions.
fn resolved<'a>(schema: &'a Json, whole: &'a Json) -> &'a Json {
    let to = schema.get("$ref").and_then(Json::as_str).and_then(|to| to.strip_prefix('#'));
    to.and_then(|to| whole.pointer(to)).unwrap_or(schema)
}

/// The alternatives of a schema, if it has any.
fn alternatives(schema: &Json) -> Option<&Vec<Json>> {
    ["anyOf", "oneOf"].iter().find_map(|name| schema.get(name)).and_then(Json::as_array)
}

/// Schema of an item of an array.
fn item_schema(schema: &Json, at: usize) -> Option<&Json> {
    let place = schema.get("prefixItems").and_then(|places| places.get(at));
    place.or_else(|| schema.get("items"))
}

/// Schema of a member of an object.
fn member_schema<'a>(schema: &'a Json, name: &str) -> Option<&'a Json> {
    let member = schema.get("properties").and_then(|members| members.get(name));
    member.or_else(|| schema.get("additionalProperties"))
}

/// Schema of an argument by its position. The last parameter may take all that follow.
fn argument_schema(parameters: &Json, at: usize) -> Option<(&String, &Json)> {
    let named = parameters.get("properties")?.as_object()?;
    let rest = named.iter().next_back().filter(|(_, schema)| schema.get("x-rest").is_some());
    match rest {
        Some((name, schema)) if at + 1 >= named.len() => Some((name, schema.get("items").unwrap_or(schema))),
        _ => named.iter().nth(at),
    }
}
