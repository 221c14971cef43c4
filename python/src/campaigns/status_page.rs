//! A page of memory that a worker process shares with its supervisor: its run, the run's start, and
//! its progress.
//!
//! The worker writes the time before the run, so that a reader of a run sees no time before the
//! run's own.

#![allow(unsafe_code)]

use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::fcntl_getfd;
use rustix::mm::{MapFlags, ProtFlags, mmap};

/// Words of the page; `tidewire/_campaigns/process.py` has the same numbers.
const WORDS: usize = 4;
const RUN: usize = 0;
const SINCE_US: usize = 1;
const WORKER: usize = 2;
const ENDED: usize = 3;

/// The page, or memory of this process if no supervisor reads it.
pub struct StatusPage {
    page: NonNull<AtomicU64>,
    file: Option<RawFd>,
}

// SAFETY: all it refers to are atomic numbers that stay where they are as long as the process
// lives.
unsafe impl Send for StatusPage {}
// SAFETY: as for `Send`.
unsafe impl Sync for StatusPage {}

impl StatusPage {
    /// The page behind a file; none of a worker without a supervisor.
    pub fn open(file: Option<RawFd>) -> std::io::Result<Self> {
        let length = WORDS * size_of::<AtomicU64>();
        let (access, shared) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        let page = match file {
            // SAFETY: the caller keeps the file open during this call; the memory is new, and never
            // given back.
            Some(file) => unsafe { mmap(ptr::null_mut(), length, access, shared, BorrowedFd::borrow_raw(file), 0)? },
            // SAFETY: the memory is new, and never given back.
            None => unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), length, access, MapFlags::PRIVATE)? },
        };
        let page = NonNull::new(page.cast()).ok_or_else(|| std::io::Error::other("no memory"))?;
        Ok(Self { page, file })
    }

    /// False if a run has closed the file behind the page, with those of the storage, presumably.
    #[inline]
    pub fn has_file(&self) -> bool {
        // SAFETY: the call only asks about the number, which may belong to no file.
        self.file.is_none_or(|file| unsafe { fcntl_getfd(BorrowedFd::borrow_raw(file)) }.is_ok())
    }

    /// A run begins.
    #[inline]
    pub fn begin(&self, run: u64, now_us: u64) {
        self.word(SINCE_US).store(now_us, Ordering::Release);
        self.word(RUN).store(run + 1, Ordering::Release);
    }

    /// No run is at hand, and so many have ended.
    pub fn rest(&self, ended: u64) {
        self.word(ENDED).fetch_add(ended, Ordering::Release);
        self.word(RUN).store(0, Ordering::Release);
    }

    /// The number of this worker in its campaign.
    pub fn joined(&self, worker: u64) {
        self.word(WORKER).store(worker, Ordering::Release);
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        debug_assert!(index < WORDS);
        // SAFETY: the page is longer than its words, aligned, and lives as long as the process.
        unsafe { self.page.add(index).as_ref() }
    }
}
