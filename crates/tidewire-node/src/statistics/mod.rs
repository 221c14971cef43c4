//! Statistics of a node: durations of its calls and events, and the service that shows them.

pub mod call_durations;
pub mod routes;
mod rows;
pub mod service;
mod snapshot;
pub mod span_store;
