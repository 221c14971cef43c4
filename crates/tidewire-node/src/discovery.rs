//! Service discovery: descriptions of instances, and the list of the hub.

pub mod directory;
pub mod lookup;
pub mod service_watch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidewire_core::link::announcement::{self, Entry, Malformed, ValidAnnouncement};
use tidewire_core::rpc::FAR;
use tidewire_link::HubHandle;
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::generated::limits;
use tidewire_proto::wire::FieldsWriter;

use crate::error::Error;
use crate::values::Bytes;

/// A longer description is announced without its schemas.
const FIELD_BYTES_MAX: usize = 60_000;

/// Permitted callers: the own node, the nodes that joined, or also callers over HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Visibility {
    /// This node.
    Node,
    /// Also the nodes that joined its hub.
    #[default]
    Private,
    /// Also those who come over HTTP.
    Public,
}

/// A service, as others see it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ServiceInfo {
    /// Its name.
    pub name: String,
    /// Purpose of the service, in one line.
    pub description: String,
    /// Permitted callers of the service.
    pub visibility: Visibility,
    /// Its methods, in the order of their declaration.
    pub methods: Vec<MethodInfo>,
    /// The events that it handles.
    pub events: Vec<EventInfo>,
    /// The ids of its instances.
    pub instances: Vec<String>,
    /// Details of the instances, in the same order.
    #[serde(default)]
    pub details: Vec<InstanceInfo>,
    /// Its commands, which callers start.
    #[serde(default)]
    pub commands: Vec<ServiceCommand>,
}

/// An instance of a service, as others see it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InstanceInfo {
    /// Its id.
    pub id: String,
    /// The name of the node that serves it; empty in its own announcement.
    #[serde(default)]
    pub node: String,
    /// Its semantic version; may be empty.
    pub version: String,
    /// Metadata of the instance, by name.
    pub metadata: BTreeMap<String, String>,
}

/// A method of a service, as others see it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct MethodInfo {
    /// Its name.
    pub name: String,
    /// Purpose of the method, in one line.
    pub description: String,
    /// JSON Schema of its arguments, as an object by their names.
    #[serde(default = "no_schema")]
    pub parameters: Value,
    /// JSON Schema of its result; of one item, if it is a stream.
    #[serde(default = "no_schema")]
    pub result: Value,
    /// True if the method returns a stream.
    pub stream: bool,
    /// True if the method may be called again when the outcome of a call is unknown.
    pub idempotent: bool,
    /// True if the method changes nothing, so that a GET of HTTP may call it.
    pub safe: bool,
    /// True if the result is messages for a language model: MCP clients get it as a prompt.
    pub prompt: bool,
    /// Default timeout of a call, in seconds.
    pub timeout: Option<f64>,
    /// Permitted callers of the method.
    pub visibility: Visibility,
    /// Remarks that the schemas do not express.
    pub notes: Vec<String>,
}

/// A command of a service, as others see it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ServiceCommand {
    /// Its name.
    pub name: String,
    /// Purpose of the command, in one line.
    pub description: String,
    /// JSON Schema of its arguments, as an object by their names.
    #[serde(default = "no_schema")]
    pub parameters: Value,
    /// JSON Schema of its result.
    #[serde(default = "no_schema")]
    pub result: Value,
    /// True if it reports progress.
    pub progress: bool,
    /// `key` if a start has to give a key.
    pub exclusive: Option<String>,
    /// Limit of an attempt in seconds, if there is one.
    pub timeout: Option<f64>,
    /// Number of retries.
    pub retries: u32,
}

/// An event handler of a service, as others see it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EventInfo {
    /// The pattern of subjects that it handles.
    pub subject: String,
    /// The group whose members share the events; None if each instance gets all.
    pub queue: Option<String>,
    /// The name of the method.
    pub method: String,
    /// Purpose of the event handler, in one line.
    pub description: String,
    /// JSON Schema of the message.
    pub message: Value,
}

