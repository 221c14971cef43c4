//! Client side of services: clients, calls and item streams.

pub mod call;
pub mod client;
pub mod instance_lookup;
pub mod item_stream;
pub mod prepared_call;
pub mod reply_slot;
