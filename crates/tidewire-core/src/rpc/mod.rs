//! Calls between nodes: balancing over instances, admission, retries, exported objects, the
//! watchdog of handlers.
//!
//! - [`balancer`]: one of several instances for a call, by their load.
//! - [`directory`]: services and nodes, as the hub reports them.
//! - [`admission`]: the concurrency limit of a service, with priorities.
//! - [`exports`]: functions and objects that other nodes hold.
//! - [`imports`]: functions and objects of other nodes that this node holds.
//! - [`retry`]: new attempts of a call whose link was lost.
//! - [`watchdog`]: handlers that block their event loop or their threads.

pub mod admission;
pub mod balancer;
pub mod directory;
pub mod exports;
pub mod imports;
pub mod retry;
pub mod watchdog;

/// How the id of an instance begins that stands by: it passes calls on to the one that is active.
pub const STANDBY: char = '~';

/// How the id of an instance begins that is at another hub: callers prefer the instances of their
/// own hub.
pub const FAR: &str = "~~";
