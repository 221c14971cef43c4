//! Errors of the engine as the exceptions of `tidewire.errors`, and exceptions as faults of the
//! engine.

use std::fmt;

use pyo3::IntoPyObjectExt as _;
use pyo3::exceptions::{PyRuntimeError, PyStopIteration};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use tidewire_engine::{AskError, DeadReason, Fault, PassedOn, Refusal, SpawnError, SubscribeError};

use crate::interpreter::attach::attach;
use crate::interpreter::once::Once;
/// An exception that a handler raised, as an error of the engine.
pub struct Raised(pub PyErr, bool);

/// Marks an exception that an ask has delivered.
const PASSED_ON: &str = "__tidewire_passed_on__";

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        attach(|py| {
            if f.alternate()
                && let Ok(text) = traceback(py, &self.0)
            {
                return f.write_str(&text);
            }
            let value = self.0.value(py);
            let name = value.get_type().name().map(|name| name.to_string()).unwrap_or_default();
            match value.str() {
                Ok(text) if text.len().unwrap_or(0) > 0 => write!(f, "{name}: {text}"),
                _ => f.write_str(&name),
            }
        })
    }
}

impl fmt::Debug for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Raised {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.1.then_some(&PassedOn)
    }
}

/// An exception with its traceback, as Python writes it.
pub fn traceback(py: Python<'_>, error: &PyErr) -> PyResult<String> {
    static FORMAT: Once<Py<PyAny>> = Once::new();
    let format = FORMAT.of(py, "traceback", "format_exception")?;
    let lines = format.call1((error.get_type(py), error.value(py), error.traceback(py)))?;
    Ok(lines.extract::<Vec<String>>()?.concat())
}

/// True for a `MessageExpired`, which is no failure.
pub fn says_expired(py: Python<'_>, error: &PyErr) -> bool {
    static EXPIRED: Once<Py<PyType>> = Once::new();
    EXPIRED.of(py, "tidewire.errors", "MessageExpired").is_ok_and(|class| error.is_instance(py, class))
}

/// The exception of a handler, and true if it is final: agents wrap the error of a message that has
/// used up its retries.
pub fn given_up(py: Python<'_>, error: PyErr) -> (PyErr, bool) {
    static GIVEN_UP: Once<Py<PyType>> = Once::new();
    if !GIVEN_UP.of(py, "tidewire._handlers", "GivenUp").is_ok_and(|class| error.is_instance(py, class)) {
        return (error, false);
    }
    match error.value(py).getattr("error") {
        Ok(inner) => (PyErr::from_value(inner), true),
        Err(_) => (error, true),
    }
}

/// Makes an exception of the class `name` of `tidewire.errors`.
pub fn error(py: Python<'_>, name: &str, text: &str, fields: &[(&str, Py<PyAny>)]) -> PyErr {
    make(py, name, text, fields).unwrap_or_else(|error| error)
}

fn make(py: Python<'_>, name: &str, text: &str, fields: &[(&str, Py<PyAny>)]) -> PyResult<PyErr> {
    static MODULE: Once<Py<PyModule>> = Once::new();
    let module = MODULE.get_or_try_init(py, || PyModule::import(py, "tidewire.errors").map(Bound::unbind))?;
    let class = module.bind(py).getattr(name)?;
    let keywords = PyDict::new(py);
    for (field, value) in fields {
        keywords.set_item(field, value)?;
    }
    class.call((text,), Some(&keywords)).map(PyErr::from_value)
}

/// The exception of a call inside `__next__`. A bare `StopIteration` would end the loop around the
/// call and be lost.
pub fn inside_next(py: Python<'_>, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyStopIteration>(py) {
        return error;
    }
    let outer = PyRuntimeError::new_err("the handler raised StopIteration");
    outer.set_cause(py, Some(error));
    outer
}

/// A refusal of an actor, with its name where it has one.
pub fn refusal(py: Python<'_>, refusal: Refusal, actor: Option<impl AsRef<str>>) -> PyErr {
    let name = match refusal {
        Refusal::Full { .. } => "MailboxFull",
        Refusal::Stopped { .. } => "ActorStopped",
    };
    error(py, name, &refusal.about(actor.as_ref().map(AsRef::as_ref)), &[])
}