impl ServiceInfo {
    /// The description for other nodes, as the fields of a subscription; empty if they may not call
    /// the service.
    pub(crate) fn announcement(&self) -> Result<Vec<u8>, Error> {
        let mut fields = Vec::new();
        if self.visibility == Visibility::Node {
            return Ok(fields);
        }
        let mut visible = self.clone();
        visible.methods.retain(|method| method.visibility > Visibility::Node);
        // Its maps have keys of text, and its numbers are finite.
        let mut text = serde_json::to_string(&visible).unwrap_or_default();
        if text.len() > FIELD_BYTES_MAX {
            let mut short = serde_json::to_value(&visible).unwrap_or_default();
            short["events"] = json!([]);
            for list in ["methods", "commands"] {
                for one in short[list].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
                    one.retain(|key, value| !is_omitted(key, value));
                }
            }
            text = short.to_string();
        }
        let added = FieldsWriter::new(&mut fields).add(announcement::SERVICE, text.as_bytes());
        added.map_err(|_| {
            let (most, name) = (limits::LINK_ANNOUNCEMENT_BYTES.default, &self.name);
            let fix = "has too many methods, or names that are too long: divide it into several services";
            Error::new(ErrorCode::LimitExceeded, format!("link_announcement_bytes={most}: {name:?} {fix}"))
        })?;
        Ok(fields)
    }
}

impl ServiceInfo {
    /// Instances that nodes of a hub serve, one by one, without instances behind a bridge.
    /// Malformed descriptions are left out.
    pub fn served_at(hub: &HubHandle) -> Vec<Self> {
        let mut found = Vec::new();
        for interest in hub.interests() {
            let (queue, pattern, announcement) = (&*interest.queue, &*interest.pattern, &*interest.says);
            let entry = Entry { node: "", queue, pattern, in_progress: 0, says: announcement };
            let Ok(ValidAnnouncement::Service { name, instance, json }) = entry.validate() else { continue };
            found.extend(serde_json::from_str::<Self>(json).ok().map(|info| Self {
                name,
                instances: vec![instance],
                ..info
            }));
        }
        found
    }

    /// True if all instances are at another hub.
    fn is_far(&self) -> bool {
        self.instances.iter().all(|id| id.starts_with(FAR))
    }

    /// Adds another instance. A caller needs the permission of all instances, because a call may go
    /// to any of them. Calls over HTTP don't go to those of another hub.
    fn join(&mut self, mut other: Self) {
        if self.is_far() && !other.is_far() {
            std::mem::swap(self, &mut other);
        }
        if self.is_far() || !other.is_far() {
            self.visibility = self.visibility.min(other.visibility);
            for method in &mut self.methods {
                let there = other.methods.iter().find(|one| one.name == method.name);
                method.visibility = method.visibility.min(there.map_or(Visibility::Private, |one| one.visibility));
            }
        }
        self.instances.extend(other.instances);
        self.details.extend(other.details);
    }

    /// Adds the node to an instance without details.
    fn on(mut self, node: &str) -> Self {
        if self.details.is_empty() {
            self.details.extend(self.instances.first().map(|id| InstanceInfo { id: id.clone(), ..Default::default() }));
        }
        self.details.iter_mut().for_each(|detail| node.clone_into(&mut detail.node));
        self
    }
}

/// A schema that allows everything.
fn no_schema() -> Value {
    json!({})
}

/// True for a schema, and for a key that readers complete.
fn is_omitted(key: &str, value: &Value) -> bool {
    let is_empty = [json!(null), json!(false), json!(0), json!(""), json!([])].contains(value);
    is_empty || matches!(key, "parameters" | "result") || (key == "visibility" && value == "private")
}

/// The services and agents in a list of a hub. Instances of one name are merged.
fn announced(listed: &Bytes, reader: &EntryReader) -> Result<(Vec<ServiceInfo>, Vec<AgentInfo>), Error> {
    let (mut services, mut agents) = (BTreeMap::<String, ServiceInfo>::new(), Vec::new());
    for (entry, valid) in reader.entries(listed)? {
        match valid {
            ValidAnnouncement::Service { name, json, .. } => {
                let Some(info) = reader.read::<ServiceInfo>(json).map(|info| info.on(entry.node)) else { continue };
                match services.get_mut(&name) {
                    Some(known) => known.join(info),
                    None => drop(services.insert(name, info)),
                }
            }
            ValidAnnouncement::Agent { json } => agents.extend(reader.read::<AgentInfo>(json)),
            ValidAnnouncement::Nothing => {}
        }
    }
    Ok((services.into_values().collect(), agents))
}

