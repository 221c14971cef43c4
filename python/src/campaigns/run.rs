//! `tw.Run`: the argument of a campaign's function for one run.

use pyo3::prelude::*;
use pyo3::types::PyAny;

use super::draws::{CommonDraws, Draws, key_of, ref_count};
use crate::errors::error;

/// One run.
#[pyclass(generic, module = "tidewire._tidewire")]
pub struct Run {
    draws: Draws,
    attempt: u32,
    /// Parameter sets of the campaign: run i has set i % sets, and is in replication i / sets.
    sets: u64,
    /// Gives the parameters of a run: a call with its index.
    parameters: Option<Py<PyAny>>,
    params: Option<Py<PyAny>>,
    common: Option<Py<CommonDraws>>,
}

#[pymethods]
impl Run {
    #[new]
    #[pyo3(signature = (index = 0, *, campaign_seed = None, params = None, attempt = 1, sets = 1))]
    fn new(
        py: Python<'_>,
        index: u64,
        campaign_seed: Option<&Bound<'_, PyAny>>,
        params: Option<Py<PyAny>>,
        attempt: u32,
        sets: u64,
    ) -> PyResult<Self> {
        if sets == 0 {
            return Err(error(py, "InvalidArgument", "sets: 0 is not allowed: a campaign has 1 set or more", &[]));
        }
        let draws = Draws::of_run(key_of(campaign_seed)?, index);
        let params = params.unwrap_or_else(|| pyo3::types::PyDict::new(py).into_any().unbind());
        Ok(Self { params: Some(params), attempt, ..Self::of_campaign(draws, sets, None) })
    }

    /// Index of the run in its campaign, from 0.
    #[getter]
    const fn index(&self) -> u64 {
        self.draws.index
    }

    /// 64 bits that depend on the seed of the campaign and the index of the run alone.
    #[getter]
    fn seed(&self) -> u64 {
        self.draws.seed()
    }

    /// Number of this attempt, from 1.
    #[getter]
    const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The parameters of this run. No other run sees changes that the function makes in them.
    #[getter]
    fn params<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(params) = &self.params {
            return Ok(params.bind(py).clone());
        }
        let params = match &self.parameters {
            Some(parameters) => parameters.bind(py).call1((self.draws.index,))?,
            None => py.None().into_bound(py),
        };
        self.params = Some(params.clone().unbind());
        Ok(params)
    }

    /// The random numbers of this run: a `random.Random`.
    #[getter]
    fn random<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.draws.random(py)
    }

    /// The random numbers of this run for NumPy: a `numpy.random.Generator`.
    #[getter]
    fn numpy<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.draws.numpy(py)
    }

    /// The random numbers that the runs of this replication share, one run of each parameter set.
    #[getter]
    fn common<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, CommonDraws>> {
        if self.common.is_none() {
            self.common = Some(Py::new(py, CommonDraws::new(&self.draws, self.draws.index / self.sets))?);
        }
        Ok(self.common.as_ref().map(|common| common.bind(py).clone()).expect("it is there"))
    }

    fn __repr__(&self) -> String {
        format!("Run(index={}, seed={}, attempt={})", self.draws.index, self.seed(), self.attempt)
    }
}

impl Run {
    /// A placeholder before the first run of a campaign.
    pub const fn of_campaign(draws: Draws, sets: u64, parameters: Option<Py<PyAny>>) -> Self {
        Self { draws, attempt: 0, sets, parameters, params: None, common: None }
    }

    /// The next run. It gets the generators of this one that nobody has stored.
    pub fn next<'py>(this: &Bound<'py, Self>, index: u64, attempt: u32) -> PyResult<Bound<'py, Self>> {
        let py = this.py();
        // A borrow counts as a reference.
        let is_referenced = ref_count(this.as_ptr()) > 1;
        let mut run = this.borrow_mut();
        let sets = run.sets;
        let parameters = run.parameters.as_ref().map(|made| made.clone_ref(py));
        let common = if is_referenced { None } else { run.common.take() };
        let common = common.and_then(|common| CommonDraws::move_to(common, py, index / sets));
        let draws = run.draws.next(py, index, is_referenced);
        Bound::new(py, Self { attempt, common, ..Self::of_campaign(draws, sets, parameters) })
    }
}
