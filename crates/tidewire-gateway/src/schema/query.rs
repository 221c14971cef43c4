//! Arguments that are texts, such as those in the query of a URL, as JSON by name.

use std::borrow::Cow;

use serde_json::{Map, Value as Json, json};
use tidewire_node::MethodInfo;

use super::{alternatives, resolved};
use crate::problem::Problem;

/// The arguments of a query as the JSON of a body.
pub(crate) fn query_arguments(method: &MethodInfo, query: &str) -> Result<String, Problem> {
    text_arguments(method, form_urlencoded::parse(query.as_bytes()))
}

/// Texts by the names of arguments as the JSON of a body. A text stands for itself where the
/// parameter takes text, and else for JSON; an array is a name that is repeated.
pub(crate) fn text_arguments<'a>(
    method: &MethodInfo,
    texts: impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)>,
) -> Result<String, Problem> {
    let mut found = Map::new();
    for (name, text) in texts {
        let schema = &method.parameters["properties"][&*name];
        let array = kinds(schema, &method.parameters).into_iter().find(|kind| kind["type"] == "array");
        let (is_array, schema) = (array.is_some(), array.map_or(schema, |array| &array["items"]));
        let value = value(schema, &method.parameters, &text);
        match found.get_mut(&*name) {
            Some(Json::Array(items)) if is_array => items.push(value),
            Some(_) => return Err(Problem::invalid(format!("query: {name:?} is given twice: give it once"))),
            None => drop(found.insert(name.into_owned(), if is_array { json!([value]) } else { value })),
        }
    }
    Ok(Json::Object(found).to_string())
}

/// The texts that a schema allows, if it lists them.
pub(crate) fn choices<'a>(schema: &'a Json, whole: &'a Json) -> impl Iterator<Item = &'a str> {
    let listed = |kind: &'a Json| kind["enum"].as_array().into_iter().flatten().chain(kind.get("const"));
    kinds(schema, whole).into_iter().flat_map(listed).filter_map(Json::as_str)
}

/// A schema, or its alternatives.
fn kinds<'a>(schema: &'a Json, whole: &'a Json) -> Vec<&'a Json> {
    let schema = resolved(schema, whole);
    alternatives(schema).map_or_else(|| vec![schema], |all| all.iter().map(|one| resolved(one, whole)).collect())
}

fn value(schema: &Json, whole: &Json, text: &str) -> Json {
    let read = serde_json::from_str::<Json>(text).ok();
    let is_text = |kind: &&Json| kind["type"] == "string" || kind["enum"].get(0).is_some_and(Json::is_string);
    let is_text = kinds(schema, whole).iter().any(is_text);
    read.filter(|read| !is_text || read.is_null()).unwrap_or_else(|| text.into())
}
