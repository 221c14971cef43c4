//! What the state machines promise, told as short stories without I/O, clock or threads.

mod backoff;
mod campaign;
mod histogram;
mod link;
mod rpc;
mod stream;
mod tree;
mod wheel;
