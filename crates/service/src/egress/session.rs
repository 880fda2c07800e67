//! The way out of a session's box, as long as that lives: served from the making of the box to its end, for whoever has the box
//! at that moment.
//!
//! Each who comes on duty judges and keeps what the box asks for from then on, also when they are over and nobody else has
//! come. Before the first one nothing is let out.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use executor::egress::{Connection, Gate, Proxy, Resolver, Ruling};
use futures::future::BoxFuture;
use policy::{NetHost, NetList};
use tokio::sync::watch;

use super::late::Late;
use crate::service::{Inner, Service};

#[derive(Debug)]
pub(crate) struct SessionWay {
    duty: Arc<Duty>,
    late: Arc<Late>,
    lifted: NetList,
    over: watch::Receiver<bool>,
}

/// Who has the box, or had it last.
#[derive(Debug, Default)]
struct Duty(Mutex<Option<Arc<dyn Gate>>>);

impl SessionWay {
    /// Serves until the box is over; then everything that it asked for is on record.
    pub(crate) fn open(
        service: &Service,
        listener: OwnedFd,
        lifted: NetList,
        gone: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let (duty, late) = (Arc::<Duty>::default(), Arc::<Late>::default());
        let proxy = Proxy::new(duty.clone(), Resolver::system(), lifted.clone());
        let (tell, over) = watch::channel(false);
        tokio::spawn(serve(Arc::downgrade(&service.inner), proxy, listener, late.clone(), gone, tell));
        Self { duty, late, lifted, over }
    }

    pub(crate) fn put_on_duty(&self, gate: Arc<dyn Gate>) {
        *self.duty.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(gate);
    }

    /// The same where nobody else is: the box was made for it.
    pub(crate) fn put_on_duty_first(&self, gate: Arc<dyn Gate>) {
        self.duty.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(gate);
    }

    pub(super) fn late(&self) -> Arc<Late> {
        self.late.clone()
    }

    pub(crate) fn lifted(&self) -> &NetList {
        &self.lifted
    }

    /// Waits until the box is over and what it asked for is on record.
    pub(crate) async fn closed(&self) {
        let _ = self.over.clone().wait_for(|over| *over).await;
    }
}

/// Does not keep the server alive.
async fn serve(
    inner: Weak<Inner>,
    proxy: Proxy,
    listener: OwnedFd,
    late: Arc<Late>,
    gone: impl Future<Output = ()>,
    tell: watch::Sender<bool>,
) {
    let serving = proxy.serve(listener, gone);
    tokio::pin!(serving);
    loop {
        let is_over = tokio::select! {
            biased;
            served = &mut serving => {
                if let Err(error) = served {
                    // Nobody answers the box then; it has no other way.
                    tracing::warn!(%error, "could not serve the way out of a session's box");
                }
                true
            }
            () = late.due() => false,
        };
        if let Some(inner) = inner.upgrade() {
            late.record(&inner).await;
        }
        if is_over {
            break;
        }
    }
    tell.send_replace(true);
}

impl Gate for Duty {
    fn judge(&self, _: NetHost, _: u16) -> BoxFuture<'_, Ruling> {
        Box::pin(std::future::ready(Ruling::Refused("no command has the box yet".to_owned())))
    }

    fn note(&self, connection: Connection) {
        tracing::warn!(?connection, "a box asked for a connection before a command had it");
    }

    fn on_duty(&self) -> Option<Arc<dyn Gate>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