/// An agent, as others see it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AgentInfo {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub capabilities: Vec<String>,
    /// The path of hubs to an agent of another hub.
    #[serde(default, rename = "tw-hubs", skip_serializing_if = "String::is_empty")]
    pub hubs: String,
}

fn malformed(_: Malformed) -> Error {
    let text = "the hub's list of services is not of the form that this version knows: run versions that fit";
    Error::new(ErrorCode::WireError, text)
}

/// An instance, and its node.
pub(crate) struct Listed {
    pub service: String,
    pub instance: String,
    pub node: String,
}

impl Listed {
    /// As the directory has it.
    pub fn entry(self) -> ((String, String), Arc<str>) {
        ((self.service, self.instance), self.node.into())
    }
}

/// The instances in a list of a hub.
pub(crate) fn entries(listed: &Bytes, reader: &EntryReader) -> Result<Vec<Listed>, Error> {
    let found = reader.entries(listed)?.into_iter().filter_map(|(entry, valid)| match valid {
        ValidAnnouncement::Service { name: service, instance, .. } => {
            Some(Listed { service, instance, node: entry.node.to_owned() })
        }
        ValidAnnouncement::Agent { .. } | ValidAnnouncement::Nothing => None,
    });
    Ok(found.collect())
}

/// The reader of a node for announcements. It skips and counts malformed ones: they come from
/// another version or program, and the rest of a list is still of use.
#[derive(Default)]
pub(crate) struct EntryReader {
    skipped: AtomicU64,
    /// Patterns of the only announcements that are read, as far as their second token. None: all.
    only: OnceLock<BTreeSet<String>>,
}

/// The most announcements of one service that are read where only some services are.
const SCOPED_MAX: usize = 64;

impl EntryReader {
    /// How many entries were skipped.
    pub fn skipped(&self) -> u64 {
        self.skipped.load(Relaxed)
    }

    /// Reads the announcements with these patterns from now on, as far as their second token.
    pub fn limit(&self, patterns: BTreeSet<String>) {
        self.only.get_or_init(|| patterns);
    }

    /// True if it reads an entry of a list; None if it reads all announcements.
    pub fn reads_any(&self, listed: &[u8]) -> Option<bool> {
        let only = self.only.get()?;
        Some(announcement::entries(listed).flatten().any(|entry| only.contains(subject_of(entry.pattern))))
    }

    /// The announcements in a list that it reads.
    fn entries<'a>(&self, listed: &'a [u8]) -> Result<Vec<(Entry<'a>, ValidAnnouncement<'a>)>, Error> {
        let (mut found, mut counts) = (Vec::new(), BTreeMap::<_, usize>::new());
        for entry in announcement::entries(listed) {
            let entry = entry.map_err(malformed)?;
            if let Some(only) = self.only.get() {
                let subject = subject_of(entry.pattern);
                let count = counts.entry(subject).or_default();
                *count += 1;
                if *count > SCOPED_MAX || !only.contains(subject) {
                    continue;
                }
            }
            match entry.validate() {
                Ok(valid) => found.push((entry, valid)),
                Err(_) => self.count(),
            }
        }
        Ok(found)
    }

    fn count(&self) {
        self.skipped.fetch_add(1, Relaxed);
    }

    fn read<T: DeserializeOwned>(&self, json: &str) -> Option<T> {
        serde_json::from_str(json).inspect_err(|_| self.count()).ok()
    }
}

/// The first two tokens of a pattern: those of a service, or of an agent.
fn subject_of(pattern: &str) -> &str {
    let second = pattern.match_indices('.').nth(1);
    second.map_or(pattern, |(at, _)| &pattern[..at])
}

#[cfg(test)]
mod tests;
