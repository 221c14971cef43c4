//! Streams, key-value buckets and leases on NATS JetStream: the storage backend for several
//! computers.
//!
//! [`open`] connects, and returns a [`Home`], the storage backend. Subjects are those of NATS,
//! streams are JetStream's, and buckets are NATS KV. Data of other clients can be read here, and
//! the other way round. Private data of Tidewire is in subjects that begin with `$TW.`, and in
//! streams named `<stream>@dead`.
//!
//! A storage backend has a runtime of its own, on one thread; its callers need none.

#![forbid(unsafe_code)]

mod clock;
mod cluster;
mod connection;
mod consumers;
mod content;
mod cursor;
mod dead_letters;
mod fetch;
mod home;
mod keyvalue;
mod leases;
mod message;
mod names;
mod outstanding_deliveries;
mod publishing;
mod pull;
mod schedules;
mod settings;
mod settle;
mod shared;
mod stream_cache;
mod stream_reader;
mod streams;
mod version;

use std::sync::Arc;

use tidewire_backend::home::{Answer, Home, HomeResult};

pub use clock::now;
pub use cluster::{Bridge, BridgeError, BridgeOptions};
pub use home::Nats;
pub use pull::unsubscribe;
pub use settings::{Login, Settings, Tls};

/// Connects to the servers of a URL: `nats://user:password@host:4222`; [`Settings`] has its
/// options. Blocks until the connection is there, at most for `connect_timeout_ms` for each server
/// and `request_timeout_ms` for JetStream.
///
/// A lost connection is restored, however long that takes. Calls that wait meanwhile continue. A
/// call whose reply was lost fails with
/// [`Unreachable`](tidewire_backend::home::HomeErrorKind::Unreachable), unless it is idempotent.
///
/// # Errors
///
/// [`Invalid`](tidewire_backend::home::HomeErrorKind::Invalid) if the URL, or a file that it names,
/// cannot be used. [`Unreachable`](tidewire_backend::home::HomeErrorKind::Unreachable) if no server
/// answers. [`Denied`](tidewire_backend::home::HomeErrorKind::Denied) if the server refuses the
/// login or TLS cannot be agreed on.
/// [`Unsupported`](tidewire_backend::home::HomeErrorKind::Unsupported) if the server is too old or
/// has no JetStream. No error shows a password, a token or a seed.
pub fn open(url: &str) -> HomeResult<Arc<dyn Home>> {
    begin(url).wait()
}

/// The same without blocking: the answer comes when the connection is there, or has failed as that
/// of [`open`].
pub fn begin(url: &str) -> Answer<Arc<dyn Home>> {
    match Settings::read(url) {
        Ok(settings) => Nats::begin(settings).map(|home| Arc::new(home) as Arc<dyn Home>),
        Err(error) => Answer::ready(Err(error)),
    }
}
