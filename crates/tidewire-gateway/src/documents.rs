//! Documents of the gateway: its page, the description of its services, its health and its metrics.

use std::sync::Arc;

use hyper::header::{CONTENT_SECURITY_POLICY, HeaderValue};
use hyper::{Method, StatusCode};

use crate::answer::{Answer, Body, answer as of_type, json};
use crate::caller::Caller;
use crate::problem::Problem;
use crate::routes::{RequestHead, only};
use crate::server::Shared;
use crate::{metrics, openapi};

const PAGE: &str = include_str!("page/index.html");
const SCRIPT: &str = include_str!("page/page.js");
const STYLE: &str = include_str!("page/page.css");
/// The page loads nothing from other hosts, and runs no script of a description.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

pub(crate) async fn answer(shared: &Arc<Shared>, head: &RequestHead) -> Result<Answer, Problem> {
    if let Some(("files", parts)) = head.path.split_first().map(|(first, parts)| (first.as_str(), parts)) {
        only(head, &[Method::GET])?;
        return shared
            .files
            .answer(parts)
            .ok_or_else(|| Problem::nothing(format!("{}: no file has this name", head.shown_path())));
    }
    let path: Vec<&str> = head.path.iter().map(String::as_str).collect();
    let is_known = matches!(
        *path,
        ["" | "docs" | "healthz" | "readyz" | "metrics" | "openapi.json"] | ["docs", "" | "page.js" | "page.css"]
    );
    if !is_known {
        return Err(Problem::nothing(format!(
            "{}: nothing is there: there is /services/NAME/METHOD, /subjects/SUBJECT, /openapi.json, /docs, /mcp, /healthz, \
             /readyz and /metrics",
            head.shown_path()
        )));
    }
    only(head, &[Method::GET])?;
    Ok(match *path {
        ["healthz"] => text(StatusCode::OK, "alive\n"),
        ["readyz"] => ready(shared),
        ["" | "docs"] | ["docs", ""] => page("text/html; charset=utf-8", PAGE),
        ["docs", "page.js"] => page("text/javascript; charset=utf-8", SCRIPT),
        ["docs", "page.css"] => page("text/css; charset=utf-8", STYLE),
        ["metrics"] => {
            Caller::of(shared, &head.headers).await?;
            of_type(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", Body::whole(metrics::text(shared)))
        }
        _ => {
            let caller = Caller::of(shared, &head.headers).await?;
            let services = shared.catalog.services().await?;
            json(openapi::description(shared, &caller, &services).to_string())
        }
    })
}

/// Readiness probe: 200 if calls can be made now, else 503.
fn ready(shared: &Shared) -> Answer {
    match shared.node.is_joined() && !*shared.ending.borrow() {
        true => text(StatusCode::OK, "ready\n"),
        false => text(StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
    }
}

fn text(status: StatusCode, text: &'static str) -> Answer {
    of_type(status, "text/plain; charset=utf-8", Body::whole(text))
}

fn page(media_type: &'static str, text: &'static str) -> Answer {
    let mut answer = of_type(StatusCode::OK, media_type, Body::whole(text));
    answer.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    answer
}
