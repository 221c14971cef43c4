//! Problem details of errors, as RFC 9457 has them.

use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use serde_json::{Value, json};
use tidewire_node::{Error, MethodInfo};
use tidewire_proto::generated::errors::ErrorCode;

use crate::schema::{Fault, faults};

/// The media type.
pub(crate) const MEDIA_TYPE: &str = "application/problem+json";

/// End of the text for a result with a function, an object or a stream.
const NO_VALUE: &str = "an object as `RemoteObject`";

/// Reason why a request fails.
#[derive(Clone, derive_more::Debug)]
#[debug("Problem({} {code}: {detail})", self.status.as_u16())]
pub(crate) struct Problem {
    pub status: StatusCode,
    code: ErrorCode,
    retryable: bool,
    detail: String,
    /// The type of the error that a handler has raised.
    error: Option<String>,
    /// The faults of the body.
    faults: Vec<Fault>,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The connection can't be used for another request.
    pub is_last: bool,
}

impl Problem {
    /// A problem with the status that the table of errors has for its code.
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        let status = StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let (retryable, detail) = (code.retryable(), detail.into());
        Self { status, code, retryable, detail, error: None, faults: Vec::new(), headers: Vec::new(), is_last: false }
    }

    /// Something in the request is not allowed.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidArgument, detail)
    }

    /// There is nothing at a path.
    pub fn nothing(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::NoSuchTarget, detail)
    }

    pub fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    pub fn with_header(mut self, name: HeaderName, value: &str) -> Self {
        self.headers.extend(HeaderValue::from_str(value).ok().map(|value| (name, value)));
        self
    }

    /// The same with all faults of the arguments, if the method has refused them.
    pub fn explained(mut self, service: &str, method: &MethodInfo, body: &[u8]) -> Self {
        if self.code == ErrorCode::InvalidArgument && self.status == StatusCode::BAD_REQUEST {
            self.faults = faults(&method.parameters, body);
        }
        if !self.faults.is_empty() {
            let lines: Vec<String> = self.faults.iter().map(Fault::line).collect();
            self.detail = format!("{service}.{}: {}", method.name, lines.join("; "));
        }
        self
    }

    /// Refuses arguments that break the schemas of a command.
    pub fn check_arguments(service: &str, command: &MethodInfo, body: &[u8]) -> Result<(), Self> {
        let problem = Self::invalid("").explained(service, command, body);
        if problem.faults.is_empty() { Ok(()) } else { Err(problem) }
    }

    /// The connection is closed behind it.
    pub fn last(mut self) -> Self {
        self.is_last = true;
        self
    }

    /// Description of the problem.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    pub fn retryable(&self) -> bool {
        self.retryable
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let mut body = json!({
            "type": format!("urn:tidewire:error:{}", self.code),
            "title": self.code.meaning(),
            "status": self.status.as_u16(),
            "detail": self.detail,
            "code": self.code.as_str(),
            "retryable": self.retryable,
        });
        if let (Some(error), Some(body)) = (&self.error, body.as_object_mut()) {
            body.insert("error".to_owned(), error.as_str().into());
        }
        if !self.faults.is_empty() {
            body["errors"] = self.faults.iter().map(Fault::json).collect();
        }
        body
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        // The handler's own text, without the type beside it.
        let remote_text = error.remote().map(|remote| remote.message.as_str()).filter(|message| !message.is_empty());
        let text = remote_text.unwrap_or(error.message());
        // A result that cannot be sent is no fault of the request.
        let is_of_result = text.starts_with("the result") || text.ends_with(NO_VALUE);
        let mut problem = Self::new(if is_of_result { ErrorCode::RemoteError } else { error.code() }, text);
        problem.error = error.remote().map(|remote| remote.type_name.clone());
        // Nothing of it has begun: another instance may take it.
        problem.retryable |= error.code() == ErrorCode::NodeStopped;
        problem
    }
}
