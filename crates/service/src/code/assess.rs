//! Assessing a text without keeping anybody else waiting: a small one at once, large ones a few at a time on threads of their
//! own.

use policy::{Assessment, Content};
use tokio::sync::Semaphore;

use crate::agents::detached;
use crate::error::Error;
use crate::service::Service;

/// So much is judged in less time than it takes to tell another thread of it.
const TINY: usize = 512;
/// So much is judged within a millisecond or so.
const SMALL: usize = 8 * 1024;
/// A large one keeps a processor busy for a moment.
static PLACES: Semaphore = Semaphore::const_new(4);

impl Service {
    /// What a text could do. It is advice, and nothing is run or kept.
    pub async fn assess(&self, content: Content, text: String) -> Result<Assessment, Error> {
        if text.len() <= TINY {
            return Ok(policy::assess(content, &text));
        }
        if text.len() <= SMALL {
            return Self::blocking(|| Ok(policy::assess(content, &text))).await;
        }
        let _place = PLACES.acquire().await.map_err(|error| Error::runtime("judge a text", &error))?;
        detached(move || Ok(policy::assess(content, &text))).await
    }
}
