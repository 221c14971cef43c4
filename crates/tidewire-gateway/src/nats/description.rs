//! Descriptions of instances: the replies to `$SRV.PING`, `$SRV.INFO` and `$SRV.STATS`, as ADR-32
//! of NATS defines them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tidewire_node::{MethodInfo, ServiceInfo};
use tidewire_proto::subject::grammar::service_subject;

/// The group in which the instances of a service share requests: the default of the protocol.
pub(super) const QUEUE: &str = "q";
/// Verbs of the protocol of NATS services.
pub(super) const VERBS: [&str; 3] = ["PING", "INFO", "STATS"];
/// The version of an instance without one: the protocol demands a version.
const NO_VERSION: &str = "0.0.0";

/// Statistics of the requests to one endpoint.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    pub requests: u64,
    pub errors: u64,
    pub last_error: String,
    pub time: Duration,
}

/// The answer to one of the questions; None: there is no such question.
pub(super) fn answer(
    verb: &str,
    info: &ServiceInfo,
    id: &str,
    started: &str,
    counts: impl FnOnce() -> BTreeMap<String, Counted>,
) -> Option<Value> {
    let detail = info.details.first().cloned().unwrap_or_default();
    let mut answer = json!({
        "type": format!("io.nats.micro.v1.{}_response", verb.to_ascii_lowercase()),
        "name": info.name,
        "id": id,
        "version": if detail.version.is_empty() { NO_VERSION } else { &detail.version },
        "metadata": detail.metadata,
    });
    let endpoints: Vec<Value> = match verb {
        "PING" => return Some(answer),
        "INFO" => {
            answer["description"] = info.description.as_str().into();
            info.methods.iter().map(|method| endpoint(info, method)).collect()
        }
        "STATS" => {
            answer["started"] = started.into();
            let counts = counts();
            let of = |method: &MethodInfo| counts.get(&method.name).cloned().unwrap_or_default();
            info.methods.iter().map(|method| counted(info, method, &of(method))).collect()
        }
        _ => return None,
    };
    answer["endpoints"] = endpoints.into();
    Some(answer)
}

/// An endpoint, with the description of its method as metadata texts.
fn endpoint(info: &ServiceInfo, method: &MethodInfo) -> Value {
    let mut metadata = Map::new();
    if !method.description.is_empty() {
        metadata.insert("description".to_owned(), method.description.as_str().into());
    }
    for (name, schema) in [("parameters", &method.parameters), ("result", &method.result)] {
        if schema.as_object().is_some_and(|schema| !schema.is_empty()) {
            metadata.insert(name.to_owned(), schema.to_string().into());
        }
    }
    if method.stream {
        metadata.insert("stream".to_owned(), "true".into());
    }
    json!({
        "name": method.name,
        "subject": service_subject(&info.name, &method.name),
        "queue_group": QUEUE,
        "metadata": metadata,
    })
}

fn counted(info: &ServiceInfo, method: &MethodInfo, counts: &Counted) -> Value {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let time = nanos(counts.time);
    json!({
        "name": method.name,
        "subject": service_subject(&info.name, &method.name),
        "queue_group": QUEUE,
        "num_requests": counts.requests,
        "num_errors": counts.errors,
        "last_error": counts.last_error,
        "processing_time": time,
        "average_processing_time": time / counts.requests.max(1),
    })
}
