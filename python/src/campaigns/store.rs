//! `CampaignStore`: a connection to a store of campaigns, for Python.

use std::sync::{Mutex, PoisonError};

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use tidewire_backend::{
    CampaignId, Campaigns, ErrorKind, Plan, Precision, Settings, Stages, State, Status, StoreError, Summary, WorkerId,
    WorkerStatus,
};
use tidewire_core::campaign::digest::{digest, written};
use tidewire_core::campaign::rows::{Rows, Value, Values};
use tidewire_stores::Missing;

use super::draws::seed;
use super::encode;
use crate::errors::error;
use crate::interpreter::attach::detach;

/// Opens a store by its URL; `create` makes one that does not exist.
pub fn open(url: &str, create: bool) -> Result<Box<dyn Campaigns>, StoreError> {
    tidewire_stores::open(url, if create { Missing::Create } else { Missing::Fail })
}

/// The exception of an error of a store.
pub fn raise(py: Python<'_>, failure: &StoreError) -> PyErr {
    let kind = failure.kind();
    let name = match kind {
        ErrorKind::Unreachable | ErrorKind::Locked => "StoreUnavailable",
        ErrorKind::NoSuchCampaign => "NoSuchCampaign",
        ErrorKind::Invalid | ErrorKind::Url => return error(py, "InvalidArgument", failure.message(), &[]),
        ErrorKind::NameTaken => return error(py, "NameTaken", failure.message(), &[]),
        _ => "CampaignError",
    };
    match kind.name().into_py_any(py) {
        Ok(kind) => error(py, name, failure.message(), &[("kind", kind)]),
        Err(failure) => failure,
    }
}

/// A connection to a store. Each call is one transaction, without the interpreter lock.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct CampaignStore {
    store: Mutex<Box<dyn Campaigns>>,
}

#[pymethods]
impl CampaignStore {
    #[new]
    #[pyo3(signature = (url, create = true))]
    fn new(py: Python<'_>, url: &str, create: bool) -> PyResult<Self> {
        let store = detach(py, || open(url, create)).map_err(|failure| raise(py, &failure))?;
        Ok(Self { store: Mutex::new(store) })
    }

    /// Stores a plan as a draft, and returns its number.
    #[pyo3(signature = (
        *, name, runs, campaign_seed, function, pickled, code, columns, many, attempts, timeout_us, failed_max, lease_us,
        range_us, until, parameters,
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are named in Python")]
    fn create(
        &self,
        py: Python<'_>,
        name: String,
        runs: u64,
        campaign_seed: &Bound<'_, PyAny>,
        function: String,
        pickled: Option<Vec<u8>>,
        code: String,
        columns: Option<Vec<(String, String)>>,
        many: bool,
        attempts: u32,
        timeout_us: Option<u64>,
        failed_max: Option<u64>,
        lease_us: u64,
        range_us: u64,
        until: Option<(String, f64, f64)>,
        parameters: Vec<String>,
    ) -> PyResult<u64> {
        let refuse = |text: String| error(py, "InvalidArgument", &text, &[]);
        let schema = columns.map(|columns| encode::schema(columns, many)).transpose().map_err(refuse)?;
        let until = until.map(|(column, half_width, confidence)| Precision { column, half_width, confidence });
        let settings = Settings { attempts, timeout_us, failed_max, lease_us, range_us, until };
        let plan = Plan { name, runs, seed: seed(campaign_seed)?, function, pickled, code, schema, settings };
        self.call(py, |store| store.create(&plan, &parameters)).map(|id| id.0)
    }

