//! The locks of `std`, without poisoning: a panic under one of them is a bug, and is reported where
//! it happens.
//!
//! The locks of `parking_lot` store their waiting threads in one table of the process. A fork
//! copies that table as it is, with the parent's threads in it and its rows perhaps locked. Threads
//! of the child then spin over it for ever (`docs/decisions/0009-*`). Each lock of `std` is a word
//! of its own.

use std::sync::{self, PoisonError, RwLockReadGuard, RwLockWriteGuard, TryLockError};

pub use std::sync::MutexGuard;
use std::time::Duration;

/// A mutual exclusion lock.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A lock that is free.
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The value, which nobody else can reach.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lock that lets many read at once.
#[derive(Debug, Default)]
pub struct RwLock<T>(sync::RwLock<T>);

impl<T> RwLock<T> {
    /// A lock that is free.
    pub const fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }

    /// Waits until nobody writes.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody reads or writes.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes those who wait for a change under a lock.
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// A condition variable that nobody waits for.
    pub const fn new() -> Self {
        Self(sync::Condvar::new())
    }

    /// Wakes all who wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Waits for a change.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change, or until the time is up. The second answer: the time is up.
    pub fn wait_for<'a, T>(&self, guard: MutexGuard<'a, T>, left: Duration) -> (MutexGuard<'a, T>, bool) {
        let (guard, wait) = self.0.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner);
        (guard, wait.timed_out())
    }
}
