//! Announcements: descriptions of services and agents in the fields of their subscriptions, with
//! the checks of the hub and its readers.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use tidewire_proto::generated::limits;
use tidewire_proto::subject::grammar::{agent_subject, instance_subject};
use tidewire_proto::wire::Fields;

/// The field of an instance of a service.
pub const SERVICE: &str = "service";
/// The field of an agent.
pub const AGENT: &str = "agent";
/// The most characters of a problem text, which may quote a part of an unknown announcement.
const PROBLEM_CHARACTERS_MAX: usize = 200;

/// A hub's description of one subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The name of the node that subscribed.
    pub node: &'a str,
    /// Its queue group, or nothing.
    pub queue: &'a str,
    /// Its pattern.
    pub pattern: &'a str,
    /// Calls that it had not answered when the entry was written.
    pub in_progress: u32,
    /// The announcement, encoded.
    pub says: &'a [u8],
}

/// A description that is as it has to be, and fits the pattern that it came with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValidAnnouncement<'a> {
    /// An instance of a service.
    Service {
        /// The name of the service.
        name: String,
        /// The id of the instance.
        instance: String,
        /// Its description.
        json: &'a str,
    },
    /// An agent.
    Agent {
        /// Its description.
        json: &'a str,
    },
    /// A role that this version does not know.
    Nothing,
}

/// A list is not of the form of `spec/wire.md`, section 6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Reads a list of the hub, one entry after the other.
pub fn entries(listed: &[u8]) -> impl Iterator<Item = Result<Entry<'_>, Malformed>> {
    let mut rest = listed;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let found = entry(&mut rest).ok_or(Malformed);
        if found.is_err() {
            rest = &[];
        }
        Some(found)
    })
}

fn entry<'a>(rest: &mut &'a [u8]) -> Option<Entry<'a>> {
    let [node, queue, pattern] = [text(rest)?, text(rest)?, text(rest)?];
    let in_progress = u32::from_le_bytes(*take_bytes(rest, 4)?.first_chunk()?);
    let length = u32::from_le_bytes(*take_bytes(rest, 4)?.first_chunk()?);
    Some(Entry { node, queue, pattern, in_progress, says: take_bytes(rest, length as usize)? })
}

fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let length = u16::from_le_bytes(*take_bytes(rest, 2)?.first_chunk()?);
    std::str::from_utf8(take_bytes(rest, usize::from(length))?).ok()
}

fn take_bytes<'a>(rest: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    let (first, others) = rest.split_at_checked(bytes)?;
    *rest = others;
    Some(first)
}

impl<'a> Entry<'a> {
    /// Decodes and checks the announcement.
    ///
    /// # Errors
    /// The problem. Only this entry is unusable: the rest of the list stays valid.
    pub fn validate(&self) -> Result<ValidAnnouncement<'a>, String> {
        validate(self.pattern, self.queue, self.says)
    }
}

/// Decodes and checks the announcement of a subscription.
///
/// # Errors
/// The problem, in a text of bounded length.
pub fn validate<'a>(pattern: &str, queue: &str, announcement: &'a [u8]) -> Result<ValidAnnouncement<'a>, String> {
    read(pattern, queue, announcement).map_err(|problem| problem.chars().take(PROBLEM_CHARACTERS_MAX).collect())
}

fn read<'a>(pattern: &str, queue: &str, announcement: &'a [u8]) -> Result<ValidAnnouncement<'a>, String> {
    let fields = Fields::parse("SUBSCRIBE", announcement).map_err(|wrong| wrong.to_string())?;
    let is_own = |subject: &str| queue.is_empty() && pattern == subject;
    if let Some(json) = fields.text(AGENT) {
        let agent: Agent = described(AGENT, json)?;
        if !is_own(&agent_subject(&agent.id)) {
            return Err("agent: its id is not that of its subject".to_owned());
        }
        return Ok(ValidAnnouncement::Agent { json });
    }
    let Some(json) = fields.text(SERVICE) else { return Ok(ValidAnnouncement::Nothing) };
    let service: Service = described(SERVICE, json)?;
    service.check()?;
    let Service { name, instances, .. } = service;
    match <[String; 1]>::try_from(instances) {
        Ok([instance]) if is_own(&instance_subject(&name, &instance, "*")) => {
            Ok(ValidAnnouncement::Service { name, instance, json })
        }
        _ => Err("service: its name and its instance are not those of its subject".to_owned()),
    }
}

