//! Arguments of storage backend calls: subjects, patterns, settlements, and where to begin.

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use tidewire_backend::home::{Expect, Fault, Settlement, Start};
use tidewire_proto::subject::{Pattern, Subject, SubjectError};

use crate::errors::error;

pub fn subject(py: Python<'_>, text: &str) -> PyResult<Subject> {
    Subject::new(text).map_err(|wrong| malformed(py, &wrong))
}

pub(super) fn pattern(py: Python<'_>, text: &str) -> PyResult<Pattern> {
    Pattern::new(text).map_err(|wrong| malformed(py, &wrong))
}

pub(super) fn patterns(py: Python<'_>, texts: &[String]) -> PyResult<Vec<Pattern>> {
    texts.iter().map(|text| pattern(py, text)).collect()
}

pub(super) fn malformed(py: Python<'_>, wrong: &SubjectError) -> PyErr {
    error(py, "InvalidSubject", &wrong.to_string(), &[])
}

pub(super) fn start((name, number): &(String, u64)) -> Start {
    match name.as_str() {
        "new" => Start::New,
        "all" => Start::All,
        "time" => Start::Time(*number),
        _ => Start::Sequence(*number),
    }
}

/// The settlement, its delay, its reason, and its error with a traceback.
pub(super) type Settled = (PyBackedStr, Option<u64>, String, Option<(String, String)>);

pub(super) fn settlement((how, delay_us, reason, fault): Settled) -> Settlement {
    let fault = fault.map(|(error, traceback)| Fault { error, traceback });
    match &*how {
        "ack" => Settlement::Ack,
        "nak" => Settlement::Nak { delay_us, fault },
        "term" => Settlement::Term { reason, fault },
        _ => Settlement::Working,
    }
}

pub(super) const fn expected(expect: Option<u64>) -> Expect {
    match expect {
        None => Expect::Any,
        Some(0) => Expect::Absent,
        Some(revision) => Expect::Revision(revision),
    }
}
