//! Arguments from Python. An invalid one raises `InvalidArgument` with the field, its value and the
//! fix.

use std::time::Duration;

use pyo3::Borrowed;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyMapping, PyString};

use tidewire_engine::DeadReason;

use crate::errors::error;

/// The lane of a message, by its name.
#[derive(Clone, Copy)]
pub struct Priority(tidewire_engine::Priority);

impl Priority {
    /// The lane that was asked for, or the normal one.
    pub fn lane(requested: Option<Self>) -> tidewire_engine::Priority {
        requested.map_or(tidewire_engine::Priority::Normal, |requested| requested.0)
    }
}

impl<'a> FromPyObject<'a, '_> for Priority {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, '_, PyAny>) -> PyResult<Self> {
        match value.extract::<&str>() {
            Ok("normal") => Ok(Self(tidewire_engine::Priority::Normal)),
            Ok("urgent") => Ok(Self(tidewire_engine::Priority::Urgent)),
            Ok("high") => Ok(Self(tidewire_engine::Priority::High)),
            Ok("low") => Ok(Self(tidewire_engine::Priority::Low)),
            _ => Err(refuse(&value, "priority", "use \"urgent\", \"high\", \"normal\" or \"low\"")),
        }
    }
}

/// Why a message is given up.
pub struct Reason(pub DeadReason);

impl<'a> FromPyObject<'a, '_> for Reason {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, '_, PyAny>) -> PyResult<Self> {
        let reasons = [DeadReason::Failed, DeadReason::Expired, DeadReason::Stopped, DeadReason::MailboxFull];
        let named = value.extract::<&str>().ok();
        let reason = reasons.into_iter().find(|reason| named == Some(reason.as_str()));
        let fix = "use \"failed\", \"expired\", \"stopped\" or \"mailbox_full\"";
        reason.map(Self).ok_or_else(|| refuse(&value, "reason", fix))
    }
}

/// A timeout. None means no limit.
pub struct Timeout(pub Duration);

/// A timeout whose default is that of the configuration, for a call without one or with `...`.
pub enum TimeoutArgument {
    Usual,
    Call(Timeout),
}

impl TimeoutArgument {
    /// The time in force; the configuration gives milliseconds.
    pub fn or(self, configured_ms: u64) -> Duration {
        match self {
            Self::Usual => Duration::from_millis(configured_ms),
            Self::Call(timeout) => timeout.0,
        }
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for TimeoutArgument {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if value.is(value.py().Ellipsis()) {
            return Ok(Self::Usual);
        }
        value.extract().map(Self::Call)
    }
}

impl FromPyObject<'_, '_> for Timeout {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if value.is_none() {
            return Ok(Self(Duration::MAX));
        }
        seconds(&value)
            .map(Self)
            .ok_or_else(|| refuse(&value, "timeout", "give a number of seconds, 0 or more, or None for no limit"))
    }
}

/// The delay of a timer.
pub struct Delay(pub Duration);

impl FromPyObject<'_, '_> for Delay {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let fix = "give a number of seconds from 0 to 1e19";
        seconds(&value).map(Self).ok_or_else(|| refuse(&value, "delay", fix))
    }
}

/// The period of a timer.
pub struct Every(pub Duration);

impl FromPyObject<'_, '_> for Every {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let fix = "give a number of seconds from 0.000001 to 1e19, or None for a single time";
        let period = seconds(&value).filter(|period| *period >= Duration::from_micros(1));
        period.map(Self).ok_or_else(|| refuse(&value, "every", fix))
    }
}

/// Any kind of number but a truth value, which Python takes for 0 or 1.
fn seconds(value: &Bound<'_, PyAny>) -> Option<Duration> {
    let exact = value.is_exact_instance_of::<PyFloat>();
    if !exact && value.is_instance_of::<PyBool>() {
        return None;
    }
    Duration::try_from_secs_f64(value.extract().ok()?).ok()
}

/// The `drain` argument of a stop: true handles accepted messages first.
pub struct Drain(pub bool);

impl FromPyObject<'_, '_> for Drain {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        flag(&value, "drain").map(Self)
    }
}

/// The `stack` argument of a behaviour change: true pushes the new behaviour onto the present one,
/// false replaces it.
pub struct Stack(pub bool);

impl FromPyObject<'_, '_> for Stack {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        flag(&value, "stack").map(Self)
    }
}

fn flag(value: &Bound<'_, PyAny>, field: &str) -> PyResult<bool> {
    value.extract().map_err(|_| refuse(value, field, "give True or False"))
}

