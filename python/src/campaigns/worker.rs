//! A worker of a campaign: claims ranges, calls the function for each run of them, and commits the
//! results.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use tidewire_backend::{
    CampaignId, Campaigns, ErrorKind, Lease, RangeResults, Schema, Stages, State, StoreError, WorkerInfo,
};
use tidewire_core::campaign::random::Key;
use tidewire_stores::{Next, Session, SessionTimeouts};

use super::draws::Draws;
use super::encode::Encoder;
use super::range::{RangeLoop, now_us};
use super::run::Run;
use super::status_page::StatusPage;
use super::store;
use crate::interpreter::PerProcessOwned;
use crate::interpreter::attach::{attach, detach};
use crate::interpreter::wait::wait;

/// A worker of one campaign in this process.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct CampaignWorker {
    url: String,
    campaign: CampaignId,
    info: WorkerInfo,
    function: Py<PyAny>,
    parameters: Py<PyAny>,
    key: Key,
    sets: u64,
    schema: Option<Schema>,
    attempts: u32,
    range_us: u64,
    patience: SessionTimeouts,
    board: StatusPage,
    /// The connection that has read the plan, until the session has it.
    store: Mutex<Option<Box<dyn Campaigns>>>,
    session: OnceLock<Session>,
}

#[pymethods]
impl CampaignWorker {
    /// A worker that has not joined yet. `parameters` gives the parameters of a run by its index;
    /// `board` is the file of the page that its supervisor looks at.
    #[new]
    #[pyo3(signature = (url, campaign, function, parameters, *, name, host, code, board = None, store_wait = 60.0, work_wait = None))]
    #[expect(clippy::too_many_arguments, reason = "they are named in Python")]
    fn new(
        py: Python<'_>,
        url: String,
        campaign: u64,
        function: Py<PyAny>,
        parameters: Py<PyAny>,
        name: String,
        host: String,
        code: String,
        board: Option<i32>,
        store_wait: f64,
        work_wait: Option<f64>,
    ) -> PyResult<Self> {
        let campaign = CampaignId(campaign);
        let opened = detach(py, || {
            let mut store = store::open(&url, false)?;
            Ok((store.campaign(campaign)?, store))
        });
        let (stored, store) = opened.map_err(|failure| store::raise(py, &failure))?;
        let plan = stored.plan;
        let info = WorkerInfo { name, host, process: std::process::id(), code };
        let patience = SessionTimeouts {
            store: Duration::from_secs_f64(store_wait),
            work: work_wait.map(Duration::from_secs_f64),
        };
        Ok(Self {
            url,
            campaign,
            info,
            function,
            parameters,
            key: plan.seed.key(),
            sets: stored.sets,
            schema: plan.schema,
            attempts: plan.settings.attempts,
            range_us: plan.settings.range_us,
            patience,
            board: StatusPage::open(board)?,
            store: Mutex::new(Some(store)),
            session: OnceLock::new(),
        })
    }

