//! Schedules of streams, from Python and for it.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use tidewire_backend::home::{Change, ScheduleInfo, ScheduleSettings};
use tidewire_core::stream::recurrence::Timing;

use crate::errors::error;
use crate::streams::publisher::{Message, MessageMaker};

/// A schedule as it is asked for: when it beats, by whose clocks, and what it publishes.
pub fn settings(
    py: Python<'_>,
    name: String,
    (when, time_zone): (&str, &str),
    message: Message,
) -> PyResult<ScheduleSettings> {
    let timing = Timing::new(when, time_zone).map_err(|wrong| error(py, "InvalidArgument", &wrong, &[]))?;
    Ok(ScheduleSettings { name, timing, message: MessageMaker::default().make(py, message)? })
}

/// A schedule as a dict.
pub fn info(py: Python<'_>, info: ScheduleInfo, change: Change) -> PyResult<Py<PyAny>> {
    let ScheduleSettings { name, timing, message } = info.settings;
    let dict = PyDict::new(py);
    dict.set_item("name", name)?;
    dict.set_item("when", timing.text())?;
    dict.set_item("time_zone", timing.time_zone())?;
    dict.set_item("subject", message.subject.as_str())?;
    dict.set_item("payload", PyBytes::new(py, &message.payload))?;
    dict.set_item("key", message.key)?;
    dict.set_item("headers", message.headers)?;
    dict.set_item("ttl_us", message.ttl_us)?;
    dict.set_item("next_us", info.next_us)?;
    dict.set_item("change", change.name())?;
    Ok(dict.into_any().unbind())
}
