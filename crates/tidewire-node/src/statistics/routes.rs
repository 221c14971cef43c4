//! Rows of the routes of a caller: what its policy knows of each method at each instance.

use serde_json::{Value, json};
use tidewire_core::rpc::balancer::Balancer;

/// The rows of one service at a time on the clock of its balancer.
pub fn route_rows<T>(service: &str, balancer: &Balancer<T>, now_us: u64) -> Vec<Value> {
    let rows = balancer.routes(now_us).into_iter().map(|row| {
        let estimate = &row.estimate;
        let (ago_us, reason) = row.last.map_or((None, ""), |(ago_us, reason)| (Some(ago_us), reason.name()));
        let state = match estimate {
            one if one.ejected_us > 0 => "ejected",
            one if one.is_starting => "starting",
            _ => "healthy",
        };
        json!({
            "name": format!("{service}.{}", row.method),
            "service": service,
            "method": *row.method,
            "instance": *estimate.id,
            "state": state,
            "expected_us": estimate.expected_us,
            // JSON has no infinite numbers: without samples the error is unknown.
            "error": estimate.error.is_finite().then_some(estimate.error),
            "handled": estimate.samples,
            "outstanding": estimate.outstanding,
            "failures": estimate.failures,
            "ejected_us": estimate.ejected_us,
            "reason": reason,
            "chosen_ago_us": ago_us,
        })
    });
    rows.collect()
}
