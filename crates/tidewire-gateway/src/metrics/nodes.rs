//! Series of the services, pools and dispatchers of nodes that allow inspection.

use std::collections::BTreeMap;

use futures_util::StreamExt as _;
use futures_util::stream;
use serde::Deserialize;
use serde_json::Value;
use tidewire_node::{Durations, Error};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::subject::grammar::INSPECTION;
use tokio::time::timeout;

use super::series::{Sample, Samples, Series};
use super::{Served, TIMEOUT};
use crate::problem::Problem;
use crate::shared::Shared;

/// Most nodes that are queried, and how many at once.
const NODES_MAX: usize = 1_000;
const AT_ONCE: usize = 16;
/// Most nodes that an error names.
const NAMED_MAX: usize = 20;
/// A series of a row: its name, type and help, the field of the row, and its unit.
type Field = (&'static str, &'static str, &'static str, &'static str, f64);

/// Kinds of rows: their name in the statistics, the field with the name of a row, and the labels.
const ROWS: [(&str, &str, &[&str], &[Field]); 6] = [
    ("services", "service", &["node", "service"], &SERVICES),
    ("pools", "name", &["node", "pool"], &POOLS),
    ("dispatchers", "name", &["node", "dispatcher"], &DISPATCHERS),
    ("process", "name", &["node"], &PROCESS),
    ("campaigns", "name", &["node", "campaign"], &CAMPAIGNS),
    ("joins", "name", &["node", "hub"], &JOINS),
];
const SERVICES: [Field; 2] = [
    ("tidewire_service_in_flight", "gauge", "Calls under way.", "in_flight", 1.0),
    ("tidewire_service_waiting", "gauge", "Calls that wait for their turn.", "waiting", 1.0),
];
const POOLS: [Field; 8] = [
    ("tidewire_pool_redelivered_total", "counter", "Tasks that another worker got.", "redelivered", 1.0),
    ("tidewire_pool_timed_out_total", "counter", "Tasks whose time was up.", "timed_out", 1.0),
    ("tidewire_pool_batches_total", "counter", "Batches that workers got.", "batches", 1.0),
    ("tidewire_pool_tasks_total", "counter", "Tasks that a pool has handled.", "handled", 1.0),
    ("tidewire_pool_failed_total", "counter", "Tasks that failed.", "failed", 1.0),
    ("tidewire_pool_restarts_total", "counter", "Workers that were replaced.", "restarts", 1.0),
    ("tidewire_pool_waiting", "gauge", "Tasks that wait for a worker.", "waiting", 1.0),
    ("tidewire_pool_oldest_wait_seconds", "gauge", "Age of the oldest waiting task.", "oldest_wait_ms", 1e-3),
];
const DISPATCHERS: [Field; 6] = [
    ("tidewire_dispatcher_starved", "gauge", "1 while handlers hold all threads of a dispatcher.", "starved", 1.0),
    ("tidewire_mailbox_depth", "gauge", "Messages that wait in mailboxes.", "depth", 1.0),
    ("tidewire_mailbox_high_water", "gauge", "Most messages that ever waited in one mailbox.", "high_water", 1.0),
    ("tidewire_messages_handled_total", "counter", "Messages that actors have handled.", "handled", 1.0),
    ("tidewire_messages_failed_total", "counter", "Messages whose handlers failed.", "failed", 1.0),
    ("tidewire_messages_dropped_total", "counter", "Messages that full mailboxes dropped.", "dropped", 1.0),
];
const PROCESS: [Field; 7] = [
    ("tidewire_link_round_trip_seconds", "gauge", "Time to the hub and back at the last look.", "round_trip_us", 1e-6),
    ("tidewire_link_received_bytes_total", "counter", "Bytes from the hub.", "received_bytes", 1.0),
    ("tidewire_link_sent_bytes_total", "counter", "Bytes to the hub.", "sent_bytes", 1.0),
    ("tidewire_link_credit_bytes", "gauge", "Bytes that may still wait for the link.", "credit_bytes", 1.0),
    ("tidewire_loop_lag_seconds", "gauge", "Delay of a callback of the event loop at the last look.", "lag_us", 1e-6),
    ("process_cpu_seconds_total", "counter", "Time that the process has computed.", "cpu_s", 1.0),
    ("process_resident_memory_bytes", "gauge", "Resident memory of the process.", "memory_bytes", 1.0),
];
const CAMPAIGNS: [Field; 5] = [
    ("tidewire_campaign_runs_total", "counter", "Runs that are done.", "done", 1.0),
    ("tidewire_campaign_failed_total", "counter", "Runs that failed or were quarantined.", "failed", 1.0),
    ("tidewire_campaign_left", "gauge", "Runs that have not ended.", "left", 1.0),
    ("tidewire_campaign_runs_per_second", "gauge", "Runs per second lately.", "rate", 1.0),
    ("tidewire_campaign_workers", "gauge", "Workers of a campaign.", "at_work", 1.0),
];
const JOINS: [Field; 4] = [
    ("tidewire_join_up", "gauge", "1 while the link to a joined hub is there.", "joined", 1.0),
    ("tidewire_join_losses_total", "counter", "Losses of the link to a joined hub.", "lost", 1.0),
    ("tidewire_join_crossed_total", "counter", "Calls and messages that have crossed.", "handled", 1.0),
    ("tidewire_join_refused_total", "counter", "Calls that did not cross, such as those in a circle.", "refused", 1.0),
];
const STAGES: Series = Series(
    "tidewire_campaign_stage_seconds_total",
    "counter",
    "Time of the workers of a campaign, by stage.",
    &["node", "campaign", "stage"],
);
const WORKERS: Series = Series("tidewire_pool_workers", "gauge", "Workers, busy or idle.", &["node", "pool", "state"]);
const SYSTEM: &str = "tidewire";
const RPC: &[&str] = &["node", "rpc_system_name", "rpc_method", "error_type"];
const MESSAGING: &[&str] = &[
    "node",
    "messaging_system",
    "messaging_operation_name",
    "messaging_destination_name",
    "messaging_consumer_group_name",
    "error_type",
];
const SERVER: Series = Series("rpc_server_call_duration_seconds", "histogram", "Duration of incoming calls.", RPC);
const CLIENT: Series = Series("rpc_client_call_duration_seconds", "histogram", "Duration of outgoing calls.", RPC);
const HANDLED: Series =
    Series("messaging_process_duration_seconds", "histogram", "Duration of handlers of durable events.", MESSAGING);
