//! The random numbers of a run: its seed, and its generators for Python and NumPy.

#![allow(unsafe_code)]

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyAny;
use tidewire_core::campaign::random::{Key, Scope, Stream, Use, counter};
use tidewire_core::campaign::seed::{Seed, of_run};

use super::random::Philox;
use crate::errors::error;
use crate::interpreter::once::{Once, intern};

/// The numbers of one run or one replication. Generators are made when they are asked for.
pub struct Draws {
    key: Key,
    scope: Scope,
    pub index: u64,
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

/// The random numbers that the runs of one replication share: `run.common`.
#[pyclass(module = "tidewire._tidewire")]
pub struct CommonDraws {
    draws: Draws,
}

#[pymethods]
impl CommonDraws {
    /// Index of the replication.
    #[getter]
    const fn index(&self) -> u64 {
        self.draws.index
    }

    /// 64 bits that depend on the seed of the campaign and the replication alone.
    #[getter]
    fn seed(&self) -> u64 {
        self.draws.seed()
    }

    /// A `random.Random`.
    #[getter]
    fn random<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.draws.random(py)
    }

    /// A `numpy.random.Generator`.
    #[getter]
    fn numpy<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.draws.numpy(py)
    }

    fn __repr__(&self) -> String {
        format!("CommonDraws(index={}, seed={})", self.draws.index, self.seed())
    }
}

impl CommonDraws {
    pub const fn new(run: &Draws, replication: u64) -> Self {
        Self { draws: Draws::new(run.key, Scope::Replication, replication) }
    }

    /// Goes on to a replication, if nobody else has `this`.
    pub fn move_to(this: Py<Self>, py: Python<'_>, replication: u64) -> Option<Py<Self>> {
        if ref_count(this.as_ptr()) > 1 {
            return None;
        }
        let mut common = this.borrow_mut(py);
        common.draws = common.draws.next(py, replication, false);
        drop(common);
        Some(this)
    }
}

impl Draws {
    pub const fn of_run(key: Key, index: u64) -> Self {
        Self::new(key, Scope::Run, index)
    }

    const fn new(key: Key, scope: Scope, index: u64) -> Self {
        Self { key, scope, index, random: None, spare: None, numpy: None, spare_numpy: None }
    }

    pub fn seed(&self) -> u64 {
        of_run(self.key, self.index, self.scope)
    }

    pub fn random<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(random) = &self.random {
            return Ok(random.object.bind(py).clone());
        }
        let generator = match self.spare.take() {
            Some(spare) => spare,
            None => Generator::new(py, self.key)?,
        };
        generator.begin(py, Stream::new(self.key, counter(self.index, Use::Random, self.scope)))?;
        let object = generator.object.bind(py).clone();
        self.random = Some(generator);
        Ok(object)
    }

    pub fn numpy<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(numpy) = &self.numpy {
            return Ok(numpy.parts[0].bind(py).clone());
        }
        let numpy = match self.spare_numpy.take() {
            Some(spare) => spare,
            None => NumpyStream::new(py, self.key)?,
        };
        let begin = counter(self.index, Use::Numpy, self.scope);
        numpy.stream.bind(py).call_method1(intern!(py, "begin"), (begin,))?;
        let generator = numpy.parts[0].bind(py).clone();
        self.numpy = Some(numpy);
        Ok(generator)
    }

    /// The numbers of another index. They get the generators of these that nobody has stored; of a
    /// run that somebody has, the spare ones alone.
    pub fn next(&mut self, py: Python<'_>, index: u64, is_referenced: bool) -> Self {
        if !is_referenced && self.random.as_ref().is_some_and(|random| random.is_alone(py)) {
            self.spare = self.random.take();
        }
        if !is_referenced && self.numpy.as_ref().is_some_and(|numpy| numpy.is_alone(py)) {
            self.spare_numpy = self.numpy.take();
        }
        let (spare, spare_numpy) = (self.spare.take(), self.spare_numpy.take());
        Self { spare, spare_numpy, ..Self::new(self.key, self.scope, index) }
    }
}

impl NumpyStream {
    fn new(py: Python<'_>, key: Key) -> PyResult<Self> {
        static CLASS: Once<Py<PyAny>> = Once::new();
        let stream = CLASS.of(py, "tidewire._campaigns.random", "NumpyStream")?.call1((key,))?;
        let parts = [stream.getattr(intern!(py, "generator"))?, stream.getattr(intern!(py, "bits"))?];
        let referrers = [ref_count(parts[0].as_ptr()), ref_count(parts[1].as_ptr())];
        Ok(Self { stream: stream.unbind(), parts: parts.map(Bound::unbind), referrers })
    }

    fn is_alone(&self, py: Python<'_>) -> bool {
        self.parts.iter().zip(self.referrers).all(|(part, referrers)| ref_count(part.bind(py).as_ptr()) == referrers)
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

    fn begin(&self, py: Python<'_>, stream: Stream) -> PyResult<()> {
        self.philox.bind(py).borrow_mut().stream = stream;
        // A number that `gauss` has in store belongs to the run before.
        self.object.bind(py).setattr(intern!(py, "gauss_next"), py.None())
    }

    /// True if nobody has it, nor a method of it: the object refers to each part once.
    fn is_alone(&self, py: Python<'_>) -> bool {
        ref_count(self.object.bind(py).as_ptr()) == 1
            && self.methods.iter().all(|method| ref_count(method.bind(py).as_ptr()) == 2)
            && ref_count(self.philox.bind(py).as_ptr()) == 4
    }
}

/// How many references there are to an object.
pub fn ref_count(object: *mut ffi::PyObject) -> ffi::Py_ssize_t {
    // SAFETY: it is an object that the caller has a reference to, and the interpreter is held.
    unsafe { ffi::Py_REFCNT(object) }
}

/// The key of a campaign's seed; without one that of 0.
pub fn key_of(campaign_seed: Option<&Bound<'_, PyAny>>) -> PyResult<Key> {
    Ok(campaign_seed.map_or(Ok(Seed::from(0)), seed)?.key())
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
