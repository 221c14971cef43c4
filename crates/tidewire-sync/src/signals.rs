//! The signal mask of threads that belong to the runtime.

#[cfg(unix)]
use nix::sys::signal::{SigSet, Signal};

/// Signals that a thread raises itself, and signals that profilers use.
#[cfg(unix)]
const OWN: [Signal; 8] = [
    Signal::SIGABRT,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGILL,
    Signal::SIGPROF,
    Signal::SIGSEGV,
    Signal::SIGSYS,
    Signal::SIGTRAP,
];

/// Leaves the signals that are sent to the process to its other threads.
///
/// The system may hand a signal to any thread that does not block it. CPython handles signals in
/// its main thread. If another thread gets the signal, a main thread that waits for a lock is not
/// woken: Ctrl-C would do nothing. So threads that run no code of users call this first. Threads
/// that run such code must not: a process that is started there inherits the blocked signals.
#[cfg(unix)]
pub fn leave_signals() {
    let mut signals = SigSet::all();
    for own in OWN {
        signals.remove(own);
    }
    // Blocking signals fails for no set of signals.
    let _ = signals.thread_block();
}

/// Leaves the signals that are sent to the process to its other threads.
#[cfg(not(unix))]
pub fn leave_signals() {}
