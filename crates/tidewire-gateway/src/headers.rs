//! Headers of a request: media types, timeout, trace context and the headers passed to the handler.

use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use tidewire_node::TRACE_CONTEXT;
use tidewire_proto::generated::limits;

use crate::problem::Problem;

/// Seconds that a call may take.
const TIMEOUT: &str = "tidewire-timeout";
/// Prefix of the headers that the handler gets.
const PASSED: &str = "tidewire-header-";

/// How a stream is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamForm {
    /// Server-sent events.
    Events,
    /// Server-sent events with data alone, for MCP.
    Messages,
    /// JSON, one value a line.
    Lines,
}

/// The media type of a header, in small letters and without parameters.
pub(crate) fn media_type(value: &str) -> String {
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The boundary of a body that is a form.
pub(crate) fn boundary(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let header = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if media_type(header) != "multipart/form-data" {
        return Ok(None);
    }
    check_encoding(headers)?;
    multer::parse_boundary(header).map(Some).map_err(|error| refused(format!("Content-Type: {header:?}: {error}")))
}

fn refused(text: String) -> Problem {
    Problem::invalid(text).with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE)
}

fn check_encoding(headers: &HeaderMap) -> Result<(), Problem> {
    let encoded = headers.get(CONTENT_ENCODING).filter(|encoding| *encoding != "identity");
    let text = |encoding| format!("Content-Encoding: {encoding:?} is not taken: send the body as it is");
    encoded.map_or(Ok(()), |encoding| Err(refused(text(encoding))))
}

/// Refuses a body that is not JSON.
pub(crate) fn check_json(headers: &HeaderMap, body: &[u8]) -> Result<(), Problem> {
    check_encoding(headers)?;
    let mut all = headers.get_all(CONTENT_TYPE).iter();
    let (first, second) = (all.next(), all.next());
    let header = first.and_then(|value| value.to_str().ok()).filter(|_| second.is_none());
    if first.is_none() && body.is_empty() {
        return Ok(());
    }
    let is_json = header.map(media_type).is_some_and(|media| {
        media == "application/json" || (media.starts_with("application/") && media.ends_with("+json"))
    });
    let charset = header.and_then(|value| value.split(';').skip(1).find_map(|one| one.trim().strip_prefix("charset=")));
    let is_utf8 = charset.is_none_or(|charset| charset.trim_matches('"').eq_ignore_ascii_case("utf-8"));
    if is_json && is_utf8 {
        return Ok(());
    }
    Err(refused(format!("Content-Type: {:?} is not taken: send application/json in UTF-8", header.unwrap_or_default())))
}

/// Form of a stream that the client accepts.
pub(crate) fn stream_form(headers: &HeaderMap) -> Result<StreamForm, Problem> {
    let mut best: Option<(u32, StreamForm)> = None;
    let mut has_any = false;
    let all = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    for one in all.flat_map(|value| value.split(',')).filter(|one| !one.trim().is_empty()) {
        has_any = true;
        let form = match media_type(one).as_str() {
            "text/event-stream" | "text/*" => StreamForm::Events,
            "application/x-ndjson" | "application/jsonl" | "application/*" | "*/*" => StreamForm::Lines,
            _ => continue,
        };
        let weight = quality(one);
        if weight > 0 && best.is_none_or(|(most, _)| weight > most) {
            best = Some((weight, form));
        }
    }
    match best {
        Some((_, form)) => Ok(form),
        None if !has_any => Ok(StreamForm::Lines),
        None => {
            let text = "Accept: the answer is a stream: take text/event-stream or application/x-ndjson";
            Err(Problem::invalid(text).with_status(StatusCode::NOT_ACCEPTABLE))
        }
    }
}

/// The weight of a media type, in thousandths.
pub(crate) fn quality(one: &str) -> u32 {
    let quality = one.split(';').skip(1).find_map(|part| part.trim().strip_prefix("q="));
    quality
        .and_then(|weight| weight.parse::<f32>().ok())
        .map_or(1_000, |weight| (weight.clamp(0.0, 1.0) * 1_000.0) as u32)
}

/// Timeout of a call, if the client sets one.
pub(crate) fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, Problem> {
    let Some(header) = headers.get(TIMEOUT) else { return Ok(None) };
    let max = limits::ASK_TIMEOUT_MS.max / 1_000;
    let seconds = header.to_str().ok().and_then(|text| text.parse::<f64>().ok());
    let time = seconds.filter(|seconds| *seconds > 0.0).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let time = time.filter(|time| !time.is_zero() && time.as_secs_f64() <= max as f64);
    let wrong = || {
        Problem::invalid(format!(
            "Tidewire-Timeout: {header:?} is not allowed: give seconds, more than 0 and at most {max}"
        ))
    };
    time.map(Some).ok_or_else(wrong)
}

/// Headers for the handler, without their prefix, and those of the trace context.
pub(crate) fn passed(headers: &HeaderMap) -> Result<Vec<(String, String)>, Problem> {
    let mut found = Vec::new();
    for (name, value) in headers {
        let Some(name) = name.as_str().strip_prefix(PASSED) else { continue };
        let text = value.to_str().map_err(|_| Problem::invalid(format!("Tidewire-Header-{name}: give ASCII")))?;
        if name.is_empty() || name.starts_with("tw-") {
            let text = format!("Tidewire-Header-{name}: give a name behind it, which does not begin with tw-");
            return Err(Problem::invalid(text));
        }
        found.push((name.to_owned(), text.to_owned()));
    }
    let most = limits::CALL_HEADERS.default as usize;
    if found.len() > most {
        return Err(Problem::invalid(format!("Tidewire-Header: {} are too many: call_headers={most}", found.len())));
    }
    // A context without a trace, or with a header that is no text, is none.
    if trace(headers).is_some() {
        let texts = TRACE_CONTEXT.iter().filter_map(|name| Some((*name, headers.get(*name)?.to_str().ok()?)));
        found.extend(texts.map(|(name, text)| (name.to_owned(), text.to_owned())));
    }
    Ok(found)
}

/// The trace that a request is a part of: 32 hexadecimal digits.
pub(crate) fn trace(headers: &HeaderMap) -> Option<&str> {
    let parts: Vec<&str> =
        headers.get(TRACE_CONTEXT[0]).and_then(|value: &HeaderValue| value.to_str().ok())?.split('-').collect();
    let [_, trace, _, _] = *parts else { return None };
    let is_trace = trace.len() == 32 && trace.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    (is_trace && trace.bytes().any(|digit| digit != b'0')).then_some(trace)
}

#[cfg(test)]
mod tests;
