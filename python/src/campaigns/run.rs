//! `tw.Run`: the argument of a campaign's function for one run.

#![allow(unsafe_code)]

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyAny;
use tidewire_core::campaign::random::{Key, Stream, Use, counter};
use tidewire_core::campaign::seed::{Seed, of_run};

use super::random::Philox;
use crate::errors::error;
use crate::interpreter::once::{Once, intern};

/// One run.
#[pyclass(generic, module = "tidewire._tidewire")]
pub struct Run {
    key: Key,
    index: u64,
    attempt: u32,
    /// Gives the parameters of a run: a call with its index.
    parameters: Option<Py<PyAny>>,
    params: Option<Py<PyAny>>,
    random: Option<Generator>,
    /// The generator of an earlier run that nobody else has.
    spare: Option<Generator>,
    numpy: Option<NumpyStream>,
    spare_numpy: Option<NumpyStream>,
}

/// A `random.Random` on a stream, and what it is made of.
struct Generator {
    object: Py<PyAny>,
    philox: Py<Philox>,
    methods: [Py<PyAny>; 2],
}

/// A `numpy.random.Generator` on a stream, what moves it, and how many refer to its parts while
/// nobody else does.
struct NumpyStream {
    stream: Py<PyAny>,
    parts: [Py<PyAny>; 2],
    referrers: [ffi::Py_ssize_t; 2],
}

#[pymethods]
impl Run {
    #[new]
    #[pyo3(signature = (index = 0, *, campaign_seed = None, params = None, attempt = 1))]
    fn new(
        py: Python<'_>,
        index: u64,
        campaign_seed: Option<&Bound<'_, PyAny>>,
        params: Option<Py<PyAny>>,
        attempt: u32,
    ) -> PyResult<Self> {
        let key = campaign_seed.map_or(Ok(Seed::from(0)), seed)?.key();
        let params = params.unwrap_or_else(|| pyo3::types::PyDict::new(py).into_any().unbind());
        Ok(Self { params: Some(params), attempt, index, ..Self::of_campaign(key, None) })
    }

    /// Index of the run in its campaign, from 0.
    #[getter]
    fn index(&self) -> u64 {
        self.index
    }

    /// 64 bits that depend on the seed of the campaign and the index of the run alone.
    #[getter]
    fn seed(&self) -> u64 {
        of_run(self.key, self.index)
    }

    /// Number of this attempt, from 1.
    #[getter]
    fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The parameters of this run. No other run sees changes that the function makes in them.
    #[getter]
    fn params<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(params) = &self.params {
            return Ok(params.bind(py).clone());
        }
        let params = match &self.parameters {
            Some(parameters) => parameters.bind(py).call1((self.index,))?,
            None => py.None().into_bound(py),
        };
        self.params = Some(params.clone().unbind());
        Ok(params)
    }

    /// The random numbers of this run: a `random.Random`.
    #[getter]
    fn random<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(random) = &self.random {
            return Ok(random.object.bind(py).clone());
        }
        let generator = match self.spare.take() {
            Some(spare) => spare,
            None => Generator::new(py, self.key)?,
        };
        generator.begin(py, self.key, self.index)?;
        let object = generator.object.bind(py).clone();
        self.random = Some(generator);
        Ok(object)
    }

    /// The random numbers of this run for NumPy: a `numpy.random.Generator`.
    #[getter]
    fn numpy<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(numpy) = &self.numpy {
            return Ok(numpy.parts[0].bind(py).clone());
        }
        let numpy = match self.spare_numpy.take() {
            Some(spare) => spare,
            None => NumpyStream::new(py, self.key)?,
        };
        numpy.stream.bind(py).call_method1(intern!(py, "begin"), (self.index,))?;
        let generator = numpy.parts[0].bind(py).clone();
        self.numpy = Some(numpy);
        Ok(generator)
    }

    fn __repr__(&self) -> String {
        format!("Run(index={}, seed={}, attempt={})", self.index, self.seed(), self.attempt)
    }
}

impl Run {
    /// A placeholder before the first run of a campaign.
    pub const fn of_campaign(key: Key, parameters: Option<Py<PyAny>>) -> Self {
        Self {
            key,
            index: 0,
            attempt: 0,
            parameters,
            params: None,
            random: None,
            spare: None,
            numpy: None,
            spare_numpy: None,
        }
    }

