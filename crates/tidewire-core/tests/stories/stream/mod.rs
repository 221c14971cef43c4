//! Streams: consumers, leases and buckets in virtual time.

mod consumer;
mod inbox;
mod keyvalue;
mod lease;
mod log;
mod schedule;