pub fn spawn(py: Python<'_>, failure: &SpawnError) -> PyErr {
    let name = match failure {
        SpawnError::NameTaken { .. } => "NameTaken",
        SpawnError::UnknownDispatcher { .. } => "UnknownDispatcher",
        SpawnError::ParentStopped { .. } => "ActorStopped",
        SpawnError::EngineStopped => "NodeStopped",
        SpawnError::TooMany { .. } => "LimitExceeded",
        _ => "InvalidArgument",
    };
    let mut fields = Vec::new();
    if let SpawnError::UnknownDispatcher { known, .. } = failure
        && let Ok(known) = known.into_py_any(py)
    {
        fields.push(("known", known));
    }
    error(py, name, &failure.to_string(), &fields)
}

/// True for an exception of the class `name` of `tidewire.errors`.
pub fn is(py: Python<'_>, error: &PyErr, name: &str) -> bool {
    let class = PyModule::import(py, "tidewire.errors").and_then(|errors| errors.getattr(name));
    class.is_ok_and(|class| error.is_instance(py, &class))
}

/// True for an error by which a hub refuses a subscription.
pub fn is_refusal(py: Python<'_>, error: &PyErr) -> bool {
    ["Unauthorized", "LimitExceeded", "NameTaken", "InvalidSubject"].into_iter().any(|name| is(py, error, name))
}

pub fn subscribe(py: Python<'_>, failure: &SubscribeError) -> PyErr {
    let name = match failure {
        SubscribeError::Subject(_) => "InvalidSubject",
        SubscribeError::Stopped { .. } => "ActorStopped",
        _ => "LimitExceeded",
    };
    error(py, name, &failure.to_string(), &[])
}

/// The error of an ask, with the name of the actor where it has one.
/// `hint` tells why the event loop of the actor does not run it.
pub fn ask(
    py: Python<'_>,
    failure: AskError,
    actor: Option<impl AsRef<str>>,
    hint: impl FnOnce() -> Option<String>,
) -> PyErr {
    let mut text = failure.about(actor.as_ref().map(AsRef::as_ref));
    match failure {
        AskError::Timeout { starved, .. } => {
            let cause = starved.map(|starved| starved.to_string()).or_else(|| {
                let hint = hint()?;
                text = text.replacen("allow more time, or look at its queueing time", &hint, 1);
                Some(hint)
            });
            let cause = cause.into_pyobject(py).map_or_else(|_| py.None(), Bound::unbind);
            error(py, "AskTimeout", &text, &[("reason", cause)])
        }
        AskError::Refused(reason) => refusal(py, reason, actor),
        AskError::Lost { reason: DeadReason::Dropped, .. } => error(py, "MailboxFull", &text, &[]),
        AskError::Lost { .. } => error(py, "ActorStopped", &text, &[]),
        AskError::NoReply { .. } => error(py, "NoReply", &text, &[]),
        AskError::Cycle { path } => match path.into_pyobject(py) {
            Ok(path) => error(py, "AskCycle", &text, &[("path", path.unbind())]),
            Err(failure) => failure,
        },
        AskError::Failed(fault) => raised(py, fault),
        _ => error(py, "TidewireError", &text, &[]),
    }
}

/// The exception that a fault carries.
fn raised(py: Python<'_>, fault: Fault) -> PyErr {
    match fault.downcast::<Raised>() {
        Ok(raised) => {
            // An exception without attributes has a dead letter at each actor.
            let _ = raised.0.value(py).setattr(PASSED_ON, true);
            raised.0
        }
        Err(fault) => error(py, "TidewireError", &fault.to_string(), &[]),
    }
}

pub fn fault(error: PyErr) -> Fault {
    let is_passed_on = attach(|py| error.value(py).hasattr(PASSED_ON).unwrap_or_default());
    Box::new(Raised(error, is_passed_on))
}
