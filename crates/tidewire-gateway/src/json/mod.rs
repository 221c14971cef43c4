//! JSON and the values that travel between nodes: `spec/http.md` has the form of each.

mod forms;
mod reader;
mod times;
mod writer;

pub(crate) use reader::{arguments, value};
pub(crate) use writer::{to_json, write_json};

/// The key of an object that names its form.
const TYPE: &str = "$type";
