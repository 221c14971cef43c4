//! What callers and services of calls decide.

mod admission;
mod balancer;
mod directory;
mod exports;
mod imports;
mod retry;
mod watchdog;
