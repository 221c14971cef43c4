//! Settings of the allocator for freed memory: how soon it goes back to the system.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use std::hint::black_box;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
use std::sync::atomic::{AtomicBool, Ordering};

/// Reads and values from this length on have the allocator [keep what is freed](keep_freed).
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MUCH_BYTES: usize = 128 << 10;

/// Has the allocator of the C library keep up to 64 MiB of what is freed, once so many bytes have
/// come at one go that it would give them back to the system when they are freed.
///
/// It begins with 128 KiB: then the memory of each burst is new from the system, page by page, and
/// goes back to it at once, which costs as much as to send it. By its own rule it keeps twice the
/// longest block of up to 32 MiB that it has had from the system by itself and was freed; so it is
/// given one, which nobody writes to. What the user has set stays in force.
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