    /// Every campaign, or those in one state, newest first.
    #[pyo3(signature = (state = None))]
    fn campaigns<'py>(&self, py: Python<'py>, state: Option<&str>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let state = state.map(|name| {
            State::parse(name).ok_or_else(|| error(py, "InvalidArgument", &format!("state: {name:?} is none"), &[]))
        });
        let state = state.transpose()?;
        let all = self.call(py, |store| store.list(state))?;
        all.iter()
            .map(|summary| {
                let row = PyDict::new(py);
                fill_summary(&row, summary)?;
                Ok(row)
            })
            .collect()
    }

    /// The number of a campaign.
    fn find(&self, py: Python<'_>, name_or_id: &str) -> PyResult<u64> {
        self.call(py, |store| store.find(name_or_id)).map(|id| id.0)
    }

    /// A campaign's plan, with what was added to it.
    fn campaign<'py>(&self, py: Python<'py>, campaign: u64) -> PyResult<Bound<'py, PyDict>> {
        let stored = self.call(py, |store| store.campaign(CampaignId(campaign)))?;
        let plan = stored.plan;
        let row = PyDict::new(py);
        row.set_item("id", stored.id.0)?;
        row.set_item("name", plan.name)?;
        row.set_item("runs", plan.runs)?;
        row.set_item("seed", plan.seed.to_string())?;
        row.set_item("function", plan.function)?;
        row.set_item("pickled", plan.pickled.map(|bytes| pyo3::types::PyBytes::new(py, &bytes)))?;
        row.set_item("code", plan.code)?;
        row.set_item("many", plan.schema.as_ref().map(|schema| schema.many))?;
        let columns = plan.schema.map(|schema| {
            schema.columns.into_iter().map(|column| (column.name, column.kind.name())).collect::<Vec<_>>()
        });
        row.set_item("columns", columns)?;
        row.set_item("attempts", plan.settings.attempts)?;
        row.set_item("timeout_us", plan.settings.timeout_us)?;
        row.set_item("failed_max", plan.settings.failed_max)?;
        row.set_item("lease_us", plan.settings.lease_us)?;
        row.set_item("range_us", plan.settings.range_us)?;
        row.set_item("until", plan.settings.until.map(|until| (until.column, until.half_width, until.confidence)))?;
        row.set_item("sets", stored.sets)?;
        row.set_item("table", stored.table)?;
        row.set_item("created_us", stored.created_us)?;
        Ok(row)
    }

    /// Parameter sets from `first` on, at most `most` and at least one, as JSON.
    #[pyo3(signature = (campaign, first, most = 1))]
    fn parameters(&self, py: Python<'_>, campaign: u64, first: u64, most: u32) -> PyResult<Vec<String>> {
        self.call(py, |store| store.parameters(CampaignId(campaign), first, most))
    }

    /// Counters, workers, pace.
    fn status<'py>(&self, py: Python<'py>, campaign: u64) -> PyResult<Bound<'py, PyDict>> {
        let status = self.call(py, |store| store.status(CampaignId(campaign)))?;
        status_row(py, &status)
    }

    /// Changes of state and notes, oldest first: time in microseconds, state before, state after,
    /// reason.
    fn events(&self, py: Python<'_>, campaign: u64) -> PyResult<Vec<(i64, &'static str, &'static str, String)>> {
        let events = self.call(py, |store| store.events(CampaignId(campaign)))?;
        Ok(events.into_iter().map(|event| (event.at_us, event.from.name(), event.to.name(), event.reason)).collect())
    }

    /// Moves a campaign to another state.
    fn transition(&self, py: Python<'_>, campaign: u64, to: &str, reason: &str) -> PyResult<()> {
        let Some(to) = State::parse(to) else {
            return Err(error(py, "InvalidArgument", &format!("to: {to:?} is no state of a campaign"), &[]));
        };
        self.call(py, |store| store.transition(CampaignId(campaign), to, reason))
    }

    /// Adds runs.
    fn extend(&self, py: Python<'_>, campaign: u64, more: u64) -> PyResult<()> {
        self.call(py, |store| store.extend(CampaignId(campaign), more))
    }

    /// Writes a note into the events.
    fn note(&self, py: Python<'_>, campaign: u64, note: &str) -> PyResult<()> {
        self.call(py, |store| store.note(CampaignId(campaign), note))
    }

    /// Says that a worker process has died.
    fn worker_lost(
        &self,
        py: Python<'_>,
        campaign: u64,
        worker: u64,
        at_run: Option<u64>,
        overtime: bool,
    ) -> PyResult<()> {
        self.call(py, |store| store.worker_lost(CampaignId(campaign), WorkerId(worker), at_run, overtime))
    }

    /// Waits until something may have changed, or the time is over; true if it may have.
    fn wait(&self, py: Python<'_>, timeout_us: u64) -> PyResult<bool> {
        self.call(py, |store| store.wait(timeout_us))
    }

    /// Stored rows from a run on: runs, numbers of rows, columns, digest as a number.
    #[expect(clippy::type_complexity, reason = "a tuple for Python")]
    fn read_rows<'py>(
        &self,
        py: Python<'py>,
        campaign: u64,
        from_run: u64,
        rows_max: u32,
    ) -> PyResult<(Vec<u64>, Vec<u32>, Vec<Bound<'py, PyList>>, u128)> {
        let (rows, sum) = self.call(py, |store| {
            let rows: Rows = store.read_rows(CampaignId(campaign), from_run, rows_max)?;
            let sum = digest(&rows);
            Ok((rows, sum))
        })?;
        let columns: PyResult<Vec<_>> = rows.columns.iter().map(|column| column_list(py, column)).collect();
        Ok((rows.runs, rows.rows, columns?, sum))
    }

    /// Failed and quarantined runs from a run on.
    fn errors<'py>(
        &self,
        py: Python<'py>,
        campaign: u64,
        from_run: u64,
        most: u32,
    ) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let failures = self.call(py, |store| store.errors(CampaignId(campaign), from_run, most))?;
        failures
            .into_iter()
            .map(|stored| {
                let row = PyDict::new(py);
                row.set_item("run", stored.failure.run)?;
                row.set_item("kind", stored.failure.kind)?;
                row.set_item("error", stored.failure.error)?;
                row.set_item("message", stored.failure.message)?;
                row.set_item("traceback", stored.failure.traceback)?;
                row.set_item("attempts", stored.failure.attempts)?;
                row.set_item("worker", stored.worker.0)?;
                row.set_item("at_us", stored.at_us)?;
                Ok(row)
            })
            .collect()
    }
}

