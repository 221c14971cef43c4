//! Durable streams, key-value buckets and leases in a folder of one machine.
//!
//! - [`open`]: a home for any number of threads, with one thread of its own that writes.
//! - [`folder`]: what a folder holds, for one thread, without a clock.
//! - [`disk`]: files, real ones and simulated ones that lose power.
//! - [`check`]: what a folder's files hold, and the rescue of what is whole in damaged ones.
//!
//! What decides is in [`tidewire_core::stream`]. One process at a time has a folder open.

#![forbid(unsafe_code)]

pub mod check;
pub mod disk;
pub mod folder;
mod home;
mod state;

pub use home::{Embedded, Options, open};