fn described<'a, T: Deserialize<'a>>(field: &str, json: &'a str) -> Result<T, String> {
    serde_json::from_str(json).map_err(|wrong| format!("{field}: {wrong}"))
}

/// True if a text can be one token of a subject. Its length is checked elsewhere.
#[must_use]
pub fn is_token(text: &str) -> bool {
    let fits = |letter: char| !".*>".contains(letter) && !letter.is_whitespace() && !letter.is_control();
    !text.is_empty() && text.chars().all(fits)
}

/// Checks the version and the metadata of an instance. An empty version means no version.
///
/// # Errors
/// The problem, and a valid alternative.
pub fn check_release<'a>(version: &str, metadata: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<(), String> {
    if let Err(wrong) = semver::Version::parse(version)
        && !version.is_empty()
    {
        let fix = "give a semantic version such as \"1.4.2\", and put what else names a build into metadata";
        return Err(format!("version: {version:?} is not allowed ({wrong}): {fix}"));
    }
    let (most, mut bytes) = (limits::SERVICE_METADATA_BYTES, 0);
    for (name, value) in metadata {
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(format!("metadata: {name:?} is not allowed as a name: give a text without control characters"));
        }
        bytes += (name.len() + value.len()) as u64;
    }
    if bytes > most.max {
        return Err(format!("metadata: {}={}: it has {bytes} bytes: say less", most.name, most.max));
    }
    Ok(())
}

#[derive(Deserialize)]
struct Agent {
    id: String,
    #[serde(rename = "type")]
    _type: String,
    #[serde(rename = "capabilities")]
    _capabilities: Vec<String>,
}

/// A description of a service, as far as it is looked at.
#[derive(Deserialize)]
struct Service {
    name: String,
    #[serde(rename = "description")]
    _description: String,
    #[serde(rename = "visibility")]
    _visibility: ListItem,
    methods: Vec<Method>,
    events: Vec<Event>,
    instances: Vec<String>,
    #[serde(default)]
    details: Vec<Detail>,
}

/// Fields that distinguish one instance from the others of its service.
#[derive(Deserialize)]
struct Detail {
    id: String,
    version: String,
    metadata: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Method {
    name: String,
    #[serde(rename = "description")]
    _description: String,
    #[serde(rename = "parameters")]
    _parameters: Schema,
    #[serde(rename = "result")]
    _result: Schema,
    #[serde(rename = "stream")]
    _stream: bool,
    #[serde(rename = "idempotent")]
    _idempotent: bool,
    timeout: Option<f64>,
    #[serde(rename = "visibility")]
    _visibility: ListItem,
    #[serde(rename = "notes")]
    _notes: Vec<String>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "subject")]
    _subject: String,
    #[serde(rename = "queue")]
    _queue: Option<String>,
    #[serde(rename = "method")]
    _method: String,
    #[serde(rename = "description")]
    _description: String,
    #[serde(rename = "message")]
    _message: Schema,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ListItem {
    Node,
    #[default]
    Private,
    Public,
}

/// An object; its readers interpret the content.
type Schema = BTreeMap<String, IgnoredAny>;

impl Service {
    fn check(&self) -> Result<(), String> {
        let most = limits::SERVICE_METHODS;
        if self.methods.len() as u64 > most.max || self.events.len() as u64 > most.max {
            return Err(format!("service: {}={}: it has more", most.name, most.max));
        }
        let mut names: Vec<&str> = self.methods.iter().map(|method| &*method.name).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err("service: two of its methods have one name".to_owned());
        }
        for name in [&*self.name].into_iter().chain(names) {
            if !is_token(name) || name.len() as u64 > limits::NAME_BYTES.max {
                return Err(format!("service: {name:?} is not allowed as a name: give one token"));
            }
        }
        let most_s = (limits::ASK_TIMEOUT_MS.max / 1_000) as f64;
        let is_time = |timeout: f64| timeout > 0.0 && timeout <= most_s;
        if self.methods.iter().filter_map(|method| method.timeout).any(|timeout| !is_time(timeout)) {
            return Err(format!("service: timeout: give seconds, more than 0 and at most {most_s}, or null"));
        }
        let Some(detail) = self.details.first() else { return Ok(()) };
        if self.details.len() > 1 || self.instances.first() != Some(&detail.id) {
            return Err("service: details: they are not those of its instance".to_owned());
        }
        let metadata = detail.metadata.iter().map(|(name, value)| (&**name, &**value));
        check_release(&detail.version, metadata).map_err(|problem| format!("service: {problem}"))
    }
}

#[cfg(test)]
mod tests;
