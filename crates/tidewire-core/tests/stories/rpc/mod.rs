//! What callers and services of calls decide.

mod admission;
mod balancer;
mod retry;
mod watchdog;
