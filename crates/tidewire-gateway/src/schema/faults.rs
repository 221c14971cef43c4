//! All faults of a body, each with its place: what a schema of a method forbids.

use serde_json::{Value as Json, json};

use super::{DEPTH, alternatives, argument_schema, item_schema, member_schema, resolved};

/// Faults that are listed at most.
const FAULTS: usize = 50;
/// Letters of a value that a message repeats.
const LETTERS: usize = 60;

/// A fault in a body.
#[derive(Clone)]
pub(crate) struct Fault {
    /// Its place, as a JSON pointer.
    pub pointer: String,
    message: String,
}

impl Fault {
    /// In a line.
    pub fn line(&self) -> String {
        format!("{}: {}", self.pointer, self.message)
    }

    pub fn json(&self) -> Json {
        json!({ "pointer": self.pointer, "message": self.message })
    }
}

/// The faults of the arguments of a call. A value in a form of its own (`$type`) passes.
pub(crate) fn faults(parameters: &Json, body: &[u8]) -> Vec<Fault> {
    let body = if body.is_empty() { Ok(json!({})) } else { serde_json::from_slice::<Json>(body) };
    let mut check = Check { whole: parameters, found: Vec::new() };
    match body {
        Ok(Json::Array(items)) => check.positions(&items),
        Ok(body @ Json::Object(_)) => check.value(parameters, &body, "", DEPTH),
        _ => {}
    }
    check.found.truncate(FAULTS);
    check.found
}

struct Check<'a> {
    whole: &'a Json,
    found: Vec<Fault>,
}

impl Check<'_> {
    fn fault(&mut self, pointer: String, message: String) {
        self.found.push(Fault { pointer, message });
    }

    fn positions(&mut self, items: &[Json]) {
        for (at, item) in items.iter().enumerate() {
            match argument_schema(self.whole, at) {
                Some((name, schema)) => {
                    let known = self.found.len();
                    self.value(schema, item, &format!("/{at}"), DEPTH);
                    for fault in &mut self.found[known..] {
                        fault.message = format!("{name}: {}", fault.message);
                    }
                }
                None => self.fault(format!("/{at}"), "there is no such argument: give fewer".to_owned()),
            }
        }
        let names = self.whole.get("properties").and_then(Json::as_object).into_iter().flatten();
        let required = texts(self.whole, "required");
        for (at, (name, _)) in names.enumerate().skip(items.len()).filter(|(_, (name, _))| required.contains(&&***name))
        {
            self.fault(format!("/{at}"), format!("the argument {name:?} is missing"));
        }
    }

    fn value(&mut self, schema: &Json, value: &Json, at: &str, depth: usize) {
        let schema = resolved(schema, self.whole);
        if depth == 0 || (at.contains('/') && value.get("$type").is_some()) {
            return;
        }
        if *schema == Json::Bool(false) {
            return self.fault(at.to_owned(), "nothing is allowed here: leave it out".to_owned());
        }
        if let Some(all) = alternatives(schema) {
            return self.alternatives(all, value, at, depth);
        }
        if let Some(expected) = expected(schema, value) {
            return self.fault(at.to_owned(), format!("{} is not allowed: give {expected}", short(value)));
        }
        match value {
            Json::Array(items) => {
                for (number, item) in items.iter().enumerate() {
                    let at = format!("{at}/{number}");
                    item_schema(schema, number).into_iter().for_each(|schema| self.value(schema, item, &at, depth - 1));
                }
            }
            Json::Object(members) => {
                for name in texts(schema, "required").into_iter().filter(|name| !members.contains_key(*name)) {
                    self.fault(format!("{at}/{}", escaped(name)), format!("{name:?} is missing"));
                }
                for (name, value) in members {
                    let at = format!("{at}/{}", escaped(name));
                    match member_schema(schema, name) {
                        Some(Json::Bool(false)) => {
                            let known = schema.get("properties").and_then(Json::as_object).into_iter().flatten();
                            let known: Vec<&str> = known.map(|(name, _)| name.as_str()).collect();
                            self.fault(at, format!("{name:?} is not known: there is {}", known.join(", ")));
                        }
                        Some(schema) => self.value(schema, value, &at, depth - 1),
                        None => {}
                    }
                }
            }
            _ => {}
        }
    }

    /// A value that must fit one of several schemas: the faults beside the one that it nearly fits.
    fn alternatives(&mut self, all: &[Json], value: &Json, at: &str, depth: usize) {
        let mut nearest: Option<Vec<Fault>> = None;
        for schema in all {
            let mut check = Check { whole: self.whole, found: Vec::new() };
            check.value(schema, value, at, depth - 1);
            if check.found.is_empty() {
                return;
            }
            let is_inside = |found: &[Fault]| found.iter().all(|fault| fault.pointer.len() > at.len());
            if is_inside(&check.found) && nearest.as_ref().is_none_or(|known| known.len() > check.found.len()) {
                nearest = Some(check.found);
            }
        }
        match nearest {
            Some(found) => self.found.extend(found),
            None => {
                let kinds: Vec<String> = all.iter().map(|schema| described(resolved(schema, self.whole))).collect();
                self.fault(at.to_owned(), format!("{} is not allowed: give {}", short(value), kinds.join(" or ")));
            }
        }
    }
}

