//! Results of a storage backend as Python objects: plain tuples and dicts, and exceptions.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use tidewire_backend::home::{
    Ack, BucketInfo, Compact, ConsumerInfo, DeadLetter, Entry, Event, Fault, Full, HomeError, HomeErrorKind,
    HomeResult, Order, StreamInfo,
};
use tidewire_proto::subject::Pattern;

use crate::errors::error;
use crate::interpreter::attach::attach;
use crate::interpreter::once::Once;
use crate::pending::Pending;

pub(super) fn pending<T: Send + 'static>(
    what: &'static str,
    answer: impl Future<Output = HomeResult<T>> + Send + 'static,
    convert: fn(Python<'_>, T) -> PyResult<Py<PyAny>>,
) -> Pending {
    let operation = async move {
        let result = answer.await;
        attach(|py| match result {
            Ok(value) => convert(py, value),
            Err(failure) => Err(raise(py, &failure)),
        })
    };
    Pending::new(what, None, Box::pin(operation))
}

pub(super) fn raise(py: Python<'_>, failure: &HomeError) -> PyErr {
    let kind = failure.kind();
    let name = match kind {
        HomeErrorKind::Invalid => return error(py, "InvalidArgument", failure.message(), &[]),
        HomeErrorKind::TooLarge => return error(py, "PayloadTooLarge", failure.message(), &[]),
        HomeErrorKind::Limit => return error(py, "LimitExceeded", failure.message(), &[]),
        HomeErrorKind::Denied => return error(py, "Unauthorized", failure.message(), &[]),
        HomeErrorKind::Unsupported => "Unsupported",
        HomeErrorKind::NotFound => "NotFound",
        HomeErrorKind::Differs => "SettingsDiffer",
        HomeErrorKind::Full => "StreamFull",
        HomeErrorKind::Stale => "StaleDelivery",
        HomeErrorKind::Revision => "RevisionConflict",
        HomeErrorKind::LeaseLost => "LeaseLost",
        HomeErrorKind::LeaseHeld => "LeaseHeld",
        HomeErrorKind::Busy => "HomeBusy",
        HomeErrorKind::Locked => "DataInUse",
        HomeErrorKind::Corrupt => "DataCorrupt",
        HomeErrorKind::Unreachable => "HomeUnavailable",
        _ => "HomeError",
    };
    match kind.name().into_py_any(py) {
        Ok(kind) => error(py, name, failure.message(), &[("kind", kind)]),
        Err(failure) => failure,
    }
}

