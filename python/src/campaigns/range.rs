//! The loop over a range of runs: calls the function, collects its results, and marks its progress.

use pyo3::prelude::*;
use rustix::time::{ClockId, clock_gettime};
use tidewire_backend::{Failure, Lease, RangeResults, Stages};
use tidewire_stores::Session;

use super::encode::{Encoder, schema_of};
use super::run::Run;
use super::status_page::StatusPage;
use crate::errors::traceback;
use crate::interpreter::PerProcessOwned;
use crate::interpreter::once::Once;

/// A range that turns out to take so many times longer than it should is committed in parts.
const LATE: u64 = 2;
/// Results are committed once their texts take so much memory, or there are so many rows.
const TEXT_BYTES_MAX: usize = 32 << 20;
const ROWS_MAX: usize = 1_000_000;
/// So much of the message and of the traceback of a failed run is stored.
const MESSAGE_CHARACTERS: usize = 2_000;
const TRACEBACK_CHARACTERS: usize = 8_000;
/// Weight of the newest measurement in the moving average of a run's time.
const NEWEST: f64 = 0.3;

/// Monotonic time of the host, the same in all its processes.
#[inline]
pub fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000
}

#[inline]
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Inputs of a worker for running ranges.
pub struct RangeLoop<'a, 'py> {
    pub function: PerProcessOwned<&'a Bound<'py, PyAny>>,
    pub run: Bound<'py, Run>,
    pub board: &'a StatusPage,
    pub session: &'a Session,
    pub attempts: u32,
    pub range_us: u64,
    /// None before a pilot.
    pub encoder: Option<Encoder>,
    pub stages: Stages,
    /// Average time of a run; 0 before the first.
    pub run_us: f64,
}

/// Outcome of a run.
enum Ended {
    Stored,
    Failed(Box<Failure>),
}

impl RangeLoop<'_, '_> {
    /// True if so many runs should take little time: then the next range is claimed meanwhile.
    pub fn is_short(&self, count: u32) -> bool {
        self.run_us > 0.0 && self.run_us * f64::from(count) <= (LATE * self.range_us) as f64
    }

    /// Runs a lease from `first` on: to its end, or until the worker is stopped, the lease is lost,
    /// or there is much to store.
    ///
    /// The results are without digest and stages.
    pub fn run(&mut self, py: Python<'_>, lease: &Lease, first: u64) -> PyResult<RangeResults> {
        let mut results = RangeResults { first, ..RangeResults::default() };
        let (mut run_ns, mut encode_ns) = (0, 0);
        let begun = now_ns();
        let late = begun + LATE * self.range_us * 1_000;
        let mut now = begun;
        for index in first..lease.end() {
            let full = results.count > 0 && (now > late || self.is_full());
            if full || self.session.stopped() || self.session.has_lost(lease.id) {
                break;
            }
            self.board.begin(index, now / 1_000);
            let attempt = if index == lease.first { lease.attempt } else { 1 };
            let (ended, called) = self.one(py, index, attempt, &mut results)?;
            if let Ended::Failed(failure) = ended {
                results.failures.push(*failure);
            }
            let after = now_ns();
            run_ns += called - now;
            encode_ns += after - called;
            now = after;
            results.count += 1;
        }
        self.board.rest(u64::from(results.count));
        results.run_us = run_ns / 1_000;
        self.note(run_ns, encode_ns, results.count);
        if let Some(encoder) = &mut self.encoder {
            results.rows = encoder.take();
        }
        Ok(results)
    }

    /// Forgets what was collected.
    pub fn forget(&mut self) {
        if let Some(encoder) = &mut self.encoder {
            drop(encoder.take());
        }
    }

    fn is_full(&self) -> bool {
        self.encoder.as_ref().is_some_and(|all| all.text_bytes > TEXT_BYTES_MAX || all.rows.len() > ROWS_MAX)
    }

    fn note(&mut self, run_ns: u64, encode_ns: u64, count: u32) {
        if count == 0 {
            return;
        }
        let each = run_ns as f64 / 1e3 / f64::from(count);
        let first = self.run_us == 0.0;
        // The first run of a process also imports what it needs.
        let stage = if first { &mut self.stages.warm_up_us } else { &mut self.stages.run_us };
        *stage += run_ns / 1_000;
        self.stages.encode_us += encode_ns / 1_000;
        self.run_us = if first { each } else { self.run_us + (each - self.run_us) * NEWEST }.max(0.001);
    }

    /// Calls the function until it succeeds or has had its attempts; when it was done is returned
    /// too.
    #[inline]
    fn one(&mut self, py: Python<'_>, index: u64, first: u32, results: &mut RangeResults) -> PyResult<(Ended, u64)> {
        let mut attempt = first;
        loop {
            self.run = Run::next(&self.run, index, attempt)?;
            let returned = self.function.back(py, self.function.call1((&self.run,)));
            if !self.board.has_file() {
                return Err(leave_without_files(py, index));
            }
            let called = now_ns();
            let failure = match returned {
                Ok(returned) => match self.collect(py, index, &returned, results) {
                    Ok(()) => return Ok((Ended::Stored, called)),
                    Err(why) => unfit(index, attempt, &why),
                },
                Err(_) if attempt < self.attempts => {
                    attempt += 1;
                    continue;
                }
                Err(raised) => failed(py, index, attempt, &raised),
            };
            return Ok((Ended::Failed(Box::new(failure)), called));
        }
    }

    #[inline]
    fn collect(
        &mut self,
        py: Python<'_>,
        index: u64,
        returned: &Bound<'_, PyAny>,
        results: &mut RangeResults,
    ) -> Result<(), String> {
        if let Some(encoder) = &mut self.encoder {
            return encoder.push(index, returned);
        }
        let schema = schema_of(returned)?;
        let mut encoder = Encoder::new(py, schema.clone());
        encoder.push(index, returned)?;
        self.encoder = Some(encoder);
        results.schema = Some(schema);
        Ok(())
    }
}

#[cold]
fn unfit(run: u64, attempts: u32, why: &str) -> Failure {
    let message = cut(&format!("run {run}: {why}"), MESSAGE_CHARACTERS);
    Failure {
        run,
        kind: "error".to_owned(),
        error: "InvalidResult".to_owned(),
        message,
        attempts,
        ..Failure::default()
    }
}

#[cold]
fn failed(py: Python<'_>, run: u64, attempts: u32, raised: &PyErr) -> Failure {
    let error = raised.get_type(py).qualname().map(|name| name.to_string()).unwrap_or_default();
    let message = raised.value(py).str().map(|text| text.to_string_lossy().into_owned()).unwrap_or_default();
    let traceback = traceback(py, raised).unwrap_or_default();
    let skipped = traceback.chars().count().saturating_sub(TRACEBACK_CHARACTERS);
    Failure {
        run,
        kind: "error".to_owned(),
        error: clean(error),
        message: clean(cut(&message, MESSAGE_CHARACTERS)),
        traceback: clean(traceback.chars().skip(skipped).collect()),
        attempts,
    }
}

fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

/// Stores keep no NUL.
fn clean(text: String) -> String {
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}

/// Ends a worker whose run has closed its files, before storage uses numbers that may belong to
/// other files now. Returns only if it can't.
#[cold]
fn leave_without_files(py: Python<'_>, run: u64) -> PyErr {
    static END: Once<Py<PyAny>> = Once::new();
    match END.of(py, "tidewire._campaigns.worker", "end_without_files").and_then(|end| end.call1((run,))) {
        Ok(_) => pyo3::exceptions::PyRuntimeError::new_err("a worker without its files can't be ended"),
        Err(failure) => failure,
    }
}