/// The values that are allowed in place of this one; None if it fits, but for its parts.
fn expected(schema: &Json, value: &Json) -> Option<String> {
    if let Some(allowed) = schema.get("enum").and_then(Json::as_array) {
        return (!allowed.contains(value)).then(|| described(schema));
    }
    if let Some(only) = schema.get("const") {
        return (only != value).then(|| described(schema));
    }
    let kinds = schema.get("type").map(|kinds| kinds.as_array().cloned().unwrap_or_else(|| vec![kinds.clone()]));
    if kinds.is_some_and(|kinds| !kinds.iter().any(|kind| is_of(kind.as_str().unwrap_or_default(), value))) {
        return Some(described(schema));
    }
    let length = match value {
        Json::String(text) => Some(("Length", text.chars().count(), "letters")),
        Json::Array(items) => Some(("Items", items.len(), "items")),
        Json::Object(members) => Some(("Properties", members.len(), "members")),
        _ => None,
    };
    let bound = |name: String| schema.get(&name).and_then(Json::as_f64);
    if let Some((name, length, unit)) = length {
        let (least, most) = (bound(format!("min{name}")), bound(format!("max{name}")));
        return match (least, most) {
            (Some(least), _) if (length as f64) < least => Some(format!("at least {least} {unit}")),
            (_, Some(most)) if length as f64 > most => Some(format!("at most {most} {unit}")),
            _ => None,
        };
    }
    let number = value.as_f64()?;
    let limit = |name: &str, words: &str, holds: fn(&f64, &f64) -> bool| {
        let limit = bound(name.to_owned()).filter(|limit| !holds(&number, limit));
        limit.map(|limit| format!("{words} {limit}"))
    };
    limit("minimum", "at least", f64::ge)
        .or_else(|| limit("maximum", "at most", f64::le))
        .or_else(|| limit("exclusiveMinimum", "more than", f64::gt))
        .or_else(|| limit("exclusiveMaximum", "less than", f64::lt))
}

fn is_of(kind: &str, value: &Json) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    }
}

/// The kind of value that a schema allows, in words.
fn described(schema: &Json) -> String {
    if let Some(allowed) = schema.get("enum").and_then(Json::as_array) {
        return allowed.iter().map(Json::to_string).collect::<Vec<_>>().join(", ");
    }
    let text = |name: &str| schema.get(name).and_then(Json::as_str);
    let kind = schema.get("const").map(Json::to_string).or(text("type").map(str::to_owned)).unwrap_or_default();
    match text("format").or(text("contentEncoding")).or(text("title")) {
        Some(form) => format!("{kind} ({form})"),
        None => kind,
    }
}

fn texts<'a>(schema: &'a Json, name: &str) -> Vec<&'a str> {
    schema.get(name).and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str).collect()
}

fn short(value: &Json) -> String {
    let text = value.to_string();
    match text.char_indices().nth(LETTERS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// A name as a part of a JSON pointer.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
