//! A mutex without poisoning.

/// A panic while the lock is held leaves the value usable: no critical section of this crate leaves
/// it half-changed.
#[derive(Debug, Default)]
pub(crate) struct Lock<T>(std::sync::Mutex<T>);

impl<T> Lock<T> {
    pub(crate) fn lock(&self) -> std::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
