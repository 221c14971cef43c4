//! `LeaseTenure` of a lease for Python: the state machine of its holder. Times are seconds of
//! `time.monotonic()`.

use pyo3::prelude::*;

use tidewire_core::stream::lease_holder::LeaseHolder as Machine;

/// The lease of one holder.
#[pyclass(module = "tidewire._tidewire")]
pub struct LeaseTenure {
    machine: Machine,
}

#[pymethods]
impl LeaseTenure {
    #[new]
    fn new(ttl_us: u64) -> Self {
        Self { machine: Machine::new(ttl_us) }
    }

    /// The lease was granted.
    fn granted(&mut self, fence: u64, now: f64) {
        self.machine.granted(fence, us(now));
    }

    /// The lease was renewed by a call that began then.
    fn renewed(&mut self, begun: f64) {
        self.machine.renewed(us(begun));
    }

    /// A renewal failed, and the lease may still be held.
    fn failed(&mut self, now: f64) {
        self.machine.failed(us(now));
    }

    /// The lease was lost or given back. Gives its fence, if there was one.
    fn end(&mut self) -> Option<u64> {
        self.machine.end()
    }

    /// The fence, if the lease is held for sure.
    fn fence(&self, now: f64) -> Option<u64> {
        self.machine.fence(us(now))
    }

    /// The fence of the newest grant, held for sure or not.
    fn newest(&self) -> Option<u64> {
        self.machine.newest()
    }

    /// When to renew it next, and until when it is held. None: there is no lease.
    fn times(&self) -> Option<(f64, f64)> {
        self.machine.times_us().map(|(renew_us, until_us)| (renew_us as f64 / 1e6, until_us as f64 / 1e6))
    }
}

fn us(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1e6) as u64
}
