//! Snapshot of a node: its statistics, condensed to a bounded length.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use rustix::system::uname;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};
use tidewire_engine::raw::clock;
use tidewire_engine::{DispatcherStatistics, Statistics};

use super::call_durations::DurationRow;
use crate::node::core::Core;

/// Most rows of one kind in an answer: the busiest.
const ROWS_MAX: usize = 500;
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The identity of a node, and the load of its process.
pub fn about(core: &Core, url: &str) -> Map<String, Value> {
    let hub = core.listening.lock().first().map(|listening| listening.address.to_string());
    fields([
        ("node", json!(core.name)),
        ("pid", json!(std::process::id())),
        ("url", json!(hub.as_deref().unwrap_or(url))),
        ("language", json!("rust")),
        ("versions", json!({"tidewire": VERSION})),
        ("uptime_s", json!(seconds(core))),
        ("host", json!(host_name())),
        ("cpu_s", json!(cpu_time().as_secs_f64())),
        ("memory_bytes", json!(memory_bytes())),
    ])
}

/// All statistics of a node but its identity. `link` are the figures of its link and its threads.
pub fn statistics(core: &Core, about: &Map<String, Value>, link: &Map<String, Value>) -> Map<String, Value> {
    let mut process = link.clone();
    process.extend(["cpu_s", "memory_bytes"].map(|key| (key.to_owned(), about[key].clone())));
    let mut answer = fields([("at_s", json!(seconds(core))), ("process", json!([process]))]);
    answer.extend(link.clone());
    let (given, held) = core.objects.counts();
    answer.insert("remote".to_owned(), json!({"given": given, "held": held}));
    answer.insert(
        "of_hub".to_owned(),
        json!(core.hub.as_ref().map(|hub| {
            let counts = hub.counts();
            json!({
                "nodes": counts.nodes,
                "forwarded": counts.forwarded,
                "calls": counts.calls,
                "published": counts.published,
                "dropped": counts.dropped,
                "refused": counts.refused,
            })
        })),
    );
    if let Some(engine) = &core.engine {
        add_engine(&mut answer, &engine.statistics());
    }
    let services = core.instances().iter().filter_map(|instance| instance.row()).collect();
    let load = |row: &Value| (row["waiting"].as_u64(), row["calls"].as_u64());
    add_rows(&mut answer, "services", services, load);
    let durations = durations(core).iter().map(|row| json!(row)).collect();
    add_rows(&mut answer, "durations", durations, |row| row["calls"].as_u64());
    let joins = core.federations.lock().iter().filter_map(|row| row()).collect();
    add_rows(&mut answer, "joins", joins, |row| row["handled"].as_u64());
    add_rows(&mut answer, "routes", core.directory.routes(core.runner.us_at(clock::now())), |row| {
        row["handled"].as_u64()
    });
    for kind in ["agents", "pools", "actors", "campaigns"] {
        add_rows(&mut answer, kind, Vec::new(), |_| 0);
    }
    answer
}

/// Named values.
pub fn fields<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Seconds since the start of a node.
pub fn seconds(core: &Core) -> f64 {
    core.runner.us_at(clock::now()) as f64 / 1e6
}

fn durations(core: &Core) -> Vec<DurationRow> {
    let mut rows = core.runner.durations.as_ref().map_or_else(Vec::new, |durations| durations.rows());
    if let Some(commits) = core.home.as_ref().and_then(|home| home.commits()) {
        rows.push(DurationRow { calls: commits.calls, ..DurationRow::new("commit", "", "", &commits.times) });
    }
    rows
}

/// Adds the busiest rows of a kind, and how many there are.
fn add_rows<K: Ord>(answer: &mut Map<String, Value>, kind: &str, mut rows: Vec<Value>, load: impl Fn(&Value) -> K) {
    answer.insert(format!("{kind}_count"), json!(rows.len()));
    rows.sort_by_cached_key(|row| Reverse(load(row)));
    rows.truncate(ROWS_MAX);
    answer.insert(kind.to_owned(), Value::Array(rows));
}

/// Adds the threads that run handlers. Each handler is one actor of the engine.
fn add_engine(answer: &mut Map<String, Value>, engine: &Statistics) {
    let dispatchers = engine.dispatchers.iter().map(|one| dispatcher(one, engine)).collect();
    let dead: BTreeMap<_, _> = engine.dead_letters.iter().map(|(reason, count)| (reason.as_str(), count)).collect();
    answer.extend(fields([
        ("timers", json!(engine.timers)),
        ("ask_timeouts", json!(engine.ask_timeouts)),
        ("subscriptions", json!(engine.subscriptions)),
        ("dead_letters", json!(dead)),
        ("dead_letters_let_go", json!(engine.dead_letters_let_go)),
        ("dispatchers", Value::Array(dispatchers)),
    ]));
}

fn dispatcher(one: &DispatcherStatistics, engine: &Statistics) -> Value {
    let own = engine.actors.iter().filter(|actor| actor.dispatcher == one.name);
    let mut row = fields([
        ("name", json!(one.name)),
        ("starved", json!(one.starved.is_some())),
        ("high_water", json!(own.map(|actor| actor.high_water).max().unwrap_or(0))),
        ("threads", json!(one.threads)),
        ("threads_max", json!(one.threads_max)),
        ("asleep", json!(one.asleep)),
        ("throughput", json!(one.throughput)),
        ("actors", json!(one.actors)),
        ("accepted", json!(one.accepted)),
        ("handled", json!(one.handled)),
        ("failed", json!(one.failed)),
        ("dropped", json!(one.dropped)),
        ("depth", json!(one.depth)),
    ]);
    for (name, times) in [("queueing", &one.timings.queueing), ("handling", &one.timings.handling)] {
        for percent in [50, 99] {
            let us = times.percentile(f64::from(percent)) as f64 / 1e3;
            row.insert(format!("{name}_p{percent}_us"), json!(us));
        }
    }
    Value::Object(row)
}

/// Time that the process has computed.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Resident memory of the process in bytes; None where the system does not tell.
fn memory_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()? * 1_024)
}

/// The name of the computer.
pub fn host_name() -> String {
    uname().nodename().to_string_lossy().into_owned()
}
