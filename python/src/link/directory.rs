//! The directory of services and agents on other nodes, from the lists and changes of a hub.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use tidewire_core::link::announcement::{self, ValidAnnouncement};
use tidewire_core::rpc::directory::{Change, Directory as Machine};
use tidewire_engine::raw::Mutex;
use tidewire_proto::subject::grammar;

use crate::errors::error;

/// One change: true if the entry came, its node, its pattern, its kind ("service", "agent",
/// "wrong"), and its description or error.
type DirectoryChanges = (bool, String, String, &'static str, String);

/// The node, the kind and the description of an entry.
type Entry = (String, &'static str, String);

/// The known entries, by pattern. Thread-safe.
#[pyclass(frozen, module = "tidewire._tidewire")]
#[derive(Default)]
pub struct Directory(Mutex<Machine<String, Entry>>);

#[pymethods]
impl Directory {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// A list is asked for: its number. `give_up` is to follow in the end.
    fn ask(&self) -> u64 {
        self.0.lock().ask()
    }

    /// A list has come, or will not come any more.
    fn give_up(&self, number: u64) {
        self.0.lock().give_up(number);
    }

    /// Changes from a list of the hub.
    fn listed(&self, py: Python<'_>, number: u64, listed: &[u8]) -> PyResult<Vec<DirectoryChanges>> {
        let (mut updates, entries) = read(py, listed)?;
        updates.extend(self.0.lock().listed(number, entries).into_iter().map(told));
        Ok(updates)
    }

    /// Changes from a notice of the hub that entries came or left.
    fn changed(&self, py: Python<'_>, changed: &[u8], came: bool) -> PyResult<Vec<DirectoryChanges>> {
        let (mut updates, entries) = read(py, changed)?;
        let mut machine = self.0.lock();
        // One that describes itself wrongly now is not what it was.
        let gone: Vec<_> = updates.iter().filter_map(|(_, _, pattern, ..)| machine.left(pattern)).collect();
        updates.extend(gone.into_iter().map(told));
        for (pattern, entry) in entries {
            let changes = if came { machine.came(pattern, entry) } else { Vec::from_iter(machine.left(&pattern)) };
            updates.extend(changes.into_iter().map(told));
        }
        Ok(updates)
    }

    /// Forgets an entry that is of no use now. The next list reports it again.
    fn forget(&self, pattern: String) {
        self.0.lock().forget(&pattern);
    }
}

fn told(change: Change<String, Entry>) -> DirectoryChanges {
    let (came, pattern, (node, kind, text)) = match change {
        Change::Came(pattern, entry) => (true, pattern, entry),
        Change::Left(pattern, entry) => (false, pattern, entry),
    };
    (came, node, pattern, kind, text)
}

/// The entries that are wrong, and those that are of use, with their patterns.
type Read = (Vec<DirectoryChanges>, Vec<(String, Entry)>);

fn read(py: Python<'_>, listed: &[u8]) -> PyResult<Read> {
    let (mut wrong, mut found) = (Vec::new(), Vec::new());
    for entry in announcement::entries(listed) {
        let entry = entry.map_err(|_| {
            let text = "the hub's list of services is not of the form that this version knows: run versions that fit";
            error(py, "WireError", text, &[])
        })?;
        let (node, pattern) = (entry.node.to_owned(), entry.pattern.to_owned());
        match entry.told() {
            Ok(ValidAnnouncement::Service { json, .. }) => found.push((pattern, (node, "service", json.to_owned()))),
            Ok(ValidAnnouncement::Agent { json }) => found.push((pattern, (node, "agent", json.to_owned()))),
            Ok(ValidAnnouncement::Nothing) => {}
            Err(problem) => wrong.push((true, node, pattern, "wrong", problem)),
        }
    }
    Ok((wrong, found))
}

/// The subject of an agent: its id where that is one short token, else that in hexadecimal digits.
#[pyfunction]
pub fn agent_subject(id: &str) -> String {
    grammar::agent_subject(id)
}

/// The subject of a method of a service, or of one instance.
#[pyfunction]
#[pyo3(signature = (service, method, instance=None))]
pub fn service_subject(service: &str, method: &str, instance: Option<&str>) -> String {
    match instance {
        Some(instance) => grammar::instance_subject(service, instance, method),
        None => grammar::service_subject(service, method),
    }
}

/// The error in the version or the metadata of a service instance, or None.
#[pyfunction]
pub fn release_problem(version: &str, metadata: BTreeMap<String, String>) -> Option<String> {
    announcement::check_release(version, metadata.iter().map(|(name, value)| (&**name, &**value))).err()
}