/// Arguments that are text: the name of each, and its error.
macro_rules! text_arguments {
    ($($(#[$about:meta])* $argument:ident = $name:literal, $error:literal;)*) => {$(
        $(#[$about])*
        pub struct $argument<'a>(pub &'a str);

        impl<'a> FromPyObject<'a, '_> for $argument<'a> {
            type Error = PyErr;

            fn extract(value: Borrowed<'a, '_, PyAny>) -> PyResult<Self> {
                text(value, $name, $error).map(Self)
            }
        }
    )*};
}

text_arguments! {
    /// The name of an actor.
    Name = "name", "InvalidArgument";
    /// The name of a dispatcher.
    Dispatcher = "dispatcher", "InvalidArgument";
    /// The name of a queue group.
    Queue = "queue", "InvalidArgument";
    /// A pattern of subjects. The engine looks at its form.
    Pattern = "pattern", "InvalidSubject";
}

/// Several patterns. A single string is refused: it would pass as a list of its letters.
pub struct Patterns(pub Vec<String>);

impl FromPyObject<'_, '_> for Patterns {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let fix = "give a list of patterns";
        if value.is_instance_of::<PyString>() {
            return Err(refuse(&value, "patterns", fix));
        }
        let items = value.try_iter().map_err(|_| refuse(&value, "patterns", fix))?;
        items.map(|item| Ok(item?.extract::<Pattern<'_>>()?.0.to_owned())).collect::<PyResult<_>>().map(Self)
    }
}

/// A subject: the text, and the string that handlers see. The engine looks at its form.
pub struct Subject<'a, 'py> {
    pub text: &'a str,
    pub object: Borrowed<'a, 'py, PyAny>,
}

impl<'a, 'py> FromPyObject<'a, 'py> for Subject<'a, 'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self { text: text(object, "subject", "InvalidSubject")?, object })
    }
}

/// A string that UTF-8 can hold. Anything else is an error of the given class.
fn text<'a>(value: Borrowed<'a, '_, PyAny>, field: &str, class: &str) -> PyResult<&'a str> {
    value.extract().map_err(|_: PyErr| {
        let fix = if value.is_instance_of::<PyString>() {
            "it holds one half of a pair of surrogates: give text that UTF-8 can hold"
        } else {
            "give a string"
        };
        refuse_as(&value, field, fix, class)
    })
}

/// A mapping of strings to strings.
pub struct Headers(pub Py<PyAny>);

impl FromPyObject<'_, '_> for Headers {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let texts = match value.cast::<PyDict>() {
            Ok(dict) => dict.iter().all(|(key, text)| is_text(&key) && is_text(&text)),
            Err(_) => holds_texts(&value).unwrap_or(false),
        };
        if texts {
            Ok(Self(value.to_owned().unbind()))
        } else {
            Err(refuse(&value, "headers", "give a dict of strings to strings, or None"))
        }
    }
}

fn holds_texts(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let items = value.cast::<PyMapping>()?.items()?;
    Ok(items.iter().all(|item| {
        item.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>().is_ok_and(|(key, text)| is_text(&key) && is_text(&text))
    }))
}

fn is_text(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyString>()
}

/// The number of a dead letter.
pub struct Letter(pub u64);

impl FromPyObject<'_, '_> for Letter {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let fix = "give a tw.DeadLetter, or its number";
        if value.is_instance_of::<PyBool>() {
            return Err(refuse(&value, "letter", fix));
        }
        value.extract().map(Self).map_err(|_: PyErr| refuse(&value, "letter", fix))
    }
}

#[cold]
pub fn not_an_actor(value: &Bound<'_, PyAny>, field: &str) -> PyErr {
    let text =
        format!("{field}: {} is not an actor: give the result of node.spawn() or node.lookup(name)", shown(value));
    error(value.py(), "InvalidArgument", &text, &[])
}

#[cold]
fn refuse(value: &Bound<'_, PyAny>, field: &str, fix: &str) -> PyErr {
    refuse_as(value, field, fix, "InvalidArgument")
}

#[cold]
fn refuse_as(value: &Bound<'_, PyAny>, field: &str, fix: &str, class: &str) -> PyErr {
    error(value.py(), class, &format!("{field}: {} is not allowed: {fix}", shown(value)), &[])
}

/// Most characters of a value that an error shows.
const SHOWN: usize = 200;

fn shown(value: &Bound<'_, PyAny>) -> String {
    let text = value.repr().map_or_else(|_| value.get_type().to_string(), |text| text.to_string_lossy().into_owned());
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{} ...", &text[..end]),
        None => text,
    }
}
