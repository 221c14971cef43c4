//! State machines of services for Python: balancer, retry policy, admission, export tables and
//! thread workers.

pub mod admission;
pub mod balancer;
pub mod call_counters;
pub mod call_durations;
pub mod exports;
pub mod imports;
pub mod retry;
pub mod thread_workers;
