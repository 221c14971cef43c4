//! JSON schemas of methods, derived from Rust types.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use crate::services::service::Method;

impl Method {
    /// Makes the schemas of the parameters and of the result from types: those of the handler.
    ///
    /// ```
    /// use tidewire_node::{Method, Service};
    ///
    /// let add = Method::new("add", &["a", "b"], |_, (a, b): (i64, i64)| async move { Ok(a + b) })
    ///     .schemas_from::<(i64, i64), i64>();
    /// let math = Service::new("math").with(add);
    /// ```
    pub fn schemas_from<A: JsonSchema, O: JsonSchema>(mut self) -> Self {
        let (arguments, result) = (schema_of::<A>(), schema_of::<O>());
        let info = self.info_mut();
        let Value::Object(parameters) = &mut info.parameters else { return self };
        let Some(Value::Object(properties)) = parameters.get_mut("properties") else { return self };
        let is_tuple = arguments.get("prefixItems").is_some();
        let schemas = if is_tuple { items_of(&arguments) } else { vec![arguments.clone()] };
        for (place, schema) in properties.values_mut().zip(schemas) {
            *place = schema;
        }
        // References name definitions at the root.
        if let Some(definitions) = arguments.get("$defs") {
            parameters.insert("$defs".to_owned(), definitions.clone());
        }
        info.result = result;
        self
    }
}

fn items_of(schema: &Value) -> Vec<Value> {
    schema.get("prefixItems").and_then(Value::as_array).cloned().unwrap_or_default()
}

fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.remove("$schema");
    // A schema that takes anything may be `true`; readers expect an object.
    serde_json::to_value(schema).ok().filter(Value::is_object).unwrap_or(json!({}))
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde_json::json;

    use crate::Method;

    #[derive(JsonSchema)]
    #[allow(dead_code)]
    struct Quote {
        symbol: String,
    }

    #[test]
    fn parameters_have_the_schemas_of_their_types() {
        let mut method = Method::new("find", &["quote", "limit"], |_, (_, _): (String, u8)| async { Ok(true) })
            .schemas_from::<(Quote, u8), bool>();
        let info = method.info_mut();
        assert_eq!(info.parameters["properties"]["quote"]["properties"]["symbol"], json!({"type": "string"}));
        assert_eq!(info.parameters["properties"]["limit"]["type"], json!("integer"));
        assert_eq!(info.result["type"], json!("boolean"));
    }
}
