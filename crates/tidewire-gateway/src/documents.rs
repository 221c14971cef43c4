//! Documents of the gateway: its page, the description of its services, the operator console, its
//! health and its metrics.

use std::sync::Arc;

use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_SECURITY_POLICY, HOST, HeaderValue, ORIGIN, X_FRAME_OPTIONS};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto::upgrade::downcast;
use serde_json::json as object;
use tidewire_link::{Access, websocket_answer};
use tidewire_proto::generated::errors::ErrorCode;
use tokio::net::TcpStream;

use crate::answer::{Answer, Body, answer as of_type, json, nothing};
use crate::caller::Caller;
use crate::problem::Problem;
use crate::request::{RequestHead, is_own, only};
use crate::shared::Shared;
use crate::{metrics, openapi};

const PAGE: &str = include_str!("page/index.html");
const SCRIPT: &str = include_str!("page/page.js");
const STYLE: &str = include_str!("page/page.css");
/// The page loads nothing from other hosts, and runs no script of a description.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(crate) async fn answer(shared: &Arc<Shared>, head: &RequestHead) -> Result<Answer, Problem> {
    if let Some(("files", parts)) = head.path.split_first().map(|(first, parts)| (first.as_str(), parts)) {
        only(head, &[Method::GET])?;
        return shared.files.answer("/files/", parts).ok_or_else(|| no_file(head));
    }
    if head.path.first().is_some_and(|first| first == "console") && shared.options.console.is_some() {
        only(head, &[Method::GET])?;
        return console(shared, head).await.map(protected);
    }
    let path: Vec<&str> = head.path.iter().map(String::as_str).collect();
    let is_known = matches!(
        *path,
        ["" | "docs" | "healthz" | "readyz" | "metrics" | "openapi.json"] | ["docs", "" | "page.js" | "page.css"]
    );
    if !is_known {
        return Err(Problem::nothing(format!(
            "{}: nothing is there: there is /services/NAME/METHOD, /commands/NAME/COMMAND, /subjects/SUBJECT, /openapi.json, /docs, /mcp, /healthz, \
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
            let text = metrics::text(shared, &head.query).await?;
            let accept = head.headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
            match accept.into_iter().any(|accept| accept.contains("application/openmetrics-text")) {
                true => of_type(StatusCode::OK, OPEN_METRICS, Body::whole(metrics::open_metrics(&text))),
                false => of_type(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", Body::whole(text)),
            }
        }
        _ => {
            let caller = Caller::of(shared, &head.headers).await?;
            let services = shared.catalog.services().await?;
            json(openapi::description(shared, &caller, &services).to_string())
        }
    })
}

/// The operator console, for a path below `/console`.
async fn console(shared: &Arc<Shared>, head: &RequestHead) -> Result<Answer, Problem> {
    let looks = shared.is_open() && shared.options.console.as_ref().is_none_or(|(_, acts)| !acts);
    match head.path.get(1).map(String::as_str) {
        Some("link") => console_link(shared, head, looks),
        Some("hub.json") => {
            // The page asks a second time, with its token.
            let grant = match head.headers.contains_key(AUTHORIZATION) && !shared.is_open() {
                true => Caller::of(shared, &head.headers).await?.grant,
                false => looks.then_some(Access::VIEWER),
            };
            let rights = object!({ "open": shared.is_open(), "calls": shared.access.calls(grant) });
            Ok(json(rights.to_string()))
        }
        _ => shared.console.answer("/console/", &head.path[1..]).ok_or_else(|| no_file(head)),
    }
}

/// Opens a WebSocket, and hands the connection to the hub. Pages of other origins are refused, also
/// those that may call services.
fn console_link(shared: &Arc<Shared>, head: &RequestHead, looks: bool) -> Result<Answer, Problem> {
    let host = head.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if head.headers.get(ORIGIN).is_some_and(|origin| !is_own(origin, host)) {
        return Err(Problem::new(ErrorCode::Unauthorized, "Origin: only the console itself joins the hub here"));
    }
    let mut request = Request::new(());
    request.headers_mut().clone_from(&head.headers);
    let opened = websocket_answer(&request).map_err(|(status, text)| Problem::invalid(text).with_status(status))?;
    let Some(upgrade) = head.upgrade.clone() else {
        return Err(
            Problem::invalid("the link of the console needs HTTP/1.1").with_status(StatusCode::UPGRADE_REQUIRED)
        );
    };
    let hub = shared.hub.clone();
    tokio::spawn(async move {
        // The page connects again after any failure.
        let Ok(upgraded) = upgrade.await else { return };
        let Ok(parts) = downcast::<TokioIo<TcpStream>>(upgraded) else { return };
        if let Ok(stream) = parts.io.into_inner().into_std() {
            hub.join_websocket(stream, parts.read_buf.to_vec(), looks);
        }
    });
    let mut answer = nothing(StatusCode::SWITCHING_PROTOCOLS);
    answer.headers_mut().extend(opened.headers().iter().map(|(name, value)| (name.clone(), value.clone())));
    Ok(answer)
}

/// Readiness probe: 200 if calls can be made now, else 503 with the reasons.
fn ready(shared: &Shared) -> Answer {
    let reasons = [
        (!shared.node.is_joined(), "the gateway has no link to its hub"),
        (*shared.ending.borrow(), "the gateway is stopping"),
    ];
    let reasons: Vec<_> = reasons.iter().filter(|(is_so, _)| *is_so).map(|(_, reason)| reason).collect();
    let mut answer = json(object!({ "ready": reasons.is_empty(), "reasons": reasons }).to_string());
    if !reasons.is_empty() {
        *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    answer
}

fn text(status: StatusCode, text: &'static str) -> Answer {
    of_type(status, "text/plain; charset=utf-8", Body::whole(text))
}

fn page(media_type: &'static str, text: &'static str) -> Answer {
    protected(of_type(StatusCode::OK, media_type, Body::whole(text)))
}

fn protected(mut answer: Answer) -> Answer {
    answer.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    answer.headers_mut().insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    answer
}

fn no_file(head: &RequestHead) -> Problem {
    Problem::nothing(format!("{}: no file has this name", head.shown_path()))
}
