//! State machines of Tidewire: pure, driven by the caller, without clock, threads or I/O.

#![forbid(unsafe_code)]
