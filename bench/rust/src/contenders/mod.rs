//! Every contender, one file each.

use crate::job::Job;
use crate::outcome::Outcome;

pub mod actix;
pub mod limits;
pub mod ractor;
pub mod swap_vec;
pub mod thread_channels;
#[cfg(feature = "tidewire")]
pub mod tidewire;
pub mod tokio_mpsc;

/// Something that can run workloads.
pub struct Contender {
    /// Its name on the command line and in reports.
    pub name: &'static str,
    /// Runs a job; nothing if it has no form of that workload.
    pub run: fn(&Job) -> Option<Outcome>,
}

/// All of them, ours first.
pub const ALL: &[Contender] = &[
    #[cfg(feature = "tidewire")]
    Contender { name: "tidewire", run: tidewire::run },
    #[cfg(feature = "tidewire")]
    Contender { name: "tidewire-task", run: tidewire::run_from_task },
    #[cfg(feature = "tidewire")]
    Contender { name: "tidewire-fn", run: tidewire::run_functions },
    Contender { name: "ractor", run: ractor::run },
    Contender { name: "actix", run: actix::run },
    Contender { name: "std-channel", run: thread_channels::run },
    Contender { name: "tokio-mpsc", run: tokio_mpsc::run },
    Contender { name: "swap-vec", run: swap_vec::run },
    Contender { name: "futex", run: limits::run_futex },
    Contender { name: "condvar", run: limits::run_condvar },
    Contender { name: "atomic", run: limits::run_atomic },
    Contender { name: "clock", run: limits::run_clock },
];

/// The contender of that name.
pub fn find(name: &str) -> Option<&'static Contender> {
    ALL.iter().find(|contender| contender.name == name)
}

/// A tokio runtime with `threads` workers; one means the current-thread form, which is the fastest
/// that tokio has.
pub(crate) fn tokio_runtime(threads: usize) -> tokio::runtime::Runtime {
    let mut builder = match threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    if threads > 1 {
        builder.worker_threads(threads);
    }
    builder.enable_time().build().expect("a runtime can be built")
}

/// Runs `work` as a task of the runtime (on a worker, where there are workers) and waits for it.
pub(crate) fn inside<T, F>(threads: usize, work: F) -> T
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let runtime = tokio_runtime(threads);
    let result = runtime.block_on(async { tokio::spawn(work).await.expect("a workload does not panic") });
    runtime.shutdown_background();
    result
}
