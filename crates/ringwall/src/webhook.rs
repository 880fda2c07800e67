//! The webhook: each question that is opened or resolved, told to one address of the operator's, and to the one that an
//! operator named for its session, signed.
//!
//! Nothing waits for it and nothing depends on it: what cannot be delivered is tried a few times and then logged. Few
//! deliveries run at once. The signature is HMAC-SHA256 over the moment, a dot and the body, so that a receiver can tell
//! an old message from a new one; the secret is in no message, log or record.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use service::{Announcement, Gone, Service, Webhook};
use sha2::Sha256;
use tokio::sync::Semaphore;
use ureq::Agent;

use crate::http::tell_announcement;

const AT_ONCE: usize = 8;
const CONNECTING: Duration = Duration::from_secs(5);
const WHOLE: Duration = Duration::from_secs(10);
/// The waits before the second try and those after it.
const PAUSES: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4), Duration::from_secs(8)];

/// Why one try failed.
#[derive(Debug)]
enum Failure {
    /// Another try may help.
    Passing(String),
    Final(String),
}

/// Tells for as long as the server runs.
pub(crate) async fn run(service: Service) {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let mut following = service.announcements();
        let gone = loop {
            let announcement = match following.next().await {
                Ok(announcement) => announcement,
                Err(gone) => break gone,
            };
            let (Announcement::Opened(view) | Announcement::Resolved(view)) = &announcement;
            let told = [service.webhook(), service.callback(view).await];
            for webhook in told.into_iter().flatten() {
                let Ok(place) = places.clone().acquire_owned().await else { return };
                let announcement = announcement.clone();
                tokio::spawn(async move {
                    deliver(&webhook, &announcement).await;
                    drop(place);
                });
            }
        };
        match gone {
            Gone::Stopping => return,
            Gone::Behind => tracing::warn!("the webhook is so slow that some approvals were not told to it"),
        }
    }
}

async fn deliver(webhook: &Webhook, announcement: &Announcement) {
    let (Announcement::Opened(view) | Announcement::Resolved(view)) = announcement;
    let body = tell_announcement(announcement).to_string();
    let mut pauses = PAUSES.into_iter();
    loop {
        let (url, body, signature) = (webhook.url.clone(), body.clone(), sign(webhook, &body));
        let tried = tokio::task::spawn_blocking(move || post(&url, body, &signature)).await;
        let why = match tried {
            Ok(Ok(())) => return,
            Ok(Err(Failure::Passing(why))) => match pauses.next() {
                Some(pause) => {
                    tokio::time::sleep(pause).await;
                    continue;
                }
                None => why,
            },
            Ok(Err(Failure::Final(why))) => why,
            Err(_) => "the delivery was broken off".to_owned(),
        };
        tracing::warn!(approval = %view.id, status = %view.status, why, "the webhook was not told of an approval");
        return;
    }
}

/// A moment, and the signature of a body at that moment.
struct Signature {
    timestamp: String,
    digits: String,
}

fn sign(webhook: &Webhook, body: &str) -> Signature {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    signed(webhook.secret.expose().as_encoded_bytes(), since.as_secs(), body)
}

fn signed(secret: &[u8], at: u64, body: &str) -> Signature {
    let timestamp = at.to_string();
    // A key of any length is one, so that this has no other end.
    let digits = Hmac::<Sha256>::new_from_slice(secret).map_or_else(
        |_| String::new(),
        |mut mac| {
            mac.update(timestamp.as_bytes());
            mac.update(b".");
            mac.update(body.as_bytes());
            mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
        },
    );
    Signature { timestamp, digits }
}

fn post(url: &str, body: String, signature: &Signature) -> Result<(), Failure> {
    let answer = AGENT
        .post(url)
        .header("content-type", "application/json")
        .header("user-agent", concat!("ringwall/", env!("CARGO_PKG_VERSION")))
        .header("x-ringwall-timestamp", &signature.timestamp)
        .header("x-ringwall-signature", format!("sha256={}", signature.digits))
        .send(body)
        .map_err(|error| Failure::Passing(error.to_string()))?;
    let status = answer.status();
    match status.as_u16() {
        200..=299 => Ok(()),
        408 | 429 | 500..=599 => Err(Failure::Passing(format!("it answered with status {status}"))),
        _ => Err(Failure::Final(format!("it answered with status {status}"))),
    }
}

/// Made once: reading whom this machine trusts takes longer than telling anybody.
static AGENT: LazyLock<Agent> = LazyLock::new(|| {
    Agent::config_builder()
        .http_status_as_error(false)
        .proxy(None)
        .max_redirects(0)
        .timeout_connect(Some(CONNECTING))
        .timeout_global(Some(WHOLE))
        .tls_config(executor::trust())
        .build()
        .into()
});

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed elsewhere: `printf '1700000000.{}' | openssl dgst -sha256 -hmac secret`.
    #[test]
    fn a_signature_is_one_that_others_compute() {
        let signature = signed(b"secret", 1_700_000_000, "{}");
        assert_eq!(signature.timestamp, "1700000000");
        assert_eq!(signature.digits, "b8569b78799ff9e3cbff0fc2d63a33a2b57f3282abd07c37ae5e8e7d79a5f163");
        assert_ne!(signed(b"secret", 1_700_000_001, "{}").digits, signature.digits);
        assert_ne!(signed(b"Secret", 1_700_000_000, "{}").digits, signature.digits);
    }
}
