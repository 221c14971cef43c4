//! The error of a value that can't be written: its reason, and its place in the value.

use std::fmt::Write;

use pyo3::exceptions::{PyAttributeError, PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::errors::error;
use crate::values::DEPTH;

pub type WriteResult = Result<(), Box<Failure>>;

/// A reason and the path to the invalid part, the innermost step first.
pub struct Failure {
    reason: Reason,
    path: Vec<Step>,
}

pub enum Reason {
    /// It can't be sent; the text follows the path.
    Refused(String),
    /// Nested too deep. The object is that at which the limit was met.
    Deep(Py<PyAny>),
    /// A container that holds itself.
    Endless(Py<PyAny>),
    TooLarge,
    /// An error of the caller's own code, which is passed on.
    Raised(PyErr),
}

enum Step {
    Index(usize),
    Key(String),
    Field(String),
}

impl Failure {
    #[cold]
    pub fn new(reason: Reason) -> Box<Self> {
        Box::new(Self { reason, path: Vec::new() })
    }

    #[cold]
    pub fn refused(text: impl Into<String>) -> Box<Self> {
        Self::new(Reason::Refused(text.into()))
    }

    /// An error of Python code that was asked for data. A ValueError, TypeError or AttributeError
    /// becomes the reason.
    #[cold]
    pub fn raised(py: Python<'_>, failure: PyErr) -> Box<Self> {
        let is_reason = failure.is_instance_of::<PyValueError>(py)
            || failure.is_instance_of::<PyTypeError>(py)
            || failure.is_instance_of::<PyAttributeError>(py);
        match failure.value(py).str() {
            Ok(text) if is_reason => Self::refused(text.to_string_lossy()),
            _ => Self::new(Reason::Raised(failure)),
        }
    }

    #[cold]
    pub fn at_index(mut self: Box<Self>, index: usize) -> Box<Self> {
        self.path.push(Step::Index(index));
        self
    }

    #[cold]
    pub fn at_key(mut self: Box<Self>, key: &Bound<'_, PyAny>) -> Box<Self> {
        self.path.push(Step::Key(shown(key)));
        self
    }

    #[cold]
    pub fn at_field(mut self: Box<Self>, field: &str) -> Box<Self> {
        self.path.push(Step::Field(field.to_owned()));
        self
    }

    /// Notices that the object that lay too deep is this container, which then holds itself. The
    /// outermost such place is named.
    #[cold]
    pub fn inside(mut self: Box<Self>, container: &Bound<'_, PyAny>) -> Box<Self> {
        if let Reason::Deep(culprit) | Reason::Endless(culprit) = &self.reason
            && culprit.is(container)
        {
            self.reason = Reason::Endless(container.clone().unbind());
            self.path.clear();
        }
        self
    }

    /// True if an optional part with this failure can be left out.
    pub fn can_be_left_out(&self) -> bool {
        matches!(self.reason, Reason::Refused(_) | Reason::Deep(_) | Reason::Endless(_))
    }

    /// The exception for the caller.
    #[cold]
    pub fn raise(self, py: Python<'_>, name: &str, bytes_max: usize) -> PyErr {
        let path = self.path_from(name);
        match self.reason {
            Reason::Refused(text) => error(py, "InvalidArgument", &format!("{path}: {text}"), &[]),
            Reason::Deep(_) => {
                let text = format!("{path}: nested deeper than {DEPTH} levels: flatten it");
                error(py, "InvalidArgument", &text, &[])
            }
            Reason::Endless(container) => {
                let kind = kind_of(container.bind(py));
                let text = format!("{path}: a {kind} that contains itself can't be sent: break the cycle");
                error(py, "InvalidArgument", &text, &[])
            }
            Reason::TooLarge => {
                let text =
                    format!("{name}: it takes more than payload_bytes={bytes_max}: send less at once, or use a stream");
                error(py, "PayloadTooLarge", &text, &[])
            }
            Reason::Raised(failure) => failure,
        }
    }

    fn path_from(&self, name: &str) -> String {
        let mut path = name.to_owned();
        for step in self.path.iter().rev() {
            // Writing to a string does not fail.
            let _ = match step {
                Step::Index(index) => write!(path, "[{index}]"),
                Step::Key(key) => write!(path, "[{key}]"),
                Step::Field(field) => write!(path, ".{field}"),
            };
        }
        path
    }
}

/// The failure of an object without a known form.
#[cold]
pub fn not_data(value: &Bound<'_, PyAny>) -> Box<Failure> {
    let kind = kind_of(value);
    let article = if kind.starts_with(['a', 'e', 'i', 'o', 'u', 'A', 'E', 'I', 'O', 'U']) { "an" } else { "a" };
    let fix = "send plain values, a dataclass, a msgspec.Struct or a pydantic model";
    Failure::refused(format!("{article} {kind} ({}) can't be sent: {fix}", shown(value)))
}

fn kind_of(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Most characters of a value that an error shows.
const SHOWN: usize = 100;

pub fn shown(value: &Bound<'_, PyAny>) -> String {
    let text = value.repr().map_or_else(|_| value.get_type().to_string(), |text| text.to_string_lossy().into_owned());
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{} ...", &text[..end]),
        None => text,
    }
}
