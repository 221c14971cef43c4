//! Announcements of services and agents, as lists of a hub have them.

use pyo3::prelude::*;
use tidewire_core::link::announcement::{self, Told};

use crate::errors::error;

/// The entries of a list: the node, its pattern, what it is ("service", "agent", "" for neither, "wrong"), and its description, or what is wrong with it.
#[pyfunction]
pub fn announcements(py: Python<'_>, listed: &[u8]) -> PyResult<Vec<(String, String, &'static str, String)>> {
    let mut found = Vec::new();
    for entry in announcement::entries(listed) {
        let entry = entry.map_err(|_| {
            let text = "the hub's list of services is not of the form that this version knows: run versions that fit";
            error(py, "WireError", text, &[])
        })?;
        let (kind, text) = match entry.told() {
            Ok(Told::Service { json, .. }) => ("service", json.to_owned()),
            Ok(Told::Agent { json }) => ("agent", json.to_owned()),
            Ok(Told::Nothing) => ("", String::new()),
            Err(problem) => ("wrong", problem),
        };
        found.push((entry.node.to_owned(), entry.pattern.to_owned(), kind, text));
    }
    Ok(found)
}

/// The subject of an agent: its id where that is one short token, else that in hexadecimal digits.
#[pyfunction]
pub fn agent_subject(id: &str) -> String {
    announcement::agent_subject(id)
}
