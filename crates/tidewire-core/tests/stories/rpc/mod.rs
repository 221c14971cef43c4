//! Decisions of callers and services.

mod admission;
mod balancer;
mod directory;
mod exports;
mod imports;
mod retry;
mod routing;
mod watchdog;