    /// Works until the campaign has ended, there was nothing to run for `work_wait` seconds, or the
    /// worker is stopped. Returns the state of the campaign then.
    ///
    /// `warm_up` is how long the process has taken to come here, in seconds.
    #[pyo3(signature = (warm_up = 0.0))]
    fn serve(&self, py: Python<'_>, warm_up: f64) -> PyResult<&'static str> {
        let mut stages = Stages { warm_up_us: (warm_up * 1e6) as u64, ..Stages::default() };
        let begun = now_us();
        let session = detach(py, || self.join()).map_err(|failure| store::raise(py, &failure))?;
        let session = self.session.get_or_init(|| session);
        stages.lease_us = now_us() - begun;
        let run = Bound::new(
            py,
            Run::of_campaign(Draws::of_run(self.key, 0), self.sets, Some(self.parameters.clone_ref(py))),
        )?;
        let range = RangeLoop {
            function: PerProcessOwned::new(self.function.bind(py)),
            run,
            board: &self.board,
            session,
            attempts: self.attempts,
            range_us: self.range_us,
            encoder: self.schema.clone().map(|schema| Encoder::new(py, schema)),
            stages,
            run_us: 0.0,
        };
        let served = Serving { worker: self, session, range, certain: self.schema.is_some() }.until_the_end(py);
        let left = detach(py, || session.leave());
        let state = served?;
        left.map_err(|failure| store::raise(py, &failure))?;
        Ok(state.name())
    }

    /// Ends the worker after its present run. Results up to then are stored.
    fn stop(&self) {
        if let Some(session) = self.session.get() {
            session.stop();
        }
    }
}

impl CampaignWorker {
    fn join(&self) -> Result<Session, StoreError> {
        let opened = self.store.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut store = opened.map_or_else(|| store::open(&self.url, false), Ok)?;
        let worker = store.join(self.campaign, &self.info)?;
        self.board.joined(worker.0);
        Session::start(store, self.campaign, worker, self.patience)
            .map_err(|failure| StoreError::new(ErrorKind::Database, format!("no thread for the store: {failure}")))
    }
}

/// A worker that is at work.
struct Serving<'a, 'py> {
    worker: &'a CampaignWorker,
    session: &'a Session,
    range: RangeLoop<'a, 'py>,
    /// The columns are those of the store.
    certain: bool,
}

impl Serving<'_, '_> {
    fn until_the_end(&mut self, py: Python<'_>) -> PyResult<State> {
        loop {
            self.session.ask();
            let begun = now_us();
            let (next, waited_us) = wait_for(py, self.session.next())?;
            let passed = now_us() - begun;
            self.range.stages.wait_us += waited_us.min(passed);
            self.range.stages.lease_us += passed.saturating_sub(waited_us);
            match next {
                Next::Leave(state) => return Ok(state),
                Next::Range(_) if self.session.stopped() => return Ok(State::Running),
                Next::Range(lease) => self.lease(py, &lease)?,
            }
            if self.session.stopped() {
                self.persist(py)?;
                return Ok(State::Running);
            }
        }
    }

    /// Runs a lease, in one range or in several if they take longer than they should.
    fn lease(&mut self, py: Python<'_>, lease: &Lease) -> PyResult<()> {
        self.columns(py, lease)?;
        let mut first = lease.first;
        while first < lease.end() && !self.session.stopped() && !self.session.has_lost(lease.id) {
            if self.range.is_short((lease.end() - first) as u32) {
                self.session.ask();
            }
            let results = self.range.run(py, lease, first)?;
            if results.count == 0 || self.session.has_lost(lease.id) {
                self.range.forget();
                break;
            }
            first += u64::from(results.count);
            self.persist(py)?;
            self.session.commit(lease.id, RangeResults { stages: self.range.stages, ..results });
        }
        Ok(())
    }

    /// Waits until no results are on their way to the store.
    fn persist(&mut self, py: Python<'_>) -> PyResult<()> {
        let begun = now_us();
        wait_for(py, self.session.committed())?;
        self.range.stages.persist_us += now_us() - begun;
        Ok(())
    }

    /// Those of a pilot count once they are stored, be it by another worker.
    fn columns(&mut self, py: Python<'_>, lease: &Lease) -> PyResult<()> {
        if lease.pilot {
            self.range.encoder = None;
        } else if !self.certain {
            let stored = detach(py, || store::open(&self.worker.url, false)?.campaign(self.worker.campaign));
            let schema = stored.map_err(|failure| store::raise(py, &failure))?.plan.schema;
            self.range.encoder = schema.map(|schema| Encoder::new(py, schema));
            self.certain = true;
        }
        Ok(())
    }
}

/// Waits for something of the session, without the interpreter. Signals are handled meanwhile.
fn wait_for<T: Send + 'static>(
    py: Python<'_>,
    what: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> PyResult<T> {
    let place = Arc::new(Mutex::new(None));
    let there = Arc::clone(&place);
    wait(
        py,
        Box::pin(async move {
            let done = what.await;
            *there.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
            Ok(attach(|py| py.None()))
        }),
    )?;
    let done = place.lock().unwrap_or_else(PoisonError::into_inner).take();
    let done = done.unwrap_or_else(|| Err(StoreError::new(ErrorKind::Database, "the session has ended")));
    done.map_err(|failure| store::raise(py, &failure))
}
