//! Spans and events for the subscriber of `tracing`, with the feature of that name: a span around
//! each call that is handled, and the log of a node as events.

use std::sync::Arc;

use tracing::field::Empty;

use crate::node::options::Log;
use crate::services::context::Context;
use crate::services::failure::Failure;

/// The span of a call, with the field names of OpenTelemetry's conventions for RPC where they have
/// one.
pub(crate) struct Span(tracing::Span);

impl Span {
    pub fn of(call: &Context) -> Self {
        Self(tracing::info_span!(
            target: "tidewire",
            "call",
            otel.name = format_args!("{}/{}", call.service(), call.method()),
            otel.kind = "server",
            rpc.system.name = "tidewire",
            rpc.method = format_args!("{}/{}", call.service(), call.method()),
            caller = call.node(),
            trace = call.trace(),
            error = Empty,
        ))
    }

    /// Runs a part of the handler in it.
    pub fn run<T>(&self, act: impl FnOnce() -> T) -> T {
        self.0.in_scope(act)
    }

    /// The handler has failed.
    pub fn failed(&self, failure: &Failure) {
        self.0.record("error", tracing::field::debug(failure));
    }
}

/// Where the log of a node goes that has no callback for it.
pub(crate) fn log(node: &str) -> Log {
    let node: Arc<str> = node.into();
    Arc::new(move |line| tracing::warn!(target: "tidewire", node = &*node, "{line}"))
}

/// Where it goes who comes and goes.
pub(crate) fn changes(node: &str) -> Log {
    let node: Arc<str> = node.into();
    Arc::new(move |line| tracing::info!(target: "tidewire", node = &*node, "{line}"))
}
