//! The random numbers of one run: the words of a Philox stream, with the two methods that
//! `random.Random` is made of.

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt};
use tidewire_core::campaign::random::Stream;

use crate::interpreter::once::Once;

/// A stream of random words. Its methods stand in the `tw.RunRandom` of a run as attributes of
/// their own.
#[pyclass(module = "tidewire._tidewire")]
pub struct Philox {
    pub stream: Stream,
}

/// Key (two words), counter (four words), used words of the block.
type Position = ([u64; 2], [u64; 4], usize);

#[pymethods]
impl Philox {
    #[new]
    #[pyo3(signature = (key, counter, used = 4))]
    fn new(key: [u64; 2], counter: [u64; 4], used: usize) -> Self {
        let mut stream = Stream::new(key, counter);
        stream.set_position((key, counter, used));
        Self { stream }
    }

    /// The next number in [0, 1).
    fn random(&mut self) -> f64 {
        self.stream.unit()
    }

    /// An integer of so many random bits.
    fn getrandbits<'py>(&mut self, k: &Bound<'py, PyInt>) -> PyResult<Bound<'py, PyAny>> {
        let py = k.py();
        match k.extract::<u32>() {
            Ok(0) => 0_u64.into_pyobject(py).map(Bound::into_any).map_err(Into::into),
            Ok(bits @ 1..=64) => self.stream.bits(bits).into_pyobject(py).map(Bound::into_any).map_err(Into::into),
            _ => self.many_bits(k),
        }
    }

    /// Position in the stream: key, counter of the next block, used words of the last.
    fn position(&self) -> Position {
        self.stream.position()
    }

    /// Goes to a position.
    fn move_to(&mut self, position: Position) {
        self.stream.set_position(position);
    }
}

impl Philox {
    #[cold]
    fn many_bits<'py>(&mut self, k: &Bound<'py, PyInt>) -> PyResult<Bound<'py, PyAny>> {
        static FROM_BYTES: Once<Py<PyAny>> = Once::new();
        let py = k.py();
        if k.lt(0)? {
            return Err(PyValueError::new_err("number of bits must be non-negative"));
        }
        let bits: usize = k.extract().map_err(|_| PyOverflowError::new_err("number of bits is too large"))?;
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(bits.div_ceil(64).saturating_mul(8))
            .map_err(|_| PyOverflowError::new_err("number of bits is too large"))?;
        for _ in 0..bits / 64 {
            bytes.extend_from_slice(&self.stream.word().to_le_bytes());
        }
        if !bits.is_multiple_of(64) {
            bytes.extend_from_slice(&self.stream.bits((bits % 64) as u32).to_le_bytes());
        }
        let from_bytes = FROM_BYTES.of(py, "builtins", "int.from_bytes")?;
        from_bytes.call1((PyBytes::new(py, &bytes), "little"))
    }
}
