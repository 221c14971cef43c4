//! Cost of a workload for each participating process: processor time and peak memory.

use std::fs;

use serde_json::{Map, Value};

use crate::Fault;

/// Processor time between a start and a stop, of this process and of others that are named.
pub struct Usage {
    processes: Vec<(String, i32)>,
    before_ns: Vec<u64>,
    spent_ns: Vec<u64>,
}

impl Usage {
    pub fn new(others: &[(String, i32)]) -> Self {
        let own = ("caller".to_owned(), std::process::id() as i32);
        let processes = std::iter::once(own).chain(others.iter().cloned()).collect();
        Self { processes, before_ns: Vec::new(), spent_ns: Vec::new() }
    }

    /// The clock of the workload is about to start.
    pub fn start(&mut self) {
        self.before_ns = self.processor_ns();
    }

    /// The clock has stopped.
    pub fn stop(&mut self) {
        let after = self.processor_ns();
        self.spent_ns = after.iter().zip(&self.before_ns).map(|(after, before)| after - before).collect();
    }

    /// Microseconds for each of `count`, and megabytes at the peak, which includes the start and
    /// the warm-up.
    pub fn add_to(&self, figures: &mut Map<String, Value>, count: usize) -> Result<(), Fault> {
        for ((name, pid), spent_ns) in self.processes.iter().zip(&self.spent_ns) {
            figures.insert(format!("cpu_us_{name}"), (*spent_ns as f64 / 1e3 / count as f64).into());
            figures.insert(format!("peak_mb_{name}"), (peak_bytes(*pid)? as f64 / 1e6).into());
        }
        Ok(())
    }

    fn processor_ns(&self) -> Vec<u64> {
        self.processes.iter().map(|(_, pid)| clock_ns(!pid << 3 | 2)).collect()
    }
}

/// A clock of the kernel; those with a process in their number count its user and system time.
pub fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local that lives through the call.
    let failed = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(failed, 0, "clock {clock} can't be read: a process of the run has ended");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn peak_bytes(pid: i32) -> Result<u64, Fault> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmHWM")).ok_or("no VmHWM in /proc")?;
    let kilobytes: u64 = line.split_whitespace().nth(1).ok_or("no number in VmHWM")?.parse()?;
    Ok(kilobytes * 1024)
}
