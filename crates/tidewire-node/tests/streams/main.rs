//! Streams, buckets and leases as nodes of Rust have them: in a folder, and at a hub, of Rust or of
//! Python.

#[path = "../stories/support/mod.rs"]
#[allow(dead_code)]
mod support;

mod buckets;
mod commands;
mod consuming;
mod durable;
mod federation;
mod hubs;
mod kills;
mod leases;
mod publishing;
mod python;
mod schedules;
mod single;
mod statistics;
mod suite;