const CONSUMED: Series =
    Series("messaging_client_consumed_messages_total", "counter", "Events that handlers have handled.", MESSAGING);
const SEND: Series =
    Series("messaging_client_operation_duration_seconds", "histogram", "Time until a message is stored.", MESSAGING);
const COMMIT: Series =
    Series("tidewire_log_commit_duration_seconds", "histogram", "Duration of writes with a sync to disk.", &["node"]);
const COMMITTED: Series =
    Series("tidewire_log_committed_total", "counter", "Calls that commits have answered.", &["node"]);
const DEAD: Series = Series("tidewire_dead_letters_total", "counter", "Dead letters of actors.", &["node", "reason"]);
const SILENT: Series = Series("tidewire_nodes_silent", "gauge", "Nodes whose statistics did not come in time.", &[]);

/// Adds the series of all nodes that allow inspection.
pub(super) async fn add(shared: &Shared, served: Served<'_>, samples: &mut Samples) -> Option<()> {
    let Some(inspection) = served? else { return Some(()) };
    let requests = inspection.details.clone().into_iter().take(NODES_MAX).map(|instance| async move {
        let client = shared.node.client(INSPECTION).instance(&instance.id).timeout(TIMEOUT);
        (instance.node, client.call::<Value>("statistics", &()).await)
    });
    let mut answers = stream::iter(requests).buffer_unordered(AT_ONCE);
    samples.add(SILENT, &[], 0.0);
    while let Some((node, answer)) = answers.next().await {
        match answer {
            Ok(statistics) => add_node(samples, &node, &statistics),
            Err(_) => samples.add(SILENT, &[], 1.0),
        }
    }
    Some(())
}

