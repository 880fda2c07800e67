//! A mutex without poisoning.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A panic while the lock is held ends one request, and no critical section of this crate leaves
/// its value half-changed, so the next holder may continue.
#[derive(Debug, Default)]
pub(crate) struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
