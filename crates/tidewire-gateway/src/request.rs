//! The head of a request, and its body: read whole, within its limits.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::body::{Body as _, Incoming};
use hyper::header::{ALLOW, HeaderMap, HeaderValue};
use hyper::upgrade::OnUpgrade;
use hyper::{Method, StatusCode};
use tidewire_proto::generated::errors::ErrorCode;

use crate::counts::LimitPermit;
use crate::problem::Problem;
use crate::shared::Shared;

/// A request without its body.
pub(crate) struct RequestHead {
    pub method: Method,
    /// The parts of its path, decoded.
    pub path: Vec<String>,
    pub query: String,
    pub headers: HeaderMap,
    /// The connection itself, if the client asks for another protocol.
    pub upgrade: Option<OnUpgrade>,
}

impl RequestHead {
    /// Its path, for messages.
    pub fn shown_path(&self) -> String {
        format!("/{}", self.path.join("/"))
    }
}

/// A body, and its place among those that are held.
pub(crate) struct BufferedBody<'a> {
    pub bytes: Bytes,
    pub _place: Vec<LimitPermit<'a>>,
}

/// Reads a body whole.
pub(crate) async fn read(shared: &Shared, body: Incoming) -> Result<BufferedBody<'_>, Problem> {
    let most = shared.options.limits.body_bytes;
    if body.size_hint().lower() > most as u64 {
        return Err(too_long(most));
    }
    in_time(shared, collected(shared, body, most)).await
}

/// The result of reading a body, which has to end in time.
pub(crate) async fn in_time<T>(
    shared: &Shared,
    reading: impl Future<Output = Result<T, Problem>>,
) -> Result<T, Problem> {
    let read_ms = shared.options.limits.read_ms;
    tokio::time::timeout(Duration::from_millis(read_ms as u64), reading).await.unwrap_or_else(|_| {
        let text = format!("http_read_ms={read_ms}: the body did not come in time");
        Err(Problem::new(ErrorCode::AskTimeout, text).with_status(StatusCode::REQUEST_TIMEOUT).last())
    })
}

async fn collected(shared: &Shared, mut body: Incoming, most: usize) -> Result<BufferedBody<'_>, Problem> {
    let (mut first, mut more, mut place) = (Bytes::new(), BytesMut::new(), Vec::new());
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame = frame.map_err(|_| Problem::invalid("the body did not come whole").last())?;
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + more.len() + data.len() > most {
            return Err(too_long(most));
        }
        place.push(reserve_bytes(shared, data.len())?);
        if first.is_empty() && more.is_empty() {
            first = data;
            continue;
        }
        more.extend_from_slice(&std::mem::take(&mut first));
        more.extend_from_slice(&data);
    }
    let bytes = if more.is_empty() { first } else { more.freeze() };
    Ok(BufferedBody { bytes, _place: place })
}

/// Takes a place for so many bytes of a body among all that are held.
pub(crate) fn reserve_bytes(shared: &Shared, bytes: usize) -> Result<LimitPermit<'_>, Problem> {
    let all = shared.options.limits.bodies_bytes;
    LimitPermit::some(&shared.counting.bodies_bytes, bytes, all).ok_or_else(|| {
        let text = format!("http_bodies_bytes={all}: too many bodies are held: try again later");
        Problem::new(ErrorCode::LimitExceeded, text).last()
    })
}

pub(crate) fn too_long(most: usize) -> Problem {
    Problem::new(ErrorCode::PayloadTooLarge, format!("http_body_bytes={most}: the body is longer: send less")).last()
}

/// Refuses other methods than those that there are.
pub(crate) fn only(head: &RequestHead, methods: &[Method]) -> Result<(), Problem> {
    let is_head = head.method == Method::HEAD && methods.contains(&Method::GET);
    if is_head || methods.contains(&head.method) {
        return Ok(());
    }
    let allowed = methods.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
    let text = format!("{} is not allowed here: use {allowed}", head.method);
    Err(Problem::invalid(text).with_status(StatusCode::METHOD_NOT_ALLOWED).with_header(ALLOW, &allowed))
}

/// True if the origin is that of the gateway's own pages.
pub(crate) fn is_own(origin: &HeaderValue, authority: &str) -> bool {
    let host = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    host.is_some_and(|(_, own)| own.eq_ignore_ascii_case(authority))
}

/// A part of a path without its percent signs.
pub(crate) fn decoded(part: &str) -> Option<String> {
    if !part.contains('%') {
        return Some(part.to_owned());
    }
    let (mut bytes, mut rest) = (Vec::with_capacity(part.len()), part.as_bytes());
    while let Some((first, more)) = rest.split_first() {
        rest = more;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, more) = rest.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = more;
    }
    String::from_utf8(bytes).ok()
}
