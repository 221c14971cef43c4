//! Span and duration of an outgoing call, from its first attempt to its end.

use std::time::Instant;

use tidewire_engine::raw::clock;
use tidewire_proto::generated::errors::ErrorCode;

use crate::error::Error;
use crate::names::is_internal;
use crate::node::core::Core;
use crate::span::Span;
use crate::statistics::call_durations::CLIENT;
use crate::tracing::Headers;

/// The span of a call, and the time at which it began.
pub(crate) struct CallRecord {
    pub span: Span,
    /// `service/method`; empty if nobody looks at it.
    title: String,
    begun: Option<Instant>,
    has_ended: bool,
}

impl CallRecord {
    /// The record of a call that is neither measured nor traced.
    pub fn none() -> Self {
        Self { span: Span::none(), title: String::new(), begun: None, has_ended: true }
    }

    /// The record of a call of a service.
    pub fn of_service(core: &Core, service: &str, method: &str, headers: &Headers) -> Self {
        let begun = core.runner.durations.as_ref().map(|_| clock::now());
        // A node that stores spans also measures times.
        if is_internal(service) || begun.is_none() && !cfg!(feature = "tracing") {
            return Self::none();
        }
        let title = format!("{service}/{method}");
        Self { span: Span::client(&core.runner, &title, headers), title, begun, has_ended: false }
    }

    /// The record of a request on a subject.
    pub fn of_subject(core: &Core, subject: &str, headers: &Headers) -> Self {
        Self { span: Span::client(&core.runner, subject, headers), has_ended: false, ..Self::none() }
    }

    /// The call has ended, with its error if it has failed. A second time does nothing.
    pub fn end(&mut self, core: Option<&Core>, error: Option<&Error>) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        let kind = error.map_or("", Error::kind);
        if let Some(error) = error {
            self.span.failed(kind, error.message());
        }
        if let (Some(begun), Some(durations)) = (self.begun, core.and_then(|core| core.runner.durations.as_ref())) {
            durations.record(CLIENT, &self.title, kind, clock::since(begun));
        }
        self.span = Span::none();
    }

    /// Its caller waits no longer.
    pub fn cancel(&mut self, core: Option<&Core>) {
        if !self.has_ended {
            self.end(core, Some(&Error::new(ErrorCode::CallCancelled, "its caller waits no longer")));
        }
    }
}
