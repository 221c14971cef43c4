//! Service discovery: descriptions of instances, and the list of the hub.

pub mod directory;
pub mod service_watch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tidewire_core::link::announcement::{self, Entry, Malformed, ValidAnnouncement};
use tidewire_link::HubHandle;
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::FieldsWriter;

use crate::calls::call::Call;
use crate::calls::client::{CallOptions, DEFAULT_TIMEOUT};
use crate::calls::prepared_call::{CallTarget, PreparedCall};
use crate::error::Error;
use crate::node::core::Core;
use crate::values::{self, Bytes};

/// A longer description is announced without its schemas.
const FIELD_BYTES_MAX: usize = 16_000;

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
#[non_exhaustive]
pub struct MethodInfo {
    /// Its name.
    pub name: String,
    /// Purpose of the method, in one line.
    pub description: String,
    /// JSON Schema of its arguments, as an object by their names.
    pub parameters: serde_json::Value,
    /// JSON Schema of its result; of one item, if it is a stream.
    pub result: serde_json::Value,
    /// True if the method returns a stream.
    pub stream: bool,
    /// True if the method may be called again when the outcome of a call is unknown.
    pub idempotent: bool,
    /// True if the method changes nothing, so that a GET of HTTP may call it.
    #[serde(default)]
    pub safe: bool,
    /// True if the result is messages for a language model: MCP clients get it as a prompt.
    #[serde(default)]
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
#[non_exhaustive]
pub struct ServiceCommand {
    /// Its name.
    pub name: String,
    /// Purpose of the command, in one line.
    pub description: String,
    /// JSON Schema of its arguments, as an object by their names.
    pub parameters: serde_json::Value,
    /// JSON Schema of its result.
    pub result: serde_json::Value,
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
    pub message: serde_json::Value,
}

impl ServiceInfo {
    /// The description for other nodes, as the fields of a subscription; empty if they may not call
    /// the service.
    pub(crate) fn said(&self) -> Result<Vec<u8>, Error> {
        let mut fields = Vec::new();
        if self.visibility == Visibility::Node {
            return Ok(fields);
        }
        let mut seen = self.clone();
        seen.methods.retain(|method| method.visibility > Visibility::Node);
        let mut text = json(&seen);
        if text.len() > FIELD_BYTES_MAX {
            seen.events.clear();
            for method in &mut seen.methods {
                (method.parameters, method.result) = (serde_json::json!({}), serde_json::json!({}));
            }
            for command in &mut seen.commands {
                (command.parameters, command.result) = (serde_json::json!({}), serde_json::json!({}));
            }
            text = json(&seen);
        }
        let added = FieldsWriter::new(&mut fields).add(announcement::SERVICE, text.as_bytes());
        added.map_err(|wrong| {
            Error::new(ErrorCode::LimitExceeded, format!("{}: {wrong}: declare fewer methods", self.name))
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
            let (queue, pattern, says) = (&*interest.queue, &*interest.pattern, &*interest.says);
            let entry = Entry { node: "", queue, pattern, in_progress: 0, says };
            let Ok(ValidAnnouncement::Service { name, instance, json }) = entry.validate() else { continue };
            found.extend(serde_json::from_str::<Self>(json).ok().map(|info| Self {
                name,
                instances: vec![instance],
                ..info
            }));
        }
        found
    }

    /// Adds another instance. A caller needs the permission of all instances, because a call may go
    /// to any of them.
    fn join(&mut self, other: Self) {
        self.visibility = self.visibility.min(other.visibility);
        for method in &mut self.methods {
            let there = other.methods.iter().find(|one| one.name == method.name);
            method.visibility = method.visibility.min(there.map_or(Visibility::Private, |one| one.visibility));
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

fn json(info: &ServiceInfo) -> String {
    // Its maps have keys of text, and its numbers are finite.
    serde_json::to_string(info).unwrap_or_default()
}

/// Decodes the list of a hub. Instances of one name are merged; malformed entries are skipped and
/// counted.
fn services(listed: &Bytes, skipped: &Skipped) -> Result<Vec<ServiceInfo>, Error> {
    let mut found: Vec<ServiceInfo> = Vec::new();
    for one in services_of(listed, skipped)? {
        let Some(info) = skipped.read::<ServiceInfo>(one.json).map(|info| info.on(&one.listed.node)) else {
            continue;
        };
        match found.iter_mut().find(|known| known.name == info.name) {
            Some(known) => known.join(info),
            None => found.push(info),
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
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
pub(crate) fn entries(listed: &Bytes, skipped: &Skipped) -> Result<Vec<Listed>, Error> {
    Ok(services_of(listed, skipped)?.into_iter().map(|one| one.listed).collect())
}

/// An instance with its description.
struct Described<'a> {
    listed: Listed,
    json: &'a str,
}

fn services_of<'a>(listed: &'a Bytes, skipped: &Skipped) -> Result<Vec<Described<'a>>, Error> {
    let mut found = Vec::new();
    for entry in announcement::entries(listed) {
        let entry = entry.map_err(malformed)?;
        match entry.validate() {
            Ok(ValidAnnouncement::Service { name: service, instance, json }) => {
                found.push(Described { listed: Listed { service, instance, node: entry.node.to_owned() }, json });
            }
            Ok(ValidAnnouncement::Agent { .. } | ValidAnnouncement::Nothing) => {}
            Err(_) => skipped.count(),
        }
    }
    Ok(found)
}

/// Number of skipped entries. A malformed entry comes from another version or program; the rest of
/// a list is still of use.
#[derive(Default)]
pub(crate) struct Skipped(AtomicU64);

impl Skipped {
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    fn count(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    fn read<T: DeserializeOwned>(&self, json: &str) -> Option<T> {
        serde_json::from_str(json).inspect_err(|_| self.count()).ok()
    }
}

/// Requests the list of services from the hub.
pub(crate) async fn listed(core: &Arc<Core>) -> Result<Vec<ServiceInfo>, Error> {
    services(&list(core).await?, &core.skipped)
}

/// The same, as the hub writes it.
pub(crate) async fn list(core: &Arc<Core>) -> Result<Bytes, Error> {
    let (nothing, options) = (values::write("services", &())?, CallOptions::default());
    let aim = CallTarget::Subject("$hub.services".to_owned());
    let deadline = options.deadline(Some(DEFAULT_TIMEOUT));
    Call::begin(PreparedCall::new(core, aim, "services".to_owned(), nothing, &options, deadline)).await
}

#[cfg(test)]
mod tests;
