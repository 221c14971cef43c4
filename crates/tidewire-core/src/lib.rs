//! State machines of Tidewire: pure, driven by the caller, without clock, threads or I/O.
//!
//! - [`wheel`]: timers, inserted and removed in constant time.
//! - [`backoff`]: growing delays between attempts.
//! - [`restart`]: how many restarts a span of time allows.
//! - [`histogram`]: distributions of times in a few hundred bytes.
//! - [`tree`]: subscriptions, found by subject.
//! - [`campaign`]: seeded runs in ranges: seeds, random numbers, rows, digests.
//! - [`federation`]: names that two hubs share, and the path of what crosses between hubs.
//! - [`link`]: links between nodes, the hub that routes between them, without sockets.
//! - [`rpc`]: calls between nodes: balancer, admission, retries, watchdog.
//! - [`stream`]: durable logs, consumers, leases and key-value buckets, without files.
//!
//! Time goes in as a number of microseconds, randomness as a seed; the same calls give the same
//! answers everywhere.

#![forbid(unsafe_code)]

pub mod backoff;
pub mod campaign;
pub mod federation;
pub mod histogram;
pub mod link;
pub mod restart;
pub mod rpc;
pub mod stream;
pub mod tree;
pub mod wheel;
