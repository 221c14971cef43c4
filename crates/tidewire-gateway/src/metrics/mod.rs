//! The metrics of the gateway, its hub and the nodes of the hub, as Prometheus reads them.

mod nodes;
mod series;
mod streams;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tidewire_node::ServiceInfo;
use tidewire_proto::subject::grammar::{INSPECTION, STREAMS};
use tokio::time::timeout;

pub use self::nodes::{node_metrics, node_series};
pub use self::series::Sample;
use self::series::{Samples, Series};
use crate::problem::Problem;
use crate::shared::Shared;

/// How long a part of the metrics may take. A scrape by Prometheus ends after 10 seconds.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How long what was read of nodes and streams is given again.
const FRESH: Duration = Duration::from_secs(1);
const MISSING: Series =
    Series("tidewire_metrics_missing", "gauge", "1 if a part of the metrics could not be read in time.", &["part"]);
const REQUESTS: Series = Series(
    "http_server_request_duration_seconds",
    "histogram",
    "Time from the head of a request to that of its answer.",
    &["http_request_method", "url_scheme", "http_route", "http_response_status_code"],
);

/// The service that a part is read from: none if it could not be looked for, or is not there.
type Served<'a> = Option<Option<&'a ServiceInfo>>;

/// The text of all metrics, or with `node=NAME` in the query of that node alone. Those of nodes and
/// streams are read at most once a second.
pub(crate) async fn text(shared: &Shared, query: &str) -> Result<String, Problem> {
    let mut node = None;
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        if name != "node" || node.replace(value.into_owned()).is_some() {
            return Err(Problem::invalid(format!("query: {name:?} is not allowed: there is node=NAME, once")));
        }
    }
    if shared.options.is_exporter || node.is_some() {
        return nodes::text_of_one(shared, node.as_deref()).await;
    }
    let mut last = shared.metrics.lock().await;
    if last.as_ref().is_none_or(|(since, _)| since.elapsed() >= FRESH) {
        *last = Some((Instant::now(), of_nodes(shared).await));
    }
    Ok(own(shared) + last.as_ref().map_or("", |(_, text)| text))
}

/// A text in the form of OpenMetrics, where the name of a counter has no `_total`.
pub(crate) fn open_metrics(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for line in text.lines() {
        match line.split_once("_total ").filter(|_| line.starts_with('#')) {
            Some((name, rest)) => out.extend([name, " ", rest, "\n"]),
            None => out.extend([line, "\n"]),
        }
    }
    out + "# EOF\n"
}

/// The metrics of the streams and the nodes of the hub.
async fn of_nodes(shared: &Shared) -> String {
    let (mut out, mut missing) = (String::new(), Samples::default());
    let (mut streams, mut nodes) = (Samples::default(), Samples::default());
    let services = timeout(TIMEOUT, shared.node.services()).await.ok().and_then(Result::ok);
    let named = |name| services.as_ref().map(|all| all.iter().find(|one| one.name == name));
    let (of_streams, of_nodes) = tokio::join!(
        timeout(TIMEOUT, streams::add(shared, named(STREAMS), &mut streams)),
        timeout(2 * TIMEOUT, nodes::add(shared, named(INSPECTION), &mut nodes)),
    );
    for (part, samples, read) in [("streams", streams, of_streams), ("nodes", nodes, of_nodes)] {
        missing.add(MISSING, &[part], f64::from(u8::from(!matches!(read, Ok(Some(()))))));
        out += &samples.text();
    }
    out + &missing.text()
}

/// The metrics of the gateway and its hub.
fn own(shared: &Shared) -> String {
    let (http, hub, mut samples) = (&shared.counting, shared.hub.counts(), Samples::default());
    let number = |counter: &AtomicUsize| counter.load(Ordering::Relaxed) as u64;
    let mut add = |name, kind, help, value: u64| samples.add(Series(name, kind, help, &[]), &[], value as f64);
    add("tidewire_http_connections", "gauge", "Connections that are open.", number(&http.connections));
    add(
        "tidewire_http_requests_open",
        "gauge",
        "Requests that are under way, streams included.",
        number(&http.requests),
    );
    add("tidewire_http_streams", "gauge", "Streams that are under way.", number(&http.streams));
    add(
        "tidewire_http_closed_total",
        "counter",
        "Connections closed to make room, or that stood still.",
        http.closed.load(Ordering::Relaxed),
    );
    add("tidewire_hub_nodes", "gauge", "Nodes that have joined the hub.", hub.nodes);
    add("tidewire_hub_forwarded_total", "counter", "Frames that the hub has passed on.", hub.forwarded);
    add("tidewire_hub_calls_total", "counter", "Calls that the hub has passed on.", hub.calls);
    add("tidewire_hub_published_total", "counter", "Published messages that the hub has passed on.", hub.published);
    add("tidewire_hub_dropped_total", "counter", "Published messages whose receivers had no room.", hub.dropped);
    add("tidewire_hub_refused_total", "counter", "What the hub has refused.", hub.refused);
    for ((method, route, status), times) in shared.counting.answers() {
        samples.add_durations(REQUESTS, &[method, "http", route.name(), &status.to_string()], &times);
    }
    samples.text()
}
