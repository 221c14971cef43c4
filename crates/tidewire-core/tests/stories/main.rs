//! Tests of the state machines, written as short stories without I/O, clock or threads.

mod backoff;
mod campaign;
mod histogram;
mod link;
mod rpc;
mod stream;
mod tree;
mod wheel;
