//! Spans and events for the subscriber of `tracing`, with the feature of that name: spans of calls,
//! messages and events, and the log of a node as events.
//!
//! The names of fields are those of OpenTelemetry's conventions for RPC and messaging. With the
//! feature `opentelemetry`, the header `traceparent` gives a span its parent, and names the span of
//! an outgoing call or message.

#[cfg(feature = "opentelemetry")]
mod propagation;

use tracing::field::Empty;

use crate::services::context::Context;

/// Headers of a message, by name.
pub(crate) type Headers = [(String, String)];

/// A span of the subscriber.
pub(crate) struct TracedSpan(tracing::Span);

/// A span with the fields of its end, which are recorded later.
macro_rules! span {
    ($($field:tt)*) => {
        tracing::info_span!(
            target: "tidewire",
            $($field)*,
            otel.status_code = Empty,
            otel.status_description = Empty,
            error.type = Empty,
        )
    };
}

impl TracedSpan {
    pub fn none() -> Self {
        Self(tracing::Span::none())
    }

    /// The span of a call that this node handles; `title` is `service/method`.
    pub fn server(context: &Context, title: &str, instance: &str) -> Self {
        let span = span!(
            parent: None, "call",
            otel.name = title,
            otel.kind = "server",
            rpc.system.name = "tidewire",
            rpc.method = title,
            tidewire.service.instance = instance,
            caller = context.node(),
            trace = context.trace()
        );
        Self(span).child_of(|name| context.headers().get(name).map(String::as_str))
    }

    /// The span of a call that this node makes.
    pub fn client(title: &str, headers: &Headers) -> Self {
        let span =
            span!("request", otel.name = title, otel.kind = "client", rpc.system.name = "tidewire", rpc.method = title);
        Self(span).within(headers)
    }

    /// The span of a message that this node publishes, or stores.
    pub fn producer(subject: &str, headers: &Headers) -> Self {
        let span = span!(
            "publish",
            otel.name = format_args!("publish {subject}"),
            otel.kind = "producer",
            messaging.system = "tidewire",
            messaging.destination.name = subject,
            messaging.operation.name = "publish",
            messaging.operation.type = "send"
        );
        Self(span).within(headers)
    }

    /// The span of a message or event that a handler consumes.
    pub fn consumer<'a>(subject: &str, title: &str, header: impl Fn(&str) -> Option<&'a str>) -> Self {
        let span = span!(
            parent: None, "process",
            otel.name = format_args!("process {subject}"),
            otel.kind = "consumer",
            messaging.system = "tidewire",
            messaging.destination.name = subject,
            messaging.operation.name = "process",
            messaging.operation.type = "process",
            handler = title
        );
        let span = Self(span).child_of(&header);
        #[cfg(feature = "opentelemetry")]
        propagation::link(&span.0, header);
        span
    }

    /// Runs a part of the handler in it.
    pub fn run<T>(&self, act: impl FnOnce() -> T) -> T {
        self.0.in_scope(act)
    }

    /// The ids of its trace and of itself, if a layer of OpenTelemetry sees it.
    pub fn ids(&self) -> Option<(String, String)> {
        #[cfg(feature = "opentelemetry")]
        return propagation::ids(&self.0);
        #[cfg(not(feature = "opentelemetry"))]
        None
    }

    /// Headers of what is sent within this span. None: those that were given.
    pub fn carried(&self, headers: &Headers) -> Option<Vec<(String, String)>> {
        #[cfg(feature = "opentelemetry")]
        return propagation::carried(&self.0, headers);
        #[cfg(not(feature = "opentelemetry"))]
        {
            let _ = headers;
            None
        }
    }

    /// Records a failure: the type of the error and its text.
    pub fn failed(&self, kind: &str, text: &str) {
        self.0.record("error.type", kind);
        self.0.record("otel.status_code", "ERROR");
        self.0.record("otel.status_description", text);
    }

    /// A part of the span that the headers name, where no span of the program is current.
    fn within(self, headers: &Headers) -> Self {
        if !tracing::Span::current().is_none() {
            return self;
        }
        self.child_of(|name| headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str()))
    }

    fn child_of<'a>(self, header: impl Fn(&str) -> Option<&'a str>) -> Self {
        #[cfg(feature = "opentelemetry")]
        propagation::set_parent(&self.0, header);
        #[cfg(not(feature = "opentelemetry"))]
        let _ = header;
        self
    }
}

/// Where the log of a node goes that has no callback for it.
pub(crate) fn log(node: &str) -> impl Fn(&str) + use<> {
    let node = node.to_owned();
    move |line| tracing::warn!(target: "tidewire", node, "{line}")
}

/// Where it goes who comes and goes.
pub(crate) fn changes(node: &str) -> impl Fn(&str) + use<> {
    let node = node.to_owned();
    move |line| tracing::info!(target: "tidewire", node, "{line}")
}
