//! Which services there are: what an instance says of itself, and the list of the hub.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::{Fields, FieldsWriter};

use crate::call::Call;
use crate::client::{CallOptions, DEFAULT_TIMEOUT};
use crate::core::Core;
use crate::error::Error;
use crate::shot::{Aim, Shot};
use crate::values::{self, Bytes};

/// The field that holds what an instance says.
const FIELD: &str = "service";
/// A longer description is told without its schemas.
const FIELD_BYTES_MAX: usize = 16_000;

/// Who may call: the own node, the nodes that joined, or also those who come over HTTP.
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
    /// What it is for, in one line.
    pub description: String,
    /// Who may call it.
    pub visibility: Visibility,
    /// Its methods, in the order of their declaration.
    pub methods: Vec<MethodInfo>,
    /// The events that it handles.
    pub events: Vec<EventInfo>,
    /// The ids of its instances.
    pub instances: Vec<String>,
}

/// A method of a service, as others see it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MethodInfo {
    /// Its name.
    pub name: String,
    /// What it does, in one line.
    pub description: String,
    /// JSON Schema of its arguments, as an object by their names.
    pub parameters: serde_json::Value,
    /// JSON Schema of its result; of one item, if it is a stream.
    pub result: serde_json::Value,
    /// Whether it gives a stream.
    pub stream: bool,
    /// Whether it may be called again where it is not known whether a call was handled.
    pub idempotent: bool,
    /// Seconds that a call may take where the caller says nothing.
    pub timeout: Option<f64>,
    /// Who may call it.
    pub visibility: Visibility,
    /// What the schemas don't say.
    pub notes: Vec<String>,
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
    /// What it does, in one line.
    pub description: String,
    /// JSON Schema of what it takes.
    pub message: serde_json::Value,
}

impl ServiceInfo {
    /// What other nodes may know of it, as the fields of a subscription; nothing if they may not call it.
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
            text = json(&seen);
        }
        let added = FieldsWriter::new(&mut fields).add(FIELD, text.as_bytes());
        added.map_err(|wrong| {
            Error::new(ErrorCode::LimitExceeded, format!("{}: {wrong}: declare fewer methods", self.name))
        })?;
        Ok(fields)
    }
}

impl ServiceInfo {
    /// Adds another instance. Who may call is whom all instances let: a call may go to any of them.
    fn join(&mut self, other: Self) {
        self.visibility = self.visibility.min(other.visibility);
        for method in &mut self.methods {
            let there = other.methods.iter().find(|one| one.name == method.name);
            method.visibility = method.visibility.min(there.map_or(Visibility::Private, |one| one.visibility));
        }
        self.instances.extend(other.instances);
    }
}

fn json(info: &ServiceInfo) -> String {
    // Its maps have keys of text, and its numbers are finite.
    serde_json::to_string(info).unwrap_or_default()
}

/// Reads the list of a hub. Instances of one name are put together; what this version does not understand is left out.
fn services(listed: &Bytes) -> Result<Vec<ServiceInfo>, Error> {
    let mut found: Vec<ServiceInfo> = Vec::new();
    let mut rest = &listed[..];
    while !rest.is_empty() {
        let entry = entry(&mut rest).ok_or_else(malformed)?;
        let Some(info) = entry.told::<ServiceInfo>().filter(|info| entry.is_of(&info.name, &info.instances)) else {
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

fn malformed() -> Error {
    let text = "the hub's list of services is not of the form that this version knows: run versions that fit";
    Error::new(ErrorCode::WireError, text)
}

/// An instance, and whose it is.
pub(crate) struct Listed {
    pub service: String,
    pub instance: String,
    pub node: String,
}

/// As much of what an instance says as a caller needs.
#[derive(Deserialize)]
struct Short {
    name: String,
    instances: Vec<String>,
}

/// The instances in a list of a hub.
pub(crate) fn entries(listed: &Bytes) -> Result<Vec<Listed>, Error> {
    let (mut found, mut rest) = (Vec::new(), &listed[..]);
    while !rest.is_empty() {
        let entry = entry(&mut rest).ok_or_else(malformed)?;
        let short = entry.told::<Short>().filter(|short| entry.is_of(&short.name, &short.instances));
        if let Some(Short { name, instances }) = short {
            let of = |instance| Listed { service: name.clone(), instance, node: entry.node.to_owned() };
            found.extend(instances.into_iter().map(of));
        }
    }
    Ok(found)
}

/// What a hub says of one subscription.
struct Entry<'a> {
    node: &'a str,
    queue: &'a str,
    pattern: &'a str,
    says: &'a [u8],
}

impl Entry<'_> {
    /// What it says of a service; None if that can't be read: whoever announced it is a stranger, and the list is of use nevertheless.
    fn told<T: for<'de> Deserialize<'de>>(&self) -> Option<T> {
        let fields = Fields::parse("SUBSCRIBE", self.says).ok()?;
        serde_json::from_str(fields.text(FIELD)?).ok()
    }

    /// Whether it is that of the one instance that it tells of: the hub knows whose the subject is.
    fn is_of(&self, service: &str, instances: &[String]) -> bool {
        let [instance] = instances else { return false };
        self.queue.is_empty() && self.pattern == format!("svc.{service}.{instance}.*")
    }
}

/// The next entry. Before its fields comes the number of calls in progress.
fn entry<'a>(rest: &mut &'a [u8]) -> Option<Entry<'a>> {
    let mut texts = [&rest[..0]; 3];
    for text in &mut texts {
        let length = usize::from(u16::from_le_bytes(*rest.split_first_chunk()?.0));
        *text = rest.get(2..2 + length)?;
        *rest = &rest[2 + length..];
    }
    let length = u32::from_le_bytes(*rest.get(4..)?.split_first_chunk()?.0) as usize;
    let says = rest.get(8..)?.get(..length)?;
    *rest = &rest[8 + length..];
    let [node, queue, pattern] = texts.map(|text| std::str::from_utf8(text).ok());
    Some(Entry { node: node?, queue: queue?, pattern: pattern?, says })
}

/// Asks the hub what is served.
pub(crate) async fn listed(core: &Arc<Core>) -> Result<Vec<ServiceInfo>, Error> {
    services(&list(core).await?)
}

/// The same, as the hub writes it.
pub(crate) async fn list(core: &Arc<Core>) -> Result<Bytes, Error> {
    let (nothing, options) = (values::write("services", &())?, CallOptions::default());
    let aim = Aim::Subject("$hub.services".to_owned());
    let deadline = options.deadline(Some(DEFAULT_TIMEOUT));
    Call::begin(Shot::new(core, aim, "services".to_owned(), nothing, &options, deadline)).await
}
