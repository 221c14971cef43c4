//! Federation of hubs: the names that two hubs share, and the path of hubs that a message takes.
//!
//! - [`share_list`]: exported and imported names of services, agents and streams, and patterns of
//!   subjects.
//! - [`hub_path`]: the hubs that a call or a message has passed, so that nothing goes in a circle.

pub mod hub_path;
pub mod share_list;

pub use hub_path::{HUBS, HUBS_MAX, HubPath, MESSAGE_ID, MESSAGE_ID_BYTES, PathProblem};
pub use share_list::{FederationTable, ShareList, SharedName};

/// Joins the name of a hub and the name of a service there: the name under which another hub knows
/// it. It is one token of a subject, as every name of a service.
#[must_use]
pub fn qualified(hub: &str, service: &str) -> String {
    format!("{hub}{SEPARATOR}{service}")
}

/// Stands between the name of a hub and a name there.
pub const SEPARATOR: char = ':';

/// Checks the name of a hub, which is one token without [`SEPARATOR`].
///
/// # Errors
/// The problem, with the field, the value and a valid alternative.
pub fn check_hub_name(field: &str, name: &str) -> Result<(), String> {
    use tidewire_proto::generated::limits::NAME_BYTES;

    if name.len() as u64 > NAME_BYTES.max {
        return Err(format!("{field}: {} bytes are not allowed: give at most {}", name.len(), NAME_BYTES.max));
    }
    if crate::link::announcement::is_token(name) && !name.contains(SEPARATOR) {
        return Ok(());
    }
    Err(format!("{field}: {name:?} is not allowed: give one token without dots, blanks, ':', '*' and '>'"))
}
