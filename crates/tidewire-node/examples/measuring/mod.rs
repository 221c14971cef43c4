//! Helpers shared by the benchmark examples.

use tidewire_node::{Node, NodeOptions};

pub type Fault = Box<dyn std::error::Error + Send + Sync>;

/// Bytes of a payload.
pub const BYTES: usize = 256;
const ROUNDS: usize = 5;

/// The number of requests or messages: the first argument, or this one.
pub fn count(default: usize) -> Result<usize, Fault> {
    let Some(given) = std::env::args().nth(1) else { return Ok(default) };
    match given.parse() {
        Ok(count) if (1..=10_000_000).contains(&count) => Ok(count),
        _ => Err(format!("count: {given:?} is not allowed: give a whole number from 1 to 10,000,000").into()),
    }
}

/// A hub, and two nodes that have joined it over TCP.
pub fn nodes() -> Result<(Node, Node, Node), Fault> {
    let hub = Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub")).wait()?;
    let join = |name: &str| Node::join(&hub.urls()[0], NodeOptions::named(name)).wait();
    let (server, caller) = (join("server")?, join("caller")?);
    Ok((hub, server, caller))
}

/// Says when a round begins.
pub fn rounds() -> impl Iterator<Item = usize> {
    (1..=ROUNDS).inspect(|round| eprintln!("round {round} of {ROUNDS}"))
}

/// The processors, as the system names them.
pub fn machine() -> String {
    let cpu_info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu_info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("an unknown processor");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{} ({cores} cores)", model.trim_start_matches([' ', '\t', ':']))
}

/// Prints the least, the median and the most.
pub fn figures(name: &str, unit: &str, rates: &mut [f64]) {
    rates.sort_by(f64::total_cmp);
    let [least, .., most] = rates else { return };
    let (least, most) = (*least, *most);
    println!("{name:40} {:>12.0} {unit} (min {least:.0}, max {most:.0})", rates[rates.len() / 2]);
}
