//! Routing of requests: common checks, and the part of the gateway that answers.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use hyper::body::Incoming;
use hyper::header::{
    ACCEPT_ENCODING, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, CONNECTION, HOST, HeaderMap,
    HeaderValue, ORIGIN, TRANSFER_ENCODING, VARY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::http::request::Parts;
use hyper::{Method, Request, StatusCode, Version};
use tidewire_proto::generated::errors::ErrorCode;

use crate::address::{host_of, is_plain};
use crate::answer::{Answer, compressed, nothing, problem};
use crate::connection::{Connection, Open};
use crate::counts::Route;
use crate::problem::Problem;
use crate::request::{RequestHead, decoded, is_own};
use crate::shared::Shared;
use crate::{calls, commands, documents, mcp, subjects};

/// Answers a request, also after a failure.
pub(crate) async fn answer(
    shared: Arc<Shared>,
    connection: Arc<Connection>,
    request: Request<Incoming>,
) -> Result<Answer, Infallible> {
    let (began, open) = (Instant::now(), Open::new(&shared.counting, &connection));
    let (parts, body) = request.into_parts();
    // A proxy in front may frame a chunked body differently: the connection takes no further
    // request.
    let is_last = parts.version < Version::HTTP_2 && parts.headers.contains_key(TRANSFER_ENCODING);
    let origin = parts.headers.get(ORIGIN).cloned();
    let (method, route) = (parts.method.clone(), route_of(parts.uri.path()));
    let encodings =
        parts.headers.get_all(ACCEPT_ENCODING).iter().map(|value| (ACCEPT_ENCODING, value.clone())).collect();
    let answer = routed(&shared, route, parts, body).await.unwrap_or_else(problem);
    let mut answer = compressed(&encodings, answer);
    let headers = answer.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    share(&shared, origin.as_ref(), headers);
    if is_last {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    shared.counting.answered(&method, route, answer.status().as_u16(), began.elapsed());
    answer.body_mut().of(open);
    Ok(answer)
}

fn route_of(path: &str) -> Route {
    match path.split('/').nth(1).unwrap_or_default() {
        "services" => Route::Services,
        "commands" => Route::Commands,
        "subjects" => Route::Subjects,
        "mcp" => Route::Mcp,
        _ => Route::Documents,
    }
}

async fn routed(shared: &Arc<Shared>, route: Route, parts: Parts, body: Incoming) -> Result<Answer, Problem> {
    let head = checked(shared, parts)?;
    if shared.options.is_exporter && head.path != ["metrics"] {
        return Err(Problem::nothing(format!("{}: nothing is there: there is /metrics", head.shown_path())));
    }
    if let Some(answer) = preflight(&head) {
        return Ok(answer);
    }
    match route {
        Route::Services => calls::answer(shared, &head, body).await,
        Route::Commands => commands::answer(shared, &head, body).await,
        Route::Subjects => subjects::answer(shared, &head, body).await,
        Route::Mcp => mcp::answer(shared, &head, body).await,
        Route::Documents => documents::answer(shared, &head).await,
    }
}

/// Checks that every request must pass.
fn checked(shared: &Shared, mut parts: Parts) -> Result<RequestHead, Problem> {
    let headers = &parts.headers;
    let authority = authority(&parts)?;
    if shared.is_open()
        && !is_plain(&authority)
        && !shared.options.hosts.iter().any(|host| host == "*" || host == host_of(&authority))
    {
        let text =
            format!("Host: {authority:?} is not a name of this gateway: use its address, or allow the name (hosts)");
        return Err(Problem::invalid(text).with_status(StatusCode::MISDIRECTED_REQUEST));
    }
    if let Some(origin) = headers.get(ORIGIN)
        && !is_allowed(shared, origin, &authority)
    {
        let text = format!("Origin: pages of {origin:?} may not call this gateway: allow the origin (cors)");
        return Err(Problem::new(ErrorCode::Unauthorized, text));
    }
    let path = parts.uri.path().split('/').skip(1).map(decoded).collect::<Option<Vec<_>>>();
    let path = path.ok_or_else(|| Problem::invalid("the path is not percent-encoded UTF-8"))?;
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let upgrade = parts.extensions.remove();
    Ok(RequestHead { method: parts.method, path, query, headers: parts.headers, upgrade })
}

/// The one name under which the client reached the gateway.
fn authority(parts: &Parts) -> Result<String, Problem> {
    let mut hosts = parts.headers.get_all(HOST).iter();
    let (host, second) = (hosts.next(), hosts.next());
    let host =
        host.map(|host| host.to_str().map_err(|_| Problem::invalid("Host: it is not ASCII").last())).transpose()?;
    let target = parts.uri.authority().map(|authority| authority.as_str());
    let is_same = host.zip(target).is_none_or(|(host, target)| host.eq_ignore_ascii_case(target));
    match target.or(host) {
        Some(one) if second.is_none() && is_same && !one.contains('@') => Ok(one.to_ascii_lowercase()),
        None if parts.version < Version::HTTP_11 => Ok("localhost".to_owned()),
        _ => Err(Problem::invalid("Host: give one, which is the same as that of the target").last()),
    }
}

fn is_allowed(shared: &Shared, origin: &HeaderValue, authority: &str) -> bool {
    let is_own = is_own(origin, authority);
    let Ok(origin) = origin.to_str() else { return false };
    is_own || shared.options.origins.iter().any(|allowed| allowed == "*" || allowed.eq_ignore_ascii_case(origin))
}

/// Lets the page of an allowed origin read the answer. Others were refused before.
fn share(shared: &Shared, origin: Option<&HeaderValue>, headers: &mut HeaderMap) {
    headers.append(VARY, HeaderValue::from_static("origin, accept-encoding"));
    let allowed = &shared.options.origins;
    let shown = origin.filter(|origin| {
        origin.to_str().is_ok_and(|origin| allowed.iter().any(|one| one == "*" || one.eq_ignore_ascii_case(origin)))
    });
    if let Some(origin) = shown {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        headers
            .insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("location, retry-after, www-authenticate"));
    }
}

/// Answers a browser that asks before it sends a request of a page.
fn preflight(head: &RequestHead) -> Option<Answer> {
    if head.method != Method::OPTIONS || !head.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
        return None;
    }
    let mut answer = nothing(StatusCode::NO_CONTENT);
    let headers = answer.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("*, authorization"));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    Some(answer)
}
