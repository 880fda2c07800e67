//! Pauses and resumes the boxes of a session. Every client that may use the session may do both.

use std::sync::Arc;

use crate::auth::principal::Principal;
use crate::boxes::PooledBox;
use crate::error::Error;
use crate::service::Service;
use crate::session_ref::{SessionAddress, SessionRef};

impl Service {
    /// Freezes every process in the session's boxes. Their timeouts stop too.
    pub async fn pause_session(&self, by: &Principal, address: &SessionAddress) -> Result<(), Error> {
        let _shared = self.inner.session_gates.try_share(&SessionRef::read(by, address)?.name)?;
        for home in self.boxes_of(by, address)? {
            home.session_box.pause().await.map_err(not_turned)?;
        }
        Ok(())
    }

    pub async fn resume_session(&self, by: &Principal, address: &SessionAddress) -> Result<(), Error> {
        // While an approved command has exclusive use of the session, its boxes stay paused and
        // this fails.
        let _shared = self.inner.session_gates.try_share(&SessionRef::read(by, address)?.name)?;
        for home in self.boxes_of(by, address)? {
            home.session_box.resume().await.map_err(not_turned)?;
        }
        Ok(())
    }

    fn boxes_of(&self, by: &Principal, address: &SessionAddress) -> Result<Vec<Arc<PooledBox>>, Error> {
        let place = SessionRef::read(by, address)?;
        let homes: Vec<Arc<PooledBox>> = self.homes(&place).into_iter().map(|(_, home)| home).collect();
        match homes.is_empty() {
            true => Err(Error::NotFound { what: format!("box of the session {}", place.id) }),
            false => Ok(homes),
        }
    }

    /// Ends the browsers and boxes of sessions whose files no longer exist.
    pub(crate) async fn end_forsaken_boxes(&self) {
        for name in self.inner.browsers.unused_sessions() {
            let Ok(id) = name.session_id.parse() else { continue };
            let place = SessionRef { name, id };
            if matches!(self.session_times(&place).await, Ok(None)) {
                self.inner.browsers.dismiss_unused(&self.inner.store, &place.name).await;
            }
        }
        for place in self.inner.boxes.keys().iter().filter_map(|key| key.place()) {
            if matches!(self.session_times(&place).await, Ok(None)) {
                self.end_boxes(&place).await;
            }
        }
    }
}

fn not_turned(error: ringwall_executor::Error) -> Error {
    Error::Conflict { message: error.to_string() }
}
