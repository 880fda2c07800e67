//! Which session has which box. Two who want a session's box at once get the same one.
//!
//! A box belongs to the session for which it was made and is never handed to another. It ends with its session, with the
//! server, or by itself, and then the next who wants one gets a new one. Nothing of the boxes is on record: a server that
//! starts has none.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use executor::resident::Resident;
use policy::Isolation;
use record::SessionName;

/// Boxes at once.
const MOST: usize = 10;

#[derive(Debug, Default)]
pub(crate) struct SessionBoxes {
    seats: Mutex<HashMap<SessionName, Arc<Seat>>>,
}

/// One session's place. Whoever makes its box holds it, and others wait.
#[derive(Debug, Default)]
struct Seat {
    kept: tokio::sync::Mutex<Option<Kept>>,
}

#[derive(Debug)]
struct Kept {
    isolation: Isolation,
    resident: Arc<Resident>,
}

impl SessionBoxes {
    /// The session's box, as strong as this; a new one where there is none, or where it is of another make.
    pub(crate) async fn acquire(
        &self,
        name: &SessionName,
        isolation: Isolation,
        make: impl Future<Output = Result<Resident, executor::Error>>,
    ) -> Result<Arc<Resident>, executor::Error> {
        let seat = {
            let mut seats = self.lock();
            let is_new = !seats.contains_key(name);
            if is_new && seats.len() >= MOST && !forget_empty(&mut seats) {
                let why = format!("{MOST} sessions have boxes already; remove one of them");
                return Err(executor::Error::BackendUnavailable { backend: "aio", why });
            }
            Arc::clone(seats.entry(name.clone()).or_default())
        };
        let mut kept = seat.kept.lock().await;
        if let Some(Kept { isolation: of, resident }) = kept.as_ref() {
            if *of == isolation && resident.is_alive() {
                return Ok(Arc::clone(resident));
            }
            resident.end().await;
            *kept = None;
        }
        let resident = Arc::new(make.await?);
        *kept = Some(Kept { isolation, resident: Arc::clone(&resident) });
        Ok(resident)
    }

    /// The box of a session that has one.
    pub(crate) async fn find(&self, name: &SessionName) -> Option<Arc<Resident>> {
        let seat = self.lock().get(name).cloned()?;
        let kept = seat.kept.lock().await;
        kept.as_ref().map(|kept| Arc::clone(&kept.resident)).filter(|resident| resident.is_alive())
    }

    /// Ends a session's box, if it has one, with everything in it.
    pub(crate) async fn end(&self, name: &SessionName) {
        let seat = self.lock().remove(name);
        if let Some(seat) = seat
            && let Some(kept) = seat.kept.lock().await.take()
        {
            kept.resident.end().await;
        }
    }

    pub(crate) fn names(&self) -> Vec<SessionName> {
        self.lock().keys().cloned().collect()
    }

    pub(crate) async fn end_all(&self) {
        for name in self.names() {
            self.end(&name).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionName, Arc<Seat>>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes room where a box has ended by itself, or was never made. Whether there is some.
fn forget_empty(seats: &mut HashMap<SessionName, Arc<Seat>>) -> bool {
    let before = seats.len();
    seats.retain(|_, seat| match seat.kept.try_lock() {
        Ok(kept) => kept.as_ref().is_some_and(|kept| kept.resident.is_alive()),
        // Somebody is at it.
        Err(_) => true,
    });
    seats.len() < before
}
