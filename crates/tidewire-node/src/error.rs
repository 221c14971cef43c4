//! Errors of calls, nodes and streams: a code, a text and the exception of a remote handler.

use std::time::{Duration, Instant};

use serde::Deserialize;
use tidewire_link::{AddressError, JoinError, ListenError, Refused};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::WireError;

use crate::values::decode_error::{DecodeError, Kind};
use crate::values::value::Value;

/// The last sign of life of a call: when it came, and for how many milliseconds the callee was
/// blocked.
pub type Alive = (Instant, u32);

/// Error of this crate: a code of `spec/errors.toml`, and a text that names the field, the value
/// and the fix.
#[derive(Clone, derive_more::Debug, derive_more::Display)]
#[debug("{}({:?})", self.0.code.name(), self.0.message)]
#[display("{}", self.0.message)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    code: ErrorCode,
    message: String,
    remote: Option<Remote>,
    blocked: Option<Duration>,
}

/// An error of a handler elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Remote {
    /// Its type: `module:Name`. Built-in types of Python have the module `builtins`.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Its text.
    pub message: String,
    /// Where it was raised, as text; empty if that is not known.
    #[serde(default)]
    pub traceback: String,
    /// Arguments of the exception, if they could be sent.
    #[serde(default)]
    pub args: Value,
}

impl Error {
    /// An error of this code, whose text says what failed, why, and what to do.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self(Box::new(Inner { code, message: message.into(), remote: None, blocked: None }))
    }

    /// An argument that is not allowed.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidArgument, message)
    }

    /// A value that can't be written or read.
    pub(crate) fn of_value(name: &str, wrong: DecodeError) -> Self {
        let code = match wrong.kind() {
            Kind::Malformed => ErrorCode::WireError,
            Kind::Unfit => ErrorCode::InvalidArgument,
            Kind::TooLong => ErrorCode::PayloadTooLarge,
            Kind::Coded(code) => code,
        };
        let text = wrong.to_string();
        let between = match (wrong.has_path(), text.starts_with('[')) {
            (_, true) => "",
            (true, false) => ".",
            (false, false) => ": ",
        };
        Self::new(code, format!("{name}{between}{text}"))
    }

    /// The error of a handler elsewhere. An error of this project keeps its code, in any language.
    pub(crate) fn remote_of(title: &str, remote: Remote) -> Self {
        let known = remote.type_name.split_once(':').filter(|(module, _)| module.starts_with("tidewire"));
        let code = known.and_then(|(_, name)| code_named(name)).unwrap_or(ErrorCode::RemoteError);
        let message = format!("{title}: {}: {}", remote.type_name, remote.message);
        Self(Box::new(Inner { code, message, remote: Some(remote), blocked: None }))
    }

    /// Timeout of a call. The last sign of life tells the state of its callee.
    pub(crate) fn late(title: &str, alive: Option<Alive>) -> Self {
        let (what, blocked) = match alive {
            None => ("allow more, or look at what the other side does".to_owned(), None),
            Some((at, 0)) => {
                let ms = at.elapsed().as_millis();
                (format!("its handler was at work {ms} ms ago: allow more"), Some(Duration::ZERO))
            }
            Some((at, blocked_ms)) => {
                let blocked = at.elapsed() + Duration::from_millis(blocked_ms.into());
                let fix = "look for a handler there that does not await";
                let ms = blocked.as_millis();
                (format!("the node that answers has been blocked for {ms} ms: {fix}"), Some(blocked))
            }
        };
        let mut error = Self::new(ErrorCode::AskTimeout, format!("{title}: no answer came in time: {what}"));
        error.0.blocked = blocked;
        error
    }

    /// The link was lost before an answer came.
    pub(crate) fn lost(title: &str) -> Self {
        let text = format!("{title}: the link to the hub was lost before an answer came: call again once it is back");
        Self::new(ErrorCode::LinkLost, text)
    }

    pub(crate) fn refused(title: &str, refused: &Refused) -> Self {
        let code = match refused {
            Refused::InFlight { .. } | Refused::Full { .. } => ErrorCode::LimitExceeded,
            Refused::TooLong { .. } => ErrorCode::PayloadTooLarge,
            Refused::Unauthorized { .. } => ErrorCode::Unauthorized,
            Refused::Closing | Refused::Over => ErrorCode::LinkLost,
            Refused::Wire(WireError::Subject(problem)) => return Self::new(ErrorCode::InvalidSubject, problem.clone()),
            Refused::Wire(broken) => broken.code(),
        };
        Self::new(code, format!("{title}: {refused}"))
    }

    /// Which error it is, the same in every language.
    pub fn code(&self) -> ErrorCode {
        self.0.code
    }

    /// True if the same operation may succeed after a pause.
    pub fn is_retryable(&self) -> bool {
        self.0.code.retryable()
    }

    /// The error of the handler, if one has failed elsewhere.
    pub fn remote(&self) -> Option<&Remote> {
        self.0.remote.as_ref()
    }

    /// State of the callee when a call timed out; None without a sign of life. Zero: its handler
    /// was running. More: the time for which the event loop or the handler threads of the callee
    /// were blocked.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use tidewire_node::{Node, NodeOptions, Service};
    ///
    /// let hub = Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub")).wait()?;
    /// let slow = Service::new("slow").method("never", &[], |_, ()| std::future::pending::<Result<(), _>>());
    /// hub.serve(slow).wait()?;
    ///
    /// let hasty = hub.client("slow").timeout(Duration::from_millis(400));
    /// let late = hasty.call::<()>("never", &()).wait().unwrap_err();
    /// assert_eq!(late.blocked(), Some(Duration::ZERO), "it was at work at last");
    /// # Ok::<(), tidewire_node::Error>(())
    /// ```
    pub fn blocked(&self) -> Option<Duration> {
        self.0.blocked
    }

    /// The type of the error, for metrics and spans.
    pub(crate) fn kind(&self) -> &'static str {
        self.0.code.name()
    }

    /// Its text.
    pub fn message(&self) -> &str {
        &self.0.message
    }
}

fn code_named(name: &str) -> Option<ErrorCode> {
    (1..=255).filter_map(ErrorCode::from_number).find(|code| code.name() == name)
}

impl std::error::Error for Error {}

impl From<AddressError> for Error {
    fn from(error: AddressError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<JoinError> for Error {
    fn from(error: JoinError) -> Self {
        let code = match &error {
            JoinError::Io(..) => ErrorCode::LinkLost,
            JoinError::Tls(_) | JoinError::Untrusted(..) => ErrorCode::InvalidArgument,
            JoinError::Told(_, number, _) => ErrorCode::from_number(*number).unwrap_or(ErrorCode::WireError),
            JoinError::Fault(..) => ErrorCode::WireError,
        };
        Self::new(code, error.to_string())
    }
}

impl From<ListenError> for Error {
    fn from(error: ListenError) -> Self {
        let code = if error.is_tls() { ErrorCode::InvalidArgument } else { ErrorCode::ConfigError };
        Self::new(code, error.to_string())
    }
}
