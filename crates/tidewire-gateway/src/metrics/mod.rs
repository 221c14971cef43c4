//! The metrics of the gateway, its hub and the nodes of the hub, as Prometheus reads them.

mod nodes;
mod series;
mod streams;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use tidewire_node::ServiceInfo;
use tidewire_proto::subject::grammar::{INSPECTION, STREAMS};
use tokio::time::timeout;

use self::series::{Samples, Series};
use crate::counts::CLASSES_MS;
use crate::shared::Shared;

/// How long a part of the metrics may take. A scrape by Prometheus ends after 10 seconds.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How long what was read of nodes and streams is given again.
const FRESH: Duration = Duration::from_secs(1);
const MISSING: Series =
    Series("tidewire_metrics_missing", "gauge", "1 if a part of the metrics could not be read in time.", &["part"]);

/// The service that a part is read from: none if it could not be looked for, or is not there.
type Served<'a> = Option<Option<&'a ServiceInfo>>;
/// The last metrics of nodes and streams, and when they were read.
pub(crate) type LastRead = tokio::sync::Mutex<Option<(Instant, String)>>;

/// The text of all metrics. Those of nodes and streams are read at most once a second.
pub(crate) async fn text(shared: &Shared) -> String {
    let mut last = shared.metrics.lock().await;
    if last.as_ref().is_none_or(|(since, _)| since.elapsed() >= FRESH) {
        *last = Some((Instant::now(), of_nodes(shared).await));
    }
    own(shared) + last.as_ref().map_or("", |(_, text)| text)
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
        samples.write(&mut out);
    }
    missing.write(&mut out);
    out
}

/// The metrics of the gateway and its hub.
fn own(shared: &Shared) -> String {
    let (mut out, counting) = (String::with_capacity(4_096), &shared.counting);
    let (http, hub) = (counting.counts(), shared.hub.counts());
    for (name, kind, help, value) in [
        ("tidewire_http_connections", "gauge", "Connections that are open.", http.connections),
        ("tidewire_http_requests_open", "gauge", "Requests that are under way, streams included.", http.requests),
        ("tidewire_http_streams", "gauge", "Streams that are under way.", http.streams),
        (
            "tidewire_http_closed_total",
            "counter",
            "Connections that were closed to make room, or stood still.",
            http.closed,
        ),
        ("tidewire_hub_nodes", "gauge", "Nodes that have joined the hub.", hub.nodes),
        ("tidewire_hub_forwarded_total", "counter", "Frames that the hub has passed on.", hub.forwarded),
        ("tidewire_hub_calls_total", "counter", "Calls that the hub has passed on.", hub.calls),
        ("tidewire_hub_published_total", "counter", "Published messages that the hub has passed on.", hub.published),
        ("tidewire_hub_dropped_total", "counter", "Published messages whose receivers had no room.", hub.dropped),
        ("tidewire_hub_refused_total", "counter", "What the hub has refused.", hub.refused),
    ] {
        head(&mut out, name, kind, help);
        line(&mut out, name, "", value);
    }
    let name = "tidewire_http_requests_total";
    head(&mut out, name, "counter", "Requests that were answered.");
    for ((route, status), count) in counting.answers() {
        line(&mut out, name, &format!("{{route=\"{}\",status=\"{status}\"}}", route.name()), count);
    }
    let name = "tidewire_http_request_seconds";
    head(&mut out, name, "histogram", "Time from the head of a request to that of its answer.");
    for (route, times) in counting.times() {
        let (route, mut sum) = (route.name(), 0);
        let ends = CLASSES_MS.iter().map(|ms| (*ms as f64 / 1_000.0).to_string()).chain(["+Inf".to_owned()]);
        for (end, count) in ends.zip(times.classes) {
            sum += count;
            line(&mut out, &format!("{name}_bucket"), &format!("{{route=\"{route}\",le=\"{end}\"}}"), sum);
        }
        let _ = writeln!(out, "{name}_sum{{route=\"{route}\"}} {}", times.sum_us as f64 / 1e6);
        line(&mut out, &format!("{name}_count"), &format!("{{route=\"{route}\"}}"), sum);
    }
    out
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to memory does not fail.
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(out: &mut String, name: &str, labels: &str, value: u64) {
    let _ = writeln!(out, "{name}{labels} {value}");
}
