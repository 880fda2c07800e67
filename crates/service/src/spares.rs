//! Boxes made ahead: taken where one serves, made again in a task of their own, and ended with the server.
//!
//! A spare only saves time. Whatever one cannot do, a box made from nothing does, and nobody is told the difference. Where
//! the settings want no instance at least (`pool.min_instances` of 0), none is made.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use executor::warm::{Bounds, Counts, SpareKind, Stock};
use executor::{Options, Running};
use policy::Grant;
use tokio::task::JoinHandle;

use crate::error::causes;
use crate::service::{Inner, Service};

/// Of each kind and shape that is asked for, of all, and how long they wait for the next who asks.
const BOUNDS: Bounds = Bounds { least: 2, most: 10, idle: Duration::from_secs(300) };

/// The stock, and the task that fills it. Dropping it ends every spare, which has to be done before the executor goes.
#[derive(Debug)]
pub(crate) struct Spares {
    stock: Arc<Stock>,
    filler: Mutex<Option<JoinHandle<()>>>,
}

impl Default for Spares {
    fn default() -> Self {
        Self { stock: Arc::new(Stock::new(BOUNDS)), filler: Mutex::default() }
    }
}

impl Spares {
    /// Ends all of them; there will be no more.
    pub(crate) async fn close(&self) {
        self.stock.close();
        let filler = self.filler.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(filler) = filler {
            filler.abort();
            // Aborted or not, it is gone then, and what it was making with it.
            let _ = filler.await;
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.stock.counts()
    }
}

impl Drop for Spares {
    fn drop(&mut self) {
        self.stock.close();
        if let Some(filler) = self.filler.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            filler.abort();
        }
    }
}

impl Service {
    /// Makes what is wanted as long as there is a server.
    pub(crate) fn keep_spares(&self) {
        let (server, stock) = (Arc::downgrade(&self.inner), Arc::clone(&self.inner.spares.stock));
        let filler = tokio::spawn(async move {
            loop {
                let (kind, shape) = stock.next().await;
                let Some(inner) = server.upgrade() else { return };
                match inner.executor.prepare_spare(kind, &shape).await {
                    Ok(spare) => stock.put(spare),
                    Err(error) => {
                        tracing::info!(?kind, error = %causes(&error), "could not make a box ahead");
                        stock.fail(kind, &shape);
                    }
                }
            }
        });
        *self.inner.spares.filler.lock().unwrap_or_else(PoisonError::into_inner) = Some(filler);
    }
}

impl Inner {
    /// A native box for this grant: a spare that serves it, or one made from nothing.
    pub(crate) async fn start_native(&self, mut grant: Grant) -> Result<Running, executor::Error> {
        let is_kept = self.settings.read().unwrap_or_else(PoisonError::into_inner).pool.bounds().min_instances > 0;
        let shape = if is_kept { self.executor.shape_for(&grant) } else { None };
        let spare = shape.and_then(|shape| self.spares.stock.take(SpareKind::of(&grant), &shape));
        if let Some(spare) = spare {
            match self.executor.start_spare(spare, grant).await {
                Ok(running) => return Ok(running),
                Err(unserved) => {
                    tracing::debug!(error = %causes(&unserved.error), "a box made ahead did not serve");
                    grant = unserved.grant;
                }
            }
        }
        self.executor.start(grant, Options::default()).await
    }
}
