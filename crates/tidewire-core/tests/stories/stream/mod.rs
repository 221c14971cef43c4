//! Streams: consumers, leases and buckets in virtual time.

mod consumer;
mod inbox;
mod keyvalue;
mod log;
mod schedule;
