//! Closes browsers that died and browsers that were idle for `browser.idle_timeout_s`.

use std::sync::Weak;

use tokio::time::Instant;

use crate::boxes::browser::BrowserSlot;
use crate::service::Inner;

/// Watches one browser until it is closed. Holds only weak references, so it keeps neither the
/// server nor the seat alive.
pub(super) async fn watch_over(
    inner: Weak<Inner>,
    slot: Weak<BrowserSlot>,
    number: u64,
    ended: impl Future<Output = ()>,
) {
    tokio::pin!(ended);
    let Some(mut settings) = inner.upgrade().map(|inner| inner.browsers.settings_changes()) else { return };
    loop {
        settings.borrow_and_update();
        let due = {
            let (Some(inner), Some(slot)) = (inner.upgrade(), slot.upgrade()) else { return };
            let idle = inner.settings.read().browser.idle_timeout();
            slot.last_used() + idle
        };
        let why = tokio::select! {
            biased;
            () = &mut ended => Some("it has crashed or was killed"),
            () = tokio::time::sleep_until(due) => None,
            Ok(()) = settings.changed() => continue,
        };
        let (Some(inner), Some(slot)) = (inner.upgrade(), slot.upgrade()) else { return };
        let mut turn = slot.turn().await;
        match turn.as_ref() {
            Some(instance) if instance.number == number => {
                if instance.is_paused() {
                    // A paused browser is not idle, and it could not be closed.
                    slot.used();
                }
            }
            Some(_) | None => return,
        }
        let idle = inner.settings.read().browser.idle_timeout();
        let is_idle = slot.last_used() + idle <= Instant::now();
        if why.is_some() || is_idle {
            slot.end(&inner.store, turn.take(), Some(why.unwrap_or("nobody had used it for long"))).await;
            return;
        }
    }
}
