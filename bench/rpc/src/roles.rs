//! Command line of a peer, and the code that all roles share.

use std::io::{Read, stdin};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use clap::{Parser, ValueEnum};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};

use crate::Fault;
use crate::ticks::now_ns;
use crate::usage::Usage;
use crate::workloads::{self, Link};

const WARM_UP_SHARE: usize = 10;

#[derive(Parser)]
#[command(about = "Takes one role of a request between processes.")]
pub struct Options {
    pub contender: Contender,
    pub role: Role,
    /// A variant of the contender.
    #[arg(long, default_value = "")]
    pub form: String,
    /// Of the hub, or for a caller of the service.
    #[arg(long, default_value = "")]
    pub url: String,
    #[arg(long, default_value = "small-seq")]
    pub workload: String,
    /// Requests or messages of a round.
    #[arg(long, default_value_t = 100)]
    pub count: usize,
    #[arg(long, default_value_t = 1)]
    pub rounds: usize,
    /// NAME=PID of another process that takes part.
    #[arg(long, value_parser = named_pid)]
    pub watch: Vec<(String, i32)>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub enum Contender {
    Tidewire,
    Socket,
    Nats,
    Zenoh,
    Tonic,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub enum Role {
    /// Joins as many nodes as `--count` says, each with a subscription of its own, and keeps quiet.
    Crowd,
    Hub,
    Service,
    Caller,
}

/// Behaviour of the service, the same for all contenders.
#[derive(Default)]
pub struct Service {
    count: AtomicU64,
    at_ns: AtomicU64,
}

impl Service {
    /// The payload itself; for a single byte, how much of a stream has come.
    pub fn echo(&self, data: Bytes) -> Bytes {
        if data.len() != 1 {
            return data;
        }
        let (count, at_ns) = (self.count.load(Ordering::Acquire), self.at_ns.load(Ordering::Acquire));
        Bytes::from(json!([count, at_ns]).to_string())
    }

    /// A message of a stream.
    pub fn take(&self) {
        self.at_ns.store(now_ns(), Ordering::Release);
        self.count.fetch_add(1, Ordering::AcqRel);
    }
}

/// One thread for the bare socket, which is fastest so, and for Tidewire, which has a thread of its
/// own; two for the others.
pub fn runtime(contender: Contender) -> Runtime {
    let mut builder = match contender {
        Contender::Socket | Contender::Tidewire => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    builder.worker_threads(2).enable_all().build().expect("a runtime")
}

/// Says where this process is, and waits for the end of standard input.
pub async fn announce(url: &str) -> Result<(), Fault> {
    println!("{}", json!({"url": url, "pid": std::process::id()}));
    tokio::task::spawn_blocking(|| stdin().read_to_end(&mut Vec::new())).await??;
    Ok(())
}

/// Runs a workload: once in small, untimed, then every round.
pub async fn call(link: impl Link, options: &Options) -> Result<(), Fault> {
    let mut usage = Usage::new(&options.watch);
    workloads::run(&link, &options.workload, (options.count / WARM_UP_SHARE).max(1), &mut usage).await?;
    for _ in 0..options.rounds {
        let mut figures = workloads::run(&link, &options.workload, options.count, &mut usage).await?;
        usage.add_to(&mut figures, options.count)?;
        println!("{}", json!({"workload": options.workload, "figures": figures}));
    }
    Ok(())
}

fn named_pid(text: &str) -> Result<(String, i32), String> {
    let (name, pid) = text.split_once('=').ok_or("NAME=PID is expected")?;
    Ok((name.to_owned(), pid.parse().map_err(|_| format!("{pid}: not a process id"))?))
}