impl CampaignStore {
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        what: impl FnOnce(&mut dyn Campaigns) -> Result<T, StoreError> + Send,
    ) -> PyResult<T> {
        let done = detach(py, || what(self.store.lock().unwrap_or_else(PoisonError::into_inner).as_mut()));
        done.map_err(|failure| raise(py, &failure))
    }
}

fn fill_summary(row: &Bound<'_, PyDict>, summary: &Summary) -> PyResult<()> {
    row.set_item("id", summary.id.0)?;
    row.set_item("name", &summary.name)?;
    row.set_item("state", summary.state.name())?;
    row.set_item("runs", summary.runs)?;
    row.set_item("done", summary.done)?;
    row.set_item("failed", summary.failed)?;
    row.set_item("quarantined", summary.quarantined)?;
    row.set_item("created_us", summary.created_us)
}

fn status_row<'py>(py: Python<'py>, status: &Status) -> PyResult<Bound<'py, PyDict>> {
    let row = PyDict::new(py);
    fill_summary(&row, &status.summary)?;
    row.set_item("reason", &status.reason)?;
    row.set_item("leased", status.leased)?;
    row.set_item("rows", status.rows)?;
    row.set_item("digest", written(status.digest))?;
    row.set_item("active_us", status.active_us)?;
    row.set_item("run_us", status.run_us)?;
    row.set_item("rate", status.rate)?;
    row.set_item("timeline", &status.timeline)?;
    row.set_item("losses", status.losses)?;
    let look = status.look.as_ref().map(|look| (look.runs, look.mean, look.half_width, look.set, look.reached));
    row.set_item("look", look)?;
    let workers: PyResult<Vec<_>> = status.workers.iter().map(|worker| worker_row(py, worker)).collect();
    row.set_item("workers", workers?)?;
    row.set_item("now_us", status.now_us)?;
    Ok(row)
}

fn worker_row<'py>(py: Python<'py>, worker: &WorkerStatus) -> PyResult<Bound<'py, PyDict>> {
    let row = PyDict::new(py);
    row.set_item("id", worker.id.0)?;
    row.set_item("name", &worker.info.name)?;
    row.set_item("host", &worker.info.host)?;
    row.set_item("process", worker.info.process)?;
    row.set_item("state", &worker.state)?;
    row.set_item("joined_us", worker.joined_us)?;
    row.set_item("seen_us", worker.seen_us)?;
    row.set_item("runs", worker.runs)?;
    let Stages { lease_us, warm_up_us, run_us, encode_us, persist_us, wait_us, idle_us } = worker.stages;
    row.set_item("stages_us", [lease_us, warm_up_us, run_us, encode_us, persist_us, wait_us, idle_us])?;
    row.set_item("leased", &worker.leased)?;
    Ok(row)
}

fn column_list<'py>(py: Python<'py>, column: &Values) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for index in 0..column.len() {
        match column.at(index) {
            Value::Null => list.append(py.None())?,
            Value::Integer(value) => list.append(value)?,
            Value::Float(value) => list.append(value)?,
            Value::Text(text) | Value::Json(text) => list.append(text)?,
            Value::Boolean(value) => list.append(value)?,
            Value::Time(micros) => list.append(crate::values::moment(py, micros)?)?,
        }
    }
    Ok(list)
}
