//! Server side of services: methods, served instances and the run of their handlers.

pub mod context;
pub mod current_service;
pub mod events;
pub mod failure;
pub mod handler_run;
pub mod inbound_call;
pub mod instance;
pub mod listener;
pub mod method;
#[cfg(feature = "schemars")]
pub mod schemas;
pub mod serve;
pub mod service;
pub mod single_active;
