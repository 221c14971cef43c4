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

/// Texts by the names of arguments as the JSON of a body.
pub(crate) fn text_arguments<'a>(
    method: &MethodInfo,
    texts: impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)>,
) -> Result<String, Problem> {
    let mut found = NamedArguments::new(method);
    for (name, text) in texts {
        found.add_text(&name, &text)?;
    }
    Ok(found.json())
}

/// Arguments by name. A name that is repeated makes an array where the parameter takes one.
pub(crate) struct NamedArguments<'a> {
    parameters: &'a Json,
    found: Map<String, Json>,
}

impl<'a> NamedArguments<'a> {
    pub fn new(method: &'a MethodInfo) -> Self {
        Self { parameters: &method.parameters, found: Map::new() }
    }

    /// True if the parameter takes a stream.
    pub fn is_stream(&self, name: &str) -> bool {
        self.parameters["properties"][name].get("x-stream").is_some()
    }

    /// True if the parameter takes bytes, or an array of bytes.
    pub fn is_bytes(&self, name: &str) -> bool {
        let is_bytes = |schema| kinds(schema, self.parameters).iter().any(|kind| kind["contentEncoding"] == "base64");
        let schema = &self.parameters["properties"][name];
        is_bytes(schema) || kinds(schema, self.parameters).iter().any(|kind| is_bytes(&kind["items"]))
    }

    /// Adds a text: it stands for itself where the parameter takes text, and else for JSON.
    pub fn add_text(&mut self, name: &str, text: &str) -> Result<(), Problem> {
        let parameters = self.parameters;
        self.add(name, |schema| value(schema, parameters, text))
    }

    /// Adds a value that depends on its schema.
    pub fn add(&mut self, name: &str, make: impl FnOnce(&Json) -> Json) -> Result<(), Problem> {
        let schema = &self.parameters["properties"][name];
        let is_array = |kind: &&Json| kind["type"] == "array" && kind.get("x-stream").is_none();
        let array = kinds(schema, self.parameters).into_iter().find(is_array);
        let value = make(array.map_or(schema, |array| &array["items"]));
        match self.found.get_mut(name) {
            Some(Json::Array(items)) if array.is_some() => items.push(value),
            Some(_) => return Err(Problem::invalid(format!("{name:?} is given twice: give it once"))),
            None => drop(self.found.insert(name.to_owned(), if array.is_some() { json!([value]) } else { value })),
        }
        Ok(())
    }

    pub fn json(self) -> String {
        Json::Object(self.found).to_string()
    }
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
