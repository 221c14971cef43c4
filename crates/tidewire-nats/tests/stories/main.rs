//! The home on NATS, with real servers: connecting, streams, consumers, buckets, leases, a cluster,
//! and the suite of homes.
//!
//! The servers are those that `tools/servers.py` starts; each story has streams of its own.

mod buckets;
mod cluster;
mod connecting;
mod consumers;
mod interop;
mod leases;
mod schedules;
mod servers;
mod streams;
mod suite;