/// The text of one node, which needs no name where there is one alone.
pub(super) async fn text_of_one(shared: &Shared, name: Option<&str>) -> Result<String, Problem> {
    let services = timeout(TIMEOUT, shared.node.services()).await;
    let services =
        services.map_err(|_| Problem::new(ErrorCode::AskTimeout, "the hub does not name its services"))??;
    let instances = services.into_iter().filter(|one| one.name == INSPECTION).flat_map(|one| one.details);
    let by_node: BTreeMap<String, String> = instances.map(|instance| (instance.node, instance.id)).collect();
    let name = name.or_else(|| by_node.keys().next().map(String::as_str)).unwrap_or_default();
    let Some(instance) = by_node.get(name) else {
        let known: Vec<_> = by_node.keys().take(NAMED_MAX).map(|name| format!("{name:?}")).collect();
        let (known, all) = (known.join(", "), by_node.len());
        let text = format!("node: no node {name:?} allows inspection (inspect=True): {all} do: {known}");
        return Err(Problem::nothing(text));
    };
    let client = shared.node.client(INSPECTION).instance(instance).timeout(TIMEOUT);
    let mut samples = Samples::default();
    add_node(&mut samples, name, &client.call::<Value>("statistics", &()).await?);
    Ok(samples.text())
}

/// The series that [`node_metrics`] may have: name, type and help of each.
pub fn node_series() -> Vec<(&'static str, &'static str, &'static str)> {
    let rows = ROWS.iter().flat_map(|(.., fields)| fields.iter().map(|(name, kind, help, ..)| (*name, *kind, *help)));
    let others = [SERVER, CLIENT, HANDLED, CONSUMED, SEND, COMMIT, COMMITTED, WORKERS, DEAD];
    rows.chain(others.map(|Series(name, kind, help, _)| (name, kind, help))).collect()
}

/// The values of the metrics of a node, from its statistics in JSON.
///
/// # Errors
/// [`Error`] if the statistics are not JSON.
pub fn node_metrics(node: &str, statistics: &[u8]) -> Result<Vec<Sample>, Error> {
    let statistics = serde_json::from_slice(statistics);
    let statistics = statistics.map_err(|error| Error::invalid(format!("statistics: {error}: give JSON")))?;
    let mut samples = Samples::default();
    add_node(&mut samples, node, &statistics);
    Ok(samples.each().collect())
}

/// Adds the series of the statistics of a node. A node of another version may lack fields.
fn add_node(samples: &mut Samples, node: &str, statistics: &Value) {
    for (kind, key, labels, fields) in ROWS {
        for row in statistics[kind].as_array().into_iter().flatten() {
            let name = row[key].as_str().unwrap_or_default();
            for (series, of, help, field, unit) in fields {
                if let Some(value) = number(&row[field]) {
                    samples.add(Series(series, of, help, labels), &[node, name], value * unit);
                }
            }
            for (stage, seconds) in row["stages"].as_object().into_iter().flatten() {
                samples.add(STAGES, &[node, name, stage], number(seconds).unwrap_or_default());
            }
            if let (Some(workers), Some(busy)) = (number(&row["workers"]), number(&row["workers_busy"])) {
                samples.add(WORKERS, &[node, name, "busy"], busy);
                samples.add(WORKERS, &[node, name, "idle"], workers - busy);
            }
        }
    }
    for row in statistics["durations"].as_array().into_iter().flatten() {
        let text = |field: &str| row[field].as_str().unwrap_or_default();
        let (kind, name, error) = (text("kind"), text("name"), text("error"));
        let (Ok(buckets), Some(sum_us)) = (Deserialize::deserialize(&row["buckets"]), row["sum_us"].as_u64()) else {
            continue;
        };
        let times = Durations { buckets, sum_us };
        let (stream, consumer) = name.split_once('/').unwrap_or((name, ""));
        let event = [node, SYSTEM, if kind == "send" { "publish" } else { "process" }, stream, consumer, error];
        match kind {
            "server" => samples.add_durations(SERVER, &[node, SYSTEM, name, error], &times),
            "client" => samples.add_durations(CLIENT, &[node, SYSTEM, name, error], &times),
            "process" => {
                samples.add_durations(HANDLED, &event, &times);
                samples.add(CONSUMED, &event, times.count() as f64);
            }
            "send" => samples.add_durations(SEND, &event, &times),
            "commit" => {
                samples.add_durations(COMMIT, &[node], &times);
                samples.add(COMMITTED, &[node], number(&row["calls"]).unwrap_or_default());
            }
            _ => {}
        }
    }
    for (reason, count) in statistics["dead_letters"].as_object().into_iter().flatten() {
        samples.add(DEAD, &[node, reason], number(count).unwrap_or_default());
    }
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_bool().map(|is_so| f64::from(u8::from(is_so))))
}
