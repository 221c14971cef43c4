//! Identity of a process, counted in forks, and values that each process has for itself.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::own_descriptors::take_descriptors;

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The number of forks between the process that loaded this crate and this one, as
/// [`leave_parent`] has counted them.
#[inline]
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// To be called in the child of a fork, by its only thread, before anything else of this crate.
/// Returns descriptors of the parent, each with the [`identity`](crate::identity) of its file.
///
/// Allocates nothing and takes no lock.
pub fn leave_parent() -> impl Iterator<Item = (i32, u64)> {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    take_descriptors()
}

/// A value that each process has for itself: a forked child does not meet what its parent's threads
/// did to theirs.
pub struct PerProcess<T> {
    value: OnceLock<T>,
    child: OnceLock<Box<Self>>,
}

impl<T: Default> PerProcess<T> {
    /// A value that is initialized when it is first needed.
    pub const fn new() -> Self {
        Self { value: OnceLock::new(), child: OnceLock::new() }
    }

    /// The value of this process. A child may call this right after [`leave_parent`], so that a
    /// fork of the child finds the value initialized.
    pub fn get(&self) -> &T {
        let mut mine = self;
        for _ in 0..generation() {
            mine = mine.child.get_or_init(|| Box::new(Self::new()));
        }
        mine.value.get_or_init(T::default)
    }
}

impl<T: Default> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}
