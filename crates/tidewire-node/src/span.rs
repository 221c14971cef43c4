//! Spans of calls, messages and events: for subscribers of `tracing`, and stored for the console.

use std::cell::RefCell;
use std::sync::Arc;

use crate::names::{is_internal, random_hex};
use crate::node::runner::Runner;
use crate::services::context::{Context, TRACE_CONTEXT};
use crate::statistics::span_store::{Sender, StoredSpan};
use crate::tracing::{Headers, TracedSpan};

/// The header that names the span of a sender.
const PARENT: &str = TRACE_CONTEXT[0];

thread_local! {
    /// The stored span whose code runs on this thread.
    static CURRENT: RefCell<Option<Arc<StoredSpan>>> = const { RefCell::new(None) };
}

/// The span of a call, a message or an event; the services of this project have none.
pub(crate) struct Span {
    traced: TracedSpan,
    stored: Option<Arc<StoredSpan>>,
}

impl Span {
    pub fn none() -> Self {
        Self { traced: TracedSpan::none(), stored: None }
    }

    /// The span of a call that this node handles; `title` is `service/method`.
    pub fn server(runner: &Runner, context: &Context, title: &str, instance: &str) -> Self {
        if is_internal(context.service()) {
            return Self::none();
        }
        let header = |name: &str| context.headers().get(name).map(String::as_str);
        Self::received(runner, TracedSpan::server(context, title, instance), "server", title, instance, header)
    }

    /// The span of a call that this node makes.
    pub fn client(runner: &Runner, title: &str, headers: &Headers) -> Self {
        Self::sent(runner, TracedSpan::client(title, headers), "client", title, headers)
    }

    /// The span of a message that this node publishes, or stores.
    pub fn producer(runner: Option<&Runner>, subject: &str, headers: &Headers) -> Self {
        let traced = TracedSpan::producer(subject, headers);
        let Some(runner) = runner.filter(|runner| runner.spans.is_some()) else {
            return Self { traced, stored: None };
        };
        Self::sent(runner, traced, "producer", &format!("publish {subject}"), headers)
    }

    /// The span of a message or event that a handler consumes.
    pub fn consumer<'a>(
        runner: &Runner,
        subject: &str,
        handler: &str,
        header: impl Fn(&str) -> Option<&'a str> + Copy,
    ) -> Self {
        let traced = TracedSpan::consumer(subject, handler, header);
        if runner.spans.is_none() {
            return Self { traced, stored: None };
        }
        Self::received(runner, traced, "consumer", &format!("process {subject}"), handler, header)
    }

    fn received<'a>(
        runner: &Runner,
        traced: TracedSpan,
        kind: &'static str,
        title: &str,
        instance: &str,
        header: impl Fn(&str) -> Option<&'a str>,
    ) -> Self {
        let stored = runner.spans.as_ref().map(|store| {
            let sender = header(PARENT).and_then(Sender::named);
            store.add(ids(&traced, sender.as_ref()), sender.as_ref(), kind, title, instance)
        });
        Self { traced, stored }
    }

    fn sent(runner: &Runner, traced: TracedSpan, kind: &'static str, title: &str, headers: &Headers) -> Self {
        let stored = runner.spans.as_ref().map(|store| {
            let header = || headers.iter().find(|(name, _)| name == PARENT);
            let sender = current().or_else(|| header().and_then(|(_, value)| Sender::named(value)));
            store.add(ids(&traced, sender.as_ref()), sender.as_ref(), kind, title, "")
        });
        Self { traced, stored }
    }

    /// Runs a part of the handler in it.
    pub fn run<T>(&self, act: impl FnOnce() -> T) -> T {
        struct CurrentGuard(Option<Arc<StoredSpan>>);

        impl Drop for CurrentGuard {
            fn drop(&mut self) {
                let inner = CURRENT.replace(self.0.take());
                drop(inner);
            }
        }

        let _outer = self.stored.as_ref().map(|stored| CurrentGuard(CURRENT.replace(Some(Arc::clone(stored)))));
        self.traced.run(act)
    }

    /// Headers of what is sent within this span. None: those that were given.
    pub fn carried(&self, headers: &Headers) -> Option<Vec<(String, String)>> {
        if let Some(carried) = self.traced.carried(headers) {
            return Some(carried);
        }
        let span = self.stored.as_ref()?;
        let others = headers.iter().filter(|(name, _)| name != PARENT).cloned();
        let own = (PARENT.to_owned(), format!("00-{}-{}-{}", span.trace, span.id, span.flags));
        Some(others.chain([own]).collect())
    }

    /// Records a failure: the type of the error and its text.
    pub fn failed(&self, kind: &str, text: &str) {
        self.traced.failed(kind, text);
        if let Some(stored) = &self.stored {
            stored.fail(kind, text);
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(stored) = &self.stored {
            stored.end();
        }
    }
}

/// The ids of a new span: those that subscribers see, if there are any.
fn ids(traced: &TracedSpan, sender: Option<&Sender>) -> (String, String) {
    let own = || (sender.map_or_else(|| random_hex(16), |sender| sender.trace.clone()), random_hex(8));
    traced.ids().unwrap_or_else(own)
}

/// The stored span whose code runs on this thread.
fn current() -> Option<Sender> {
    CURRENT.with_borrow(|span| {
        let span = span.as_ref()?;
        Some(Sender { trace: span.trace.clone(), id: span.id.clone(), flags: span.flags.clone() })
    })
}
