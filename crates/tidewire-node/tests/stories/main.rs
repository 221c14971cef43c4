//! User stories of nodes, as integration tests.

#[path = "../../../tidewire-link/tests/stories/support/certificates.rs"]
mod certificates;
mod support;

mod alive;
#[cfg(feature = "macros")]
mod attribute;
mod calls;
mod events;
mod failures;
mod federation;
mod feeds;
mod objects;
mod python;
mod scenarios;
mod secured;
mod settings;
mod streams;
mod subjects;
mod watching;
