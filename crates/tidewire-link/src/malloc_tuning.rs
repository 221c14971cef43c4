//! Settings of the allocator for freed memory: how soon it goes back to the system.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use std::hint::black_box;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
use std::sync::atomic::{AtomicBool, Ordering};

/// Reads and values from this length on have the allocator [keep what is freed](keep_freed).
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MUCH_BYTES: usize = 128 << 10;

/// Has the C allocator keep up to 64 MiB of freed memory, once a burst was long enough to be
/// returned to the system when freed.
///
/// The threshold of the allocator starts at 128 KiB. With that threshold, the memory of each burst
/// comes new from the system, page by page, and goes back at once; this costs as much as the send
/// itself. The allocator adapts: it keeps twice the longest freed block of up to 32 MiB that it had
/// mapped on its own. So this function maps and frees one such block, to which nobody writes.
/// Settings of the user stay in force.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn keep_freed(bytes: usize) {
    // With what the allocator adds, it is not above 32 MiB.
    const BLOCK_BYTES: usize = (32 << 20) - (64 << 10);
    static DONE: AtomicBool = AtomicBool::new(false);
    if bytes >= MUCH_BYTES && !DONE.load(Ordering::Relaxed) && !DONE.swap(true, Ordering::Relaxed) {
        drop(black_box(Vec::<u8>::with_capacity(BLOCK_BYTES)));
    }
}

/// Other allocators have other rules.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn keep_freed(_: usize) {}