pub(super) fn each<T>(
    py: Python<'_>,
    values: Vec<T>,
    convert: impl Fn(Python<'_>, T) -> PyResult<Py<PyAny>>,
) -> PyResult<Py<PyAny>> {
    let all = values.into_iter().map(|value| convert(py, value)).collect::<PyResult<Vec<_>>>()?;
    Ok(PyList::new(py, all)?.into_any().unbind())
}

pub(super) fn nothing(py: Python<'_>, (): ()) -> PyResult<Py<PyAny>> {
    Ok(py.None())
}

pub(super) fn number(py: Python<'_>, value: u64) -> PyResult<Py<PyAny>> {
    value.into_py_any(py)
}

pub(super) fn truth(py: Python<'_>, value: bool) -> PyResult<Py<PyAny>> {
    value.into_py_any(py)
}

pub(super) fn ack(py: Python<'_>, ack: Ack, schedule_id: Option<&str>) -> PyResult<Py<PyAny>> {
    static ACK: Once<Py<PyAny>> = Once::new();
    static NEW: Once<Py<PyAny>> = Once::new();
    // The constructor of a named tuple is a function of Python, and takes twice as long.
    let (class, new) = (ACK.of(py, "tidewire.streams.publisher", "Ack")?, NEW.of(py, "builtins", "tuple.__new__")?);
    let fields = (ack.sequence, ack.durability.name(), ack.duplicate, schedule_id);
    Ok(new.call1((class, fields))?.unbind())
}

pub(super) fn event(py: Python<'_>, event: &Event, delivery: u32) -> PyResult<Py<PyAny>> {
    let payload = PyBytes::new(py, &event.payload);
    let Event { subject, key, id, headers, sequence, time_us, .. } = event;
    let fields = (subject.as_str(), payload, key.as_deref(), id.as_deref(), headers, *sequence, *time_us, delivery);
    Ok(fields.into_pyobject(py)?.cast_into::<PyTuple>()?.into_any().unbind())
}

pub(super) fn dead_letter(py: Python<'_>, letter: DeadLetter) -> PyResult<Py<PyAny>> {
    let found = letter.event.map(|found| event(py, &found, letter.deliveries)).transpose()?;
    let Fault { error, traceback } = letter.fault;
    (found, letter.sequence, letter.deliveries, letter.dead_at_us, letter.reason, error, traceback).into_py_any(py)
}

pub(super) fn entry(py: Python<'_>, entry: Entry) -> PyResult<Py<PyAny>> {
    let value = entry.value.map(|value| PyBytes::new(py, &value));
    (entry.key.as_str(), value, entry.revision, entry.time_us).into_py_any(py)
}

pub(super) fn texts(patterns: &[Pattern]) -> Vec<&str> {
    patterns.iter().map(AsRef::as_ref).collect()
}

pub(super) fn stream_info(py: Python<'_>, info: StreamInfo) -> PyResult<Py<PyAny>> {
    let dict = PyDict::new(py);
    dict.set_item("name", &info.settings.name)?;
    dict.set_item("subjects", texts(&info.settings.subjects))?;
    dict.set_item("max_age_us", info.settings.max_age_us)?;
    dict.set_item("max_bytes", info.settings.max_bytes)?;
    dict.set_item("max_messages", info.settings.max_messages)?;
    dict.set_item("full", if info.settings.full == Full::DropOld { "drop_old" } else { "refuse" })?;
    dict.set_item("dedupe_us", info.settings.dedupe_us)?;
    dict.set_item("replicas", info.settings.replicas)?;
    dict.set_item("compact", info.settings.compact.map(Compact::name))?;
    dict.set_item("messages", info.messages)?;
    dict.set_item("bytes", info.bytes)?;
    dict.set_item("first", info.first)?;
    dict.set_item("last", info.last)?;
    dict.set_item("first_time_us", info.first_time_us)?;
    dict.set_item("last_time_us", info.last_time_us)?;
    dict.set_item("delayed", info.delayed)?;
    dict.set_item("dead", info.dead)?;
    dict.set_item("consumers", info.consumers)?;
    Ok(dict.into_any().unbind())
}

pub(super) fn consumer_info(py: Python<'_>, info: ConsumerInfo) -> PyResult<Py<PyAny>> {
    let dict = PyDict::new(py);
    dict.set_item("name", &info.settings.name)?;
    dict.set_item("filter", texts(&info.settings.filter))?;
    dict.set_item("ack_wait_us", info.settings.ack_wait_us)?;
    dict.set_item("max_deliver", info.settings.max_deliver)?;
    dict.set_item("max_in_flight", info.settings.max_in_flight)?;
    dict.set_item("order", if info.settings.order == Order::Key { "key" } else { "none" })?;
    dict.set_item("backoff_us", info.settings.backoff_us)?;
    dict.set_item("inactive_us", info.settings.inactive_us)?;
    dict.set_item("acked_to", info.acked_to)?;
    dict.set_item("in_flight", info.in_flight)?;
    dict.set_item("waiting", info.waiting)?;
    dict.set_item("lag", info.lag)?;
    dict.set_item("redelivered", info.redelivered)?;
    dict.set_item("dead", info.dead)?;
    dict.set_item("oldest_time_us", info.oldest_time_us)?;
    dict.set_item("paused_until_us", info.paused_until_us)?;
    Ok(dict.into_any().unbind())
}

pub(super) fn bucket_info(py: Python<'_>, info: BucketInfo) -> PyResult<Py<PyAny>> {
    let dict = PyDict::new(py);
    dict.set_item("name", &info.settings.name)?;
    dict.set_item("history", info.settings.history)?;
    dict.set_item("ttl_us", info.settings.ttl_us)?;
    dict.set_item("max_bytes", info.settings.max_bytes)?;
    dict.set_item("replicas", info.settings.replicas)?;
    dict.set_item("keys", info.keys)?;
    dict.set_item("bytes", info.bytes)?;
    dict.set_item("revision", info.revision)?;
    Ok(dict.into_any().unbind())
}
