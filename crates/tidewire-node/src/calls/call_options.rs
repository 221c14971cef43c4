//! Options of calls: timeout, deadline and headers.

use std::time::{Duration, Instant};

use tidewire_engine::raw::clock;
use tidewire_proto::generated::limits;
use tidewire_proto::wire::FieldsWriter;

use crate::calls::priority::{Choice, Priority};
use crate::error::Error;
use crate::services::context::{Context, ORIGIN, PUBLIC, TRACE, USER};

/// Options of a call: all except its target and arguments.
#[derive(Clone, Default)]
pub(crate) struct CallOptions {
    timeout: Option<Duration>,
    until: Option<Instant>,
    pub priority: Priority,
    pub headers: Vec<(String, String)>,
    pub instance: Option<String>,
    pub choice: Choice,
    pub cost: f64,
    pub idempotent: bool,
    pub problem: Option<Error>,
}

impl CallOptions {
    /// Default options, with the error of an invalid name.
    pub fn checked(name: Result<(), Error>) -> Self {
        Self { problem: name.err(), ..Self::default() }
    }

    pub fn with_timeout(&mut self, timeout: Duration) {
        self.note(check_timeout(timeout));
        self.timeout = Some(timeout);
    }

    pub fn with_outer(&mut self, context: &Context) {
        self.until = context.deadline();
        let fields = context.trace_context().chain([(TRACE, context.trace())]);
        for (name, value) in fields {
            if !self.headers.iter().any(|(header, _)| header == name) {
                self.headers.push((name.to_owned(), value.to_owned()));
            }
        }
    }

    pub fn with_caller(&mut self, user: &str, trace: Option<&str>) {
        self.headers.push((ORIGIN.to_owned(), PUBLIC.to_owned()));
        for (name, value) in [(USER, Some(user).filter(|user| !user.is_empty())), (TRACE, trace)] {
            self.headers.extend(value.map(|value| (name.to_owned(), value.to_owned())));
        }
    }

    pub fn with_header(&mut self, name: String, value: String) {
        if name.starts_with("tw-") {
            let text = format!("header: {name:?} is not allowed: names that begin with tw- belong to the protocol");
            self.note(Err(Error::invalid(text)));
        }
        self.headers.push((name, value));
    }

    /// Deadline of a call, with `timeout` as the default.
    pub fn deadline(&self, timeout: Option<Duration>) -> Option<Instant> {
        let own = self.timeout.or(timeout).map(|timeout| clock::now() + timeout);
        match (own, self.until) {
            (Some(own), Some(outer)) => Some(own.min(outer)),
            (own, outer) => own.or(outer),
        }
    }

    /// Stores the first error, for the call to return.
    pub fn note(&mut self, checked: Result<(), Error>) {
        if let (None, Err(problem)) = (&self.problem, checked) {
            self.problem = Some(problem);
        }
    }
}

/// Default timeout of a call.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_millis(limits::ASK_TIMEOUT_MS.default);

pub(crate) fn check_timeout(timeout: Duration) -> Result<(), Error> {
    let max = Duration::from_millis(limits::ASK_TIMEOUT_MS.max);
    if timeout.is_zero() || timeout > max {
        let text = format!("timeout: {timeout:?} is not allowed: give more than 0 and at most {} s", max.as_secs());
        return Err(Error::invalid(text));
    }
    Ok(())
}

/// Headers as the fields of a frame.
pub(crate) fn fields(title: &str, headers: &[(String, String)]) -> Result<Vec<u8>, Error> {
    let mut fields = Vec::new();
    let mut writer = FieldsWriter::new(&mut fields);
    for (name, value) in headers {
        let added = writer.add(name, value.as_bytes());
        added.map_err(|wrong| Error::new(wrong.code(), format!("{title}: header: {name:?}: {wrong}")))?;
    }
    Ok(fields)
}
