//! Storage backend on NATS, with real servers: connecting, streams, consumers, buckets, leases, a
//! cluster, and the suite of storage backends.
//!
//! `tools/servers.py` starts the servers; each story has its own streams.

mod bridges;
mod buckets;
mod cluster;
mod connecting;
mod consumers;
mod interop;
mod keeper;
mod leases;
mod schedules;
mod servers;
mod streams;
mod suite;
