//! Routing simulation: callers choose instances of a service in virtual time, and each rule gets
//! the same traffic.
//!
//! - [`scenario`]: ten scenarios, with the traffic and the random numbers of a seed.
//! - [`router`]: callers with the policies of the balancer.
//! - [`simulation`]: one run, and its figures; an oracle.
//!
//! `make routing` writes the table and the curves of `docs/guides/routing.md`.

pub mod router;
pub mod scenario;
pub mod simulation;
