//! Storage backend on a folder: calls from any thread run on one thread, with one sync for all
//! calls that arrived during the last sync.

mod calls;
mod clock;
mod home_thread;
mod wait_queue;
mod waiting_calls;

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::fs::{FlockOperation, flock};
use tidewire_backend::home::{Answer, Capabilities, Commits, Home, HomeError, HomeErrorKind, HomeResult, answer};

use crate::disk::Real;
use crate::folder::{Folder, Notice, Sizes};
use clock::Clock;
use home_thread::{HomeThread, Shared};

/// How a folder is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Sizes of files.
    pub sizes: Sizes,
}

/// A storage backend in a folder.
#[derive(derive_more::Debug)]
#[debug("Embedded({place:?})")]
pub struct Embedded {
    shared: Arc<Shared>,
    place: String,
    capabilities: Capabilities,
    notices: Vec<Notice>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Opens a folder; creates it if it does not exist. Recovers the folder after a crash; see
/// [`Embedded::notices`].
///
/// # Errors
///
/// `Locked` if another process has it open, `Disk`, `Corrupt`, `Foreign`.
pub fn open(path: &Path, options: Options) -> HomeResult<Arc<Embedded>> {
    let place = path.display().to_string();
    let lock = lock(path, &place)?;
    let clock = Clock::now();
    let folder = open_folder(path, options.sizes, clock.now_us())?;
    let clock = clock.not_before(folder.opened_us());
    let notices = folder.notices().to_vec();
    let shared = Arc::new(Shared::default());
    tidewire_sync::clock::register(&shared);
    let work = HomeThread::new(folder, (path.to_owned(), lock), options.sizes, clock, Arc::clone(&shared));
    let thread = thread::Builder::new().name("tidewire-home".to_owned()).spawn(move || {
        tidewire_sync::leave_signals();
        work.run();
    });
    let thread = thread.map_err(|error| {
        HomeError::new(HomeErrorKind::Disk, format!("threads: the system gives none: {error}; end some"))
    })?;
    let capabilities = crate::folder::capabilities();
    Ok(Arc::new(Embedded { shared, place, capabilities, notices, thread: Mutex::new(Some(thread)) }))
}

fn open_folder(path: &Path, sizes: Sizes, now_us: u64) -> HomeResult<Folder> {
    let disk = Real::new(path).map_err(|error| unusable(path, &error))?;
    let random = getrandom::u64().map_err(|error| {
        HomeError::new(HomeErrorKind::Disk, format!("random numbers: the system gives none: {error}"))
    })?;
    Folder::open(Box::new(disk), sizes, random, now_us)
}

fn lock(path: &Path, place: &str) -> HomeResult<File> {
    std::fs::create_dir_all(path).map_err(|error| unusable(path, &error))?;
    let name = path.join("tidewire.lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&name);
    let file = file.map_err(|error| unusable(&name, &error))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(tidewire_sync::of_this_process(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let fix = "stop that, or join the node that has it with its address";
            let text = format!("{place}: another node or process has this data folder open; {fix}");
            Err(HomeError::new(HomeErrorKind::Locked, text))
        }
        Err(error) => Err(unusable(&name, &error.into())),
    }
}

fn unusable(path: &Path, error: &std::io::Error) -> HomeError {
    let text = format!("{}: can't be used: {error}; name a folder that can be written", path.display());
    HomeError::new(HomeErrorKind::Disk, text)
}

impl Embedded {
    /// Repairs when the folder was opened: writes that a crash has torn, of which nothing was
    /// acked.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    fn join(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id()) {
            let _panicked = thread.join();
        }
    }
}

impl Home for Embedded {
    fn commits(&self) -> Option<Commits> {
        Some(self.shared.commits())
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn place(&self) -> &str {
        &self.place
    }

    fn close(&self) -> Answer<()> {
        let (teller, closed) = answer();
        self.shared.close(teller);
        closed
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        let (teller, closed) = answer();
        self.shared.close(teller);
        drop(closed);
        self.join();
    }
}
