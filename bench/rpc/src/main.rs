//! Requests and replies between processes: one role of one Rust peer under one workload.
//!
//! ```text
//! rpc-bench socket service
//! rpc-bench socket caller --url 127.0.0.1:4000 --workload small-seq --count 2000 --watch service=123
//! ```
//!
//! The command line and the lines of JSON are those of the Python peers in
//! `bench/python/rpc_roles.py`.

mod contenders;
mod payloads;
mod roles;
mod ticks;
mod usage;
mod workloads;

use clap::Parser;

type Fault = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Fault> {
    let options = roles::Options::parse();
    let runtime = roles::runtime(options.contender);
    let done = runtime.block_on(contenders::run(&options));
    // Running tasks of a peer must not keep this process alive.
    runtime.shutdown_background();
    done
}
