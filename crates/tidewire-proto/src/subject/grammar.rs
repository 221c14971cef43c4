//! Subjects of services and agents: the one place that spells them.
//!
//! ```
//! use tidewire_proto::subject::grammar::{Target, instance_subject, service_subject, target};
//!
//! assert_eq!(service_subject("bank", "pay"), "svc.bank.pay");
//! let subject = instance_subject("bank", "one", "pay");
//! assert_eq!(target(&subject), Some(Target::Instance { service: "bank", instance: "one", method: "pay" }));
//! assert_eq!(target("orders.eu"), None);
//! ```

use alloc::format;
use alloc::string::String;

/// Prefix of the subjects of services.
pub const OF_SERVICES: &str = "svc.";

/// Prefix of the subjects of agents.
pub const OF_AGENTS: &str = "agent.";
/// The service of nodes that allow inspection.
pub const INSPECTION: &str = "$sys";
/// The service of a storage backend.
pub const STREAMS: &str = "tidewire-streams";
/// Its method for calls that describe something, without payloads.
pub const LOOK: &str = "look";
/// Its method for calls that return payloads.
pub const READ: &str = "read";
/// Its method for calls by which an operator changes something.
pub const ACT: &str = "act";
/// Its method for all calls.
pub const CALL: &str = "call";
/// Its methods by which another hub reads one stream.
pub const SOURCE: &str = "source";
/// Its methods by which another hub writes one mirror.
pub const MIRROR: &str = "mirror";
/// The service of the commands in a storage backend.
pub const COMMANDS: &str = "tidewire-commands";

/// Longest id of an agent that its subject has in clear text.
const AGENT_ID_BYTES: usize = 99;

/// The destination of a call, by its subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// A method of any instance of a service.
    Service {
        /// The name of the service.
        service: &'a str,
        /// The name of the method; `*` in a pattern.
        method: &'a str,
    },
    /// A method of one instance.
    Instance {
        /// The name of the service.
        service: &'a str,
        /// The id of the instance.
        instance: &'a str,
        /// The name of the method; `*` in a pattern.
        method: &'a str,
    },
    /// An agent, by its token.
    Agent(&'a str),
}

/// The target of a subject, or of the pattern of a service instance. None for other subjects.
#[must_use]
pub fn target(subject: &str) -> Option<Target<'_>> {
    let mut tokens = subject.split('.');
    match [(); 5].map(|()| tokens.next()) {
        [Some("svc"), Some(service), Some(method), None, _] => Some(Target::Service { service, method }),
        [Some("svc"), Some(service), Some(instance), Some(method), None] => {
            Some(Target::Instance { service, instance, method })
        }
        [Some("agent"), Some(token), None, ..] => Some(Target::Agent(token)),
        _ => None,
    }
}

/// The subject of a method of any instance of a service.
#[must_use]
pub fn service_subject(service: &str, method: &str) -> String {
    format!("svc.{service}.{method}")
}

/// The subject of a method of one instance.
#[must_use]
pub fn instance_subject(service: &str, instance: &str, method: &str) -> String {
    format!("svc.{service}.{instance}.{method}")
}

/// The method of a kind for one object: its right allows nothing else.
#[must_use]
pub fn scoped_method(kind: &str, scope: &str) -> String {
    format!("{kind}:{scope}")
}

/// The subject of an agent: its id where that is one short token, else that in hexadecimal digits.
#[must_use]
pub fn agent_subject(id: &str) -> String {
    let is_plain = |byte: u8| matches!(byte, b'!'..=b'}') && !b"*.>".contains(&byte);
    if !id.is_empty() && id.len() <= AGENT_ID_BYTES && id.bytes().all(is_plain) {
        return format!("agent.{id}");
    }
    let digits: String = id.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("agent.~{digits}")
}
