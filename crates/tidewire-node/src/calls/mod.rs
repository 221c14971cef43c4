//! Client side of services: clients, calls and item streams.

pub mod call;
pub mod call_attempt;
pub mod call_options;
pub mod call_record;
pub mod client;
pub mod instance_lookup;
pub mod item_buffer;
pub mod item_stream;
pub mod prepared_call;
pub mod priority;
pub mod reply_slot;