    /// The next run. It gets the generators of this one that nobody has stored.
    pub fn next<'py>(this: &Bound<'py, Self>, index: u64, attempt: u32) -> PyResult<Bound<'py, Self>> {
        let py = this.py();
        // A borrow counts as a reference.
        let is_referenced = held(this.as_ptr()) > 1;
        let mut run = this.borrow_mut();
        let (spare, spare_numpy) = if is_referenced {
            (run.spare.take(), run.spare_numpy.take())
        } else {
            (run.give_spare(py), run.give_spare_numpy(py))
        };
        let parameters = run.parameters.as_ref().map(|made| made.clone_ref(py));
        Bound::new(py, Self { index, attempt, spare, spare_numpy, ..Self::of_campaign(run.key, parameters) })
    }

    /// Its generator for another run, unless somebody else has it or a part of it.
    fn give_spare(&mut self, py: Python<'_>) -> Option<Generator> {
        if self.random.as_ref().is_some_and(|random| random.is_alone(py)) {
            self.spare = self.random.take();
        }
        self.spare.take()
    }

    /// The same for NumPy.
    fn give_spare_numpy(&mut self, py: Python<'_>) -> Option<NumpyStream> {
        if self.numpy.as_ref().is_some_and(|numpy| numpy.is_alone(py)) {
            self.spare_numpy = self.numpy.take();
        }
        self.spare_numpy.take()
    }
}

impl NumpyStream {
    fn new(py: Python<'_>, key: Key) -> PyResult<Self> {
        static CLASS: Once<Py<PyAny>> = Once::new();
        let stream = CLASS.of(py, "tidewire._campaigns.random", "NumpyStream")?.call1((key,))?;
        let parts = [stream.getattr(intern!(py, "generator"))?, stream.getattr(intern!(py, "bits"))?];
        let referrers = [held(parts[0].as_ptr()), held(parts[1].as_ptr())];
        Ok(Self { stream: stream.unbind(), parts: parts.map(Bound::unbind), referrers })
    }

    fn is_alone(&self, py: Python<'_>) -> bool {
        self.parts.iter().zip(self.referrers).all(|(part, referrers)| held(part.bind(py).as_ptr()) == referrers)
    }
}

impl Generator {
    fn new(py: Python<'_>, key: Key) -> PyResult<Self> {
        static CLASS: Once<Py<PyAny>> = Once::new();
        let philox = Bound::new(py, Philox { stream: Stream::new(key, [0; 4]) })?;
        let methods = [philox.getattr(intern!(py, "random"))?, philox.getattr(intern!(py, "getrandbits"))?];
        let class = CLASS.of(py, "tidewire._campaigns.random", "RunRandom")?;
        let object = class.call1((&philox, &methods[0], &methods[1]))?;
        Ok(Self { object: object.unbind(), philox: philox.unbind(), methods: methods.map(Bound::unbind) })
    }

    /// Goes to the beginning of a run's stream.
    fn begin(&self, py: Python<'_>, key: Key, index: u64) -> PyResult<()> {
        self.philox.bind(py).borrow_mut().stream = Stream::new(key, counter(index, Use::Random));
        // A number that `gauss` has in store belongs to the run before.
        self.object.bind(py).setattr(intern!(py, "gauss_next"), py.None())
    }

    /// True if nobody has it, nor a method of it: the object refers to each part once.
    fn is_alone(&self, py: Python<'_>) -> bool {
        held(self.object.bind(py).as_ptr()) == 1
            && self.methods.iter().all(|method| held(method.bind(py).as_ptr()) == 2)
            && held(self.philox.bind(py).as_ptr()) == 4
    }
}

fn held(object: *mut ffi::PyObject) -> ffi::Py_ssize_t {
    // SAFETY: it is an object that the caller has a reference to, and the interpreter is held.
    unsafe { ffi::Py_REFCNT(object) }
}

/// A seed as Python has it: an integer or text.
pub fn seed(value: &Bound<'_, PyAny>) -> PyResult<Seed> {
    let py = value.py();
    let refuse = |text: &str| error(py, "InvalidArgument", text, &[]);
    let made = if value.is_instance_of::<pyo3::types::PyBool>() {
        return Err(refuse("seed: a truth value is not allowed: give an integer or text"));
    } else if value.is_instance_of::<pyo3::types::PyInt>() {
        // Python refuses to write very long integers; so does a seed.
        let digits = value.str().map_err(|_| refuse("seed: an integer of too many digits: pass text"))?;
        Seed::integer(digits.to_str()?)
    } else if let Ok(text) = value.cast::<pyo3::types::PyString>() {
        let text = text.to_str().map_err(|_| refuse("seed: text with a lone surrogate: leave it out"))?;
        Seed::text(text)
    } else {
        let kind = value.get_type().name()?;
        return Err(refuse(&format!("seed: {kind} is not allowed: give an integer or text")));
    };
    made.map_err(|failure| refuse(&failure.to_string()))
}
