//! Integers that are written as floats: JSON has one kind of number, and `1.0` is an integer.

use serde_json::Value as Json;
use tidewire_node::values::Value;

use super::{DEPTH, alternatives, argument_schema, item_schema, member_schema, resolved};

/// Makes integers of the whole floats in arguments where the schema of the parameters allows no
/// float.
pub(crate) fn restore_integers(parameters: &Json, arguments: &mut Value) {
    if let Value::List(items) = arguments {
        for (at, item) in items.iter_mut().enumerate() {
            if let Some((_, schema)) = argument_schema(parameters, at) {
                restore(schema, parameters, item, DEPTH);
            }
        }
    } else {
        restore(parameters, parameters, arguments, DEPTH);
    }
}

fn restore(schema: &Json, whole: &Json, value: &mut Value, depth: usize) {
    let schema = resolved(schema, whole);
    if depth == 0 {
        return;
    }
    if let Some(all) = alternatives(schema) {
        let allows = |kind: &str| all.iter().any(|one| resolved(one, whole).get("type").is_some_and(|is| is == kind));
        if !(matches!(value, Value::Float(_)) && allows("number")) {
            all.iter().for_each(|one| restore(one, whole, value, depth - 1));
        }
        return;
    }
    let is_integer = schema.get("type").is_some_and(|kind| kind == "integer");
    match value {
        Value::Float(number) if is_integer && number.fract() == 0.0 && number.abs() < 9e15 => {
            *value = Value::Int(*number as i64);
        }
        Value::List(items) => {
            for (at, item) in items.iter_mut().enumerate() {
                item_schema(schema, at).into_iter().for_each(|schema| restore(schema, whole, item, depth - 1));
            }
        }
        Value::Map(entries) => {
            for (name, value) in entries {
                let member = name.as_str().and_then(|name| member_schema(schema, name));
                member.into_iter().for_each(|schema| restore(schema, whole, value, depth - 1));
            }
        }
        _ => {}
    }
}
