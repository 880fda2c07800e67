//! Holding a session's box still and letting it go on. Whoever may use the session may do both.

use std::sync::Arc;

use executor::resident::Resident;

use crate::error::Error;
use crate::principal::Principal;
use crate::service::Service;
use crate::sessions::{Place, SessionAddress};

impl Service {
    /// Holds everything in the session's box still. The time limits of what runs there stand still too.
    pub async fn pause_session(&self, by: &Principal, address: &SessionAddress) -> Result<(), Error> {
        self.box_of(by, address).await?.pause().await.map_err(not_turned)
    }

    pub async fn resume_session(&self, by: &Principal, address: &SessionAddress) -> Result<(), Error> {
        self.box_of(by, address).await?.resume().await.map_err(not_turned)
    }

    async fn box_of(&self, by: &Principal, address: &SessionAddress) -> Result<Arc<Resident>, Error> {
        let place = Place::read(by, address)?;
        let found = self.inner.session_boxes.find(&place.name).await;
        found.ok_or_else(|| Error::NotFound { what: format!("a box of session {}", place.id) })
    }

    /// Ends the boxes of sessions that are not there any more.
    pub(crate) async fn end_forsaken_boxes(&self) {
        for name in self.inner.session_boxes.names() {
            let Ok(id) = name.session_id.parse() else { continue };
            let place = Place { name, id };
            if matches!(self.session_times(&place).await, Ok(None)) {
                self.inner.session_boxes.end(&place.name).await;
            }
        }
    }
}

fn not_turned(error: executor::Error) -> Error {
    Error::Conflict { message: error.to_string() }
}
