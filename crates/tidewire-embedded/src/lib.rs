//! Durable streams, key-value buckets and leases in a folder of one computer.
//!
//! - [`open`]: a storage backend for any number of threads, with one thread of its own that writes.
//! - [`folder`]: the contents of a folder, for one thread, without a clock.
//! - [`disk`]: the port of files.
//! - [`check`]: the check of a folder's files, and the rescue of intact events from damaged ones.
//!
//! The state machines are in [`tidewire_core::stream`]. One process at a time has a folder open.

#![forbid(unsafe_code)]

pub mod check;
pub mod disk;
pub mod folder;
mod home;
mod state;

pub use home::{Embedded, Options, open};
