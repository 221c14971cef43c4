//! Counters, times and stop reports as Python objects.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use tidewire_engine::{
    ActorStatistics, DeadLetter, DispatcherStatistics, Ledger, ShutdownReport, Statistics, StopReport, Stuck, Timings,
};

use crate::actors::message::Message;

pub fn actor(py: Python<'_>, statistics: &ActorStatistics) -> PyResult<Py<PyAny>> {
    let row = PyDict::new(py);
    row.set_item("id", statistics.id.get())?;
    row.set_item("name", statistics.name.as_deref())?;
    row.set_item("dispatcher", &*statistics.dispatcher)?;
    row.set_item("accepted", statistics.accepted)?;
    row.set_item("handled", statistics.handled)?;
    row.set_item("failed", statistics.failed)?;
    row.set_item("dropped", statistics.dropped)?;
    row.set_item("depth", statistics.depth)?;
    row.set_item("high_water", statistics.high_water)?;
    row.set_item("capacity", statistics.capacity)?;
    row.set_item("restarts", statistics.restarts)?;
    timings(&row, &statistics.timings)?;
    Ok(row.into_any().unbind())
}

fn dispatcher(py: Python<'_>, statistics: &DispatcherStatistics) -> PyResult<Py<PyAny>> {
    let row = PyDict::new(py);
    row.set_item("threads", statistics.threads)?;
    row.set_item("threads_max", statistics.threads_max)?;
    row.set_item("asleep", statistics.asleep)?;
    row.set_item("held_by", statistics.starved.as_ref().map(|starved| &starved.held_by).unwrap_or(&BTreeMap::new()))?;
    row.set_item("throughput", statistics.throughput)?;
    row.set_item("actors", statistics.actors)?;
    row.set_item("accepted", statistics.accepted)?;
    row.set_item("handled", statistics.handled)?;
    row.set_item("failed", statistics.failed)?;
    row.set_item("dropped", statistics.dropped)?;
    row.set_item("depth", statistics.depth)?;
    timings(&row, &statistics.timings)?;
    Ok(row.into_any().unbind())
}

fn timings(row: &Bound<'_, PyDict>, timings: &Timings) -> PyResult<()> {
    for (name, histogram) in [("queueing", &timings.queueing), ("handling", &timings.handling)] {
        let times = PyDict::new(row.py());
        times.set_item("samples", histogram.count())?;
        for (label, percent) in [("p50_us", 50.0), ("p95_us", 95.0), ("p99_us", 99.0)] {
            times.set_item(label, histogram.percentile(percent) as f64 / 1000.0)?;
        }
        times.set_item("max_us", histogram.max() as f64 / 1000.0)?;
        row.set_item(name, times)?;
    }
    Ok(())
}

pub fn node(py: Python<'_>, statistics: &Statistics) -> PyResult<Py<PyAny>> {
    let all = PyDict::new(py);
    let actors = PyList::empty(py);
    for row in &statistics.actors {
        actors.append(actor(py, row)?)?;
    }
    all.set_item("actors", actors)?;
    let dispatchers = PyDict::new(py);
    for row in &statistics.dispatchers {
        dispatchers.set_item(&*row.name, dispatcher(py, row)?)?;
    }
    all.set_item("dispatchers", dispatchers)?;
    all.set_item("timers", statistics.timers)?;
    all.set_item("ask_timeouts", statistics.ask_timeouts)?;
    all.set_item("subscriptions", statistics.subscriptions)?;
    all.set_item("waiting_for_others", statistics.waiting_for_others)?;
    let dead = PyDict::new(py);
    for (reason, count) in &statistics.dead_letters {
        dead.set_item(reason.as_str(), count)?;
    }
    all.set_item("dead_letters", dead)?;
    all.set_item("dead_letters_let_go", statistics.dead_letters_let_go)?;
    Ok(all.into_any().unbind())
}

/// The fields of a `tw.DeadLetter`.
pub fn dead_letter(py: Python<'_>, letter: &DeadLetter) -> PyResult<Py<PyAny>> {
    let message = letter.message.as_ref().and_then(|place| {
        let message = place.lock().as_ref()?.downcast_ref::<Message>()?.clone();
        // Without the lock: its value may be of a class of the user's.
        opened(py, message)
    });
    let fields = PyDict::new(py);
    fields.set_item("number", letter.number)?;
    fields.set_item("actor", letter.actor.get())?;
    fields.set_item("name", letter.name.as_deref())?;
    fields.set_item("reason", letter.reason.as_str())?;
    fields.set_item("error", letter.error.as_deref())?;
    fields.set_item("traceback", letter.detail.as_deref())?;
    fields.set_item("at", letter.at)?;
    fields.set_item("message", message)?;
    Ok(fields.into_any().unbind())
}

/// The object of a message that was not handled; None if it came from another node and can't be
/// read here.
fn opened(py: Python<'_>, mut message: Message) -> Option<Py<PyAny>> {
    message.open(py).ok().map(|()| message.into_parts().0.into_py())
}

/// A stop's report as a `tw.Ledger`.
pub fn ledger(py: Python<'_>, report: StopReport<Message>) -> PyResult<Py<PyAny>> {
    let messages: Vec<Py<PyAny>> = report.returned.into_iter().filter_map(|message| opened(py, message)).collect();
    let stuck: Vec<Py<PyAny>> = report.stuck.iter().map(|stuck| self::stuck(py, stuck)).collect::<PyResult<_>>()?;
    make_ledger(py, report.ledger, messages, stuck, &report.reason.to_string(), Vec::new())
}

pub fn shutdown(py: Python<'_>, report: ShutdownReport) -> PyResult<Py<PyAny>> {
    let stuck: Vec<Py<PyAny>> = report.stuck.iter().map(|stuck| self::stuck(py, stuck)).collect::<PyResult<_>>()?;
    make_ledger(py, report.ledger, Vec::new(), stuck, "shutdown", report.threads)
}

fn make_ledger(
    py: Python<'_>,
    ledger: Ledger,
    messages: Vec<Py<PyAny>>,
    stuck: Vec<Py<PyAny>>,
    reason: &str,
    threads: Vec<String>,
) -> PyResult<Py<PyAny>> {
    let make = PyModule::import(py, "tidewire._node.ledger")?.getattr("make")?;
    let counts = (ledger.accepted, ledger.handled, ledger.returned, ledger.dead_lettered);
    Ok(make.call1((counts, messages, stuck, reason, threads))?.unbind())
}

fn stuck(py: Python<'_>, stuck: &Stuck) -> PyResult<Py<PyAny>> {
    let fields = PyDict::new(py);
    fields.set_item("actor", stuck.actor.get())?;
    fields.set_item("name", stuck.name.as_deref())?;
    fields.set_item("dispatcher", &*stuck.dispatcher)?;
    fields.set_item("thread", stuck.thread.as_deref())?;
    fields.set_item("awaiting", stuck.awaiting)?;
    Ok(fields.into_any().unbind())
}
