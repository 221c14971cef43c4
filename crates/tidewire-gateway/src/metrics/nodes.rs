//! Series of the services, pools and dispatchers of nodes that allow inspection.

use std::collections::BTreeMap;

use futures_util::StreamExt as _;
use futures_util::stream;
use serde::Deserialize;
use tidewire_proto::subject::grammar::INSPECTION;

use super::series::{Samples, Series};
use super::{Served, TIMEOUT};
use crate::shared::Shared;

/// Most nodes that are asked, and how many at once.
const NODES_MAX: usize = 1_000;
const AT_ONCE: usize = 16;
const SERVICE: &[&str] = &["node", "service"];
const POOL: &[&str] = &["node", "pool"];

const CALLS: Series = Series("tidewire_service_calls_total", "counter", "Calls of a service.", SERVICE);
const ERRORS: Series = Series("tidewire_service_errors_total", "counter", "Calls that ended with an error.", SERVICE);
const IN_FLIGHT: Series = Series("tidewire_service_in_flight", "gauge", "Calls under way.", SERVICE);
const WAITING: Series = Series("tidewire_service_waiting", "gauge", "Calls that wait for their turn.", SERVICE);
const P99: Series =
    Series("tidewire_service_p99_seconds", "gauge", "99th percentile of the time of recent calls.", SERVICE);
const TASKS: Series = Series("tidewire_pool_tasks_total", "counter", "Tasks that a pool has handled.", POOL);
const FAILED: Series = Series("tidewire_pool_failed_total", "counter", "Tasks that failed.", POOL);
const RESTARTS: Series = Series("tidewire_pool_restarts_total", "counter", "Workers that were replaced.", POOL);
const TASKS_WAITING: Series = Series("tidewire_pool_waiting", "gauge", "Tasks that wait for a worker.", POOL);
const OLDEST: Series = Series("tidewire_pool_oldest_wait_seconds", "gauge", "Age of the oldest waiting task.", POOL);
const WORKERS: Series = Series("tidewire_pool_workers", "gauge", "Workers, busy or idle.", &["node", "pool", "state"]);
const STARVED: Series = Series(
    "tidewire_dispatcher_starved",
    "gauge",
    "1 while handlers hold all threads of a dispatcher.",
    &["node", "dispatcher"],
);
const DEAD: Series = Series("tidewire_dead_letters_total", "counter", "Dead letters of actors.", &["node", "reason"]);
const SILENT: Series = Series("tidewire_nodes_silent", "gauge", "Nodes whose statistics did not come in time.", &[]);

#[derive(Deserialize)]
struct Statistics {
    services: Vec<ServiceRow>,
    pools: Vec<PoolRow>,
    dispatchers: Vec<DispatcherRow>,
    dead_letters: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct ServiceRow {
    service: String,
    calls: f64,
    errors: f64,
    in_flight: f64,
    waiting: f64,
    p99_us: f64,
}

#[derive(Deserialize)]
struct PoolRow {
    name: String,
    handled: f64,
    failed: f64,
    restarts: f64,
    waiting: f64,
    oldest_wait_ms: f64,
    workers: f64,
    workers_busy: f64,
}

#[derive(Deserialize)]
struct DispatcherRow {
    name: String,
    starved: bool,
}

/// Adds the series of all nodes that allow inspection.
pub(super) async fn add(shared: &Shared, served: Served<'_>, samples: &mut Samples) -> Option<()> {
    let Some(inspection) = served? else { return Some(()) };
    let asked = inspection.details.clone().into_iter().take(NODES_MAX).map(|instance| async move {
        let client = shared.node.client(INSPECTION).instance(&instance.id).timeout(TIMEOUT);
        (instance.node, client.call::<Statistics>("statistics", &()).await)
    });
    let mut answers = stream::iter(asked).buffer_unordered(AT_ONCE);
    samples.add(SILENT, &[], 0.0);
    while let Some((node, answer)) = answers.next().await {
        match answer {
            Ok(statistics) => add_node(samples, &node, &statistics),
            Err(_) => samples.add(SILENT, &[], 1.0),
        }
    }
    Some(())
}

fn add_node(samples: &mut Samples, node: &str, statistics: &Statistics) {
    for row in &statistics.services {
        let labels = [node, &row.service];
        for (series, value) in
            [(CALLS, row.calls), (ERRORS, row.errors), (IN_FLIGHT, row.in_flight), (WAITING, row.waiting)]
        {
            samples.add(series, &labels, value);
        }
        samples.add(P99, &labels, row.p99_us / 1e6);
    }
    for row in &statistics.pools {
        let labels = [node, &row.name];
        for (series, value) in
            [(TASKS, row.handled), (FAILED, row.failed), (RESTARTS, row.restarts), (TASKS_WAITING, row.waiting)]
        {
            samples.add(series, &labels, value);
        }
        samples.add(OLDEST, &labels, row.oldest_wait_ms / 1e3);
        samples.add(WORKERS, &[node, &row.name, "busy"], row.workers_busy);
        samples.add(WORKERS, &[node, &row.name, "idle"], row.workers - row.workers_busy);
    }
    for row in &statistics.dispatchers {
        samples.add(STARVED, &[node, &row.name], f64::from(u8::from(row.starved)));
    }
    for (reason, count) in &statistics.dead_letters {
        samples.add(DEAD, &[node, reason], *count as f64);
    }
}
