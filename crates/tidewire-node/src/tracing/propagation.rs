//! W3C Trace Context of spans: the parent from headers, and the headers of what a span sends.

use std::str::FromStr as _;

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::Headers;
use crate::services::context::TRACE_CONTEXT;

const PARENT: &str = TRACE_CONTEXT[0];
const STATE: &str = TRACE_CONTEXT[1];

/// Makes a span a child of the one that the headers name, if they name one.
pub(super) fn set_parent<'a>(span: &Span, header: impl Fn(&str) -> Option<&'a str>) {
    if let Some(parent) = sender(header) {
        // A span that no layer of OpenTelemetry sees needs no parent.
        let _ = span.set_parent(Context::new().with_remote_span_context(parent));
    }
}

/// Links the span of a consumer to the one that has sent the message.
pub(super) fn link<'a>(span: &Span, header: impl Fn(&str) -> Option<&'a str>) {
    if let Some(sender) = sender(header) {
        span.add_link(sender);
    }
}

/// The ids of the trace of a span and of the span.
pub(super) fn ids(span: &Span) -> Option<(String, String)> {
    let context = span.context();
    let current = context.span().span_context().clone();
    current.is_valid().then(|| (current.trace_id().to_string(), current.span_id().to_string()))
}

/// Headers with the name of a span instead of the one that they had.
pub(super) fn carried(span: &Span, headers: &Headers) -> Option<Vec<(String, String)>> {
    let context = span.context();
    let current = context.span().span_context().clone();
    if !current.is_valid() {
        return None;
    }
    let others = headers.iter().filter(|(name, _)| name != PARENT && name != STATE).cloned();
    let flags = current.trace_flags() & TraceFlags::SAMPLED;
    let parent = format!("00-{}-{}-{flags:02x}", current.trace_id(), current.span_id());
    let state = current.trace_state().header();
    let own = [(PARENT, parent), (STATE, state)].into_iter().filter(|(_, value)| !value.is_empty());
    Some(others.chain(own.map(|(name, value)| (name.to_owned(), value))).collect())
}

/// The span that the headers name.
fn sender<'a>(header: impl Fn(&str) -> Option<&'a str>) -> Option<SpanContext> {
    let mut parts = header(PARENT)?.split('-');
    let (_version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED;
    let state = header(STATE).and_then(|state| TraceState::from_str(state).ok()).unwrap_or_default();
    Some(SpanContext::new(trace, span, flags, true, state)).filter(SpanContext::is_valid)
}
