//! The descriptors that the child of a fork must not keep: sockets, ports, pipes, locks of folders.
//!
//! A socket ends, a port is free and a lock is released once the last process has closed its
//! descriptor. A child that keeps a copy holds up all three. The table needs no lock, so the child
//! may read it whatever other threads did at the fork. A closed descriptor stays listed. The
//! identity of its file tells it from a later one with the same number.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use nix::sys::stat::{FileStat, fstat};

/// Descriptors with higher numbers stay open in children.
const DESCRIPTORS_MAX: usize = 65_536;

/// The identity of the file of each descriptor; 0: it is not listed.
static IDENTITIES: [AtomicU64; DESCRIPTORS_MAX] = [const { AtomicU64::new(0) }; DESCRIPTORS_MAX];
static LISTED: AtomicUsize = AtomicUsize::new(0);

/// Lists a descriptor that belongs to this process alone, and gives it back.
pub fn of_this_process<T: AsFd>(owner: T) -> T {
    use std::os::fd::AsRawFd as _;

    let descriptor = owner.as_fd();
    if let Ok(number) = usize::try_from(descriptor.as_raw_fd())
        && let Some(place) = IDENTITIES.get(number)
        && let Ok(file) = fstat(descriptor)
    {
        place.store(identity(&file), Ordering::Relaxed);
        LISTED.fetch_max(number + 1, Ordering::Release);
    }
    owner
}

/// The numbers of the listed descriptors, each with the [`identity`] that its file had.
pub(crate) fn take_descriptors() -> impl Iterator<Item = (i32, u64)> {
    let listed = IDENTITIES.iter().take(LISTED.swap(0, Ordering::Acquire));
    listed.zip(0..).filter_map(|(place, number)| match place.swap(0, Ordering::Relaxed) {
        0 => None,
        identity => Some((number, identity)),
    })
}

/// A number that tells files apart. Never 0.
pub fn identity(file: &FileStat) -> u64 {
    #[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
    let (device, inode) = (file.st_dev as u64, file.st_ino as u64);
    (device.rotate_left(48) ^ inode).max(1)
}
