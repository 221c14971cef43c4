//! The log of Rust threads, on its way to Python.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use tidewire_engine::raw::Mutex;

use crate::interpreter::attach::try_attach;
use crate::interpreter::exit::ExitPermit;
use crate::interpreter::py_ref::PyRef;

/// Lines that may wait for the interpreter: all that a hub says at one go of what strangers do, and
/// as much again of what nodes do.
const LOG_LINES: usize = 2_048;
/// Interval of reports of omitted lines, while there is more to log than can be logged.
const LOG_SUM: Duration = Duration::from_secs(1);
/// Idle time after which the logging thread ends.
const LOG_IDLE: Duration = Duration::from_millis(500);

/// Hands lines to a function of Python, on a thread of its own: those who log never wait for the
/// interpreter. The thread ends when there was nothing to log for a while, and the next line starts
/// another one.
pub struct Logger(Arc<Lines>);

struct Lines {
    /// Queue to the logging thread, while there is one.
    sender: Mutex<Option<SyncSender<LogLine>>>,
    /// Lines lost for lack of capacity since the last report of them.
    left_out: AtomicU64,
    log: PyRef<PyAny>,
}

/// True for a problem, the text of the line, and the permit to log it.
type LogLine = (bool, String, ExitPermit);

impl Logger {
    /// `log` is called with a line, and true for a problem.
    pub fn new(log: Py<PyAny>) -> Self {
        Self(Arc::new(Lines { sender: Mutex::new(None), left_out: AtomicU64::new(0), log: PyRef::from(log) }))
    }

    /// Logs a problem.
    pub fn warn(&self, line: &str) {
        self.log(true, line.to_owned());
    }

    /// Logs a line. If too many lines are queued, it is omitted, and a later line reports the
    /// number. The end of the program waits for queued lines.
    pub fn log(&self, is_wrong: bool, line: String) {
        let Some(permit) = ExitPermit::take() else { return };
        let mut sender = self.0.sender.lock();
        let send = sender.get_or_insert_with(|| {
            let (send, lines) = sync_channel(LOG_LINES);
            let of = Arc::clone(&self.0);
            // Without a thread there are no lines.
            drop(Builder::new().name("tidewire-log".to_owned()).spawn(move || of.log_all(&lines)));
            send
        });
        if send.try_send((is_wrong, line, permit)).is_err() {
            self.0.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Lines {
    /// Logs what comes, until there was nothing for a while.
    fn log_all(&self, lines: &Receiver<LogLine>) {
        let mut summed = Instant::now();
        while let Some((is_wrong, line, _permit)) = self.next(lines, &mut summed) {
            let logged = try_attach(|py| {
                if let Err(error) = self.log.call1(py, (line, is_wrong)) {
                    error.write_unraisable(py, None);
                }
            });
            if logged.is_none() {
                // The program is at its end, and nobody reads on.
                return;
            }
        }
    }

    fn next(&self, lines: &Receiver<LogLine>, summed: &mut Instant) -> Option<LogLine> {
        let sums = summed.elapsed() >= LOG_SUM && self.left_out.load(Ordering::Relaxed) > 0;
        if !sums && let Ok(line) = lines.recv_timeout(LOG_IDLE) {
            return Some(line);
        }
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        if left_out > 0 {
            *summed = Instant::now();
            let line = format!("{left_out} more lines are left out: they came faster than they could be logged");
            return Some((true, line, ExitPermit::take()?));
        }
        let mut sender = self.sender.lock();
        // Senders hold the lock: a line that is not here now goes to another thread.
        let line = lines.try_recv().ok();
        if line.is_none() {
            *sender = None;
        }
        line
    }
}
