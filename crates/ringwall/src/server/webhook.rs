//! Sends a signed notification of each opened and each resolved approval to the operator's webhook, and
//! to the callback address of the approval's session if it has one.
//!
//! No exec waits for a delivery. A failed delivery is retried up to four times and then logged. Each
//! address has its own queue and its own limit of parallel deliveries, so that an address that does not
//! answer delays no other. The signature is HMAC-SHA256 over the timestamp, a dot and the body; a
//! receiver can reject old messages by the timestamp.
//!
//! The resolver removes the addresses of cloud metadata services from the result of a lookup, and the
//! connection uses only that result. Neither a host name, nor another notation of an address, nor a
//! second lookup can reach them.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use ringwall_policy::metadata_use;
use ringwall_service::{Announcement, Service, StreamEnd, Webhook};
use sha2::Sha256;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use ureq::Agent;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};

use crate::http::announcement_json;

/// Maximum number of deliveries to one address that wait or run. Further ones are logged and dropped.
const MAX_QUEUED: usize = 512;
/// Maximum number of parallel requests to one address.
const MAX_PARALLEL: usize = 4;
/// Maximum number of parallel requests to the callback addresses of all sessions together. Each blocks
/// a thread.
const MAX_PARALLEL_TO_SESSIONS: usize = 16;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The pauses before the second to fifth attempt.
const RETRY_PAUSES: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4), Duration::from_secs(8)];
/// Time for queued and running deliveries when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Why one attempt failed.
#[derive(Debug)]
enum Failure {
    /// The next attempt may succeed.
    Temporary(String),
    Final(String),
}

/// Sends notifications until the server stops, then finishes the queued ones within [`DRAIN_TIMEOUT`].
pub(crate) async fn run(service: Service) {
    let mut deliveries = Deliveries::default();
    loop {
        let mut announcements = service.announcements();
        let gone = loop {
            let announcement = match announcements.next().await {
                Ok(announcement) => announcement,
                Err(gone) => break gone,
            };
            let (Announcement::Opened(view) | Announcement::Resolved(view)) = &announcement;
            if let Some(webhook) = service.webhook() {
                deliveries.enqueue(AddressKind::Operator, webhook, announcement.clone());
            }
            if let Some(webhook) = service.callback(view).await {
                deliveries.enqueue(AddressKind::Session, webhook, announcement);
            }
        };
        match gone {
            StreamEnd::Stopping => break,
            // Following again starts with all open approvals.
            StreamEnd::Lagged => {
                tracing::warn!("missed notifications about approvals: too many at once for the webhook")
            }
        }
    }
    // A timeout drops the tasks, which cancels the remaining deliveries.
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, deliveries.finish()).await;
}

/// Who configured the address. Only session addresses count against [`MAX_PARALLEL_TO_SESSIONS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum AddressKind {
    Operator,
    Session,
}

/// All queued and running deliveries.
#[derive(Debug)]
struct Deliveries {
    addresses: HashMap<(AddressKind, String), AddressQueue>,
    session_slots: Arc<Semaphore>,
    tasks: JoinSet<()>,
}

/// An address with at least one queued or running delivery.
#[derive(Debug, Clone)]
struct AddressQueue {
    queue: Arc<Semaphore>,
    slots: Arc<Semaphore>,
}

impl Default for Deliveries {
    fn default() -> Self {
        let session_slots = Arc::new(Semaphore::new(MAX_PARALLEL_TO_SESSIONS));
        Self { addresses: HashMap::new(), session_slots, tasks: JoinSet::new() }
    }
}

impl Deliveries {
    /// Queues a delivery and returns at once.
    fn enqueue(&mut self, kind: AddressKind, webhook: Webhook, announcement: Announcement) {
        while self.tasks.try_join_next().is_some() {}
        self.addresses.retain(|_, address| address.queue.available_permits() < MAX_QUEUED);
        let address = self.addresses.entry((kind, webhook.url.clone())).or_insert_with(|| AddressQueue {
            queue: Arc::new(Semaphore::new(MAX_QUEUED)),
            slots: Arc::new(Semaphore::new(MAX_PARALLEL)),
        });
        let Ok(queued) = address.queue.clone().try_acquire_owned() else {
            log(&announcement, "the queue for this address is full (512 deliveries)");
            return;
        };
        let mut slots = vec![address.slots.clone()];
        if kind == AddressKind::Session {
            slots.push(self.session_slots.clone());
        }
        self.tasks.spawn(async move {
            if let Err(why) = deliver(&webhook, &announcement, &slots).await {
                log(&announcement, &why);
            }
            drop(queued);
        });
    }

    async fn finish(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

fn log(announcement: &Announcement, why: &str) {
    let (Announcement::Opened(view) | Announcement::Resolved(view)) = announcement;
    tracing::warn!(approval = %view.id, status = %view.status, why, "could not deliver an approval to the webhook");
}

/// Sends the notification, with retries. Holds its permits during an attempt, not during a pause.
async fn deliver(webhook: &Webhook, announcement: &Announcement, slots: &[Arc<Semaphore>]) -> Result<(), String> {
    let mut pauses = RETRY_PAUSES.into_iter();
    loop {
        let mut held = Vec::new();
        for semaphore in slots {
            held.push(semaphore.acquire().await.map_err(|error| error.to_string())?);
        }
        let (url, body) = (webhook.url.clone(), announcement_json(announcement).to_string());
        let signature = sign(webhook, &body);
        let attempt = tokio::task::spawn_blocking(move || post(&url, body, &signature)).await;
        drop(held);
        let why = match attempt {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(Failure::Temporary(why))) => why,
            Ok(Err(Failure::Final(why))) => return Err(why),
            Err(_) => return Err("the task that sends the request panicked".to_owned()),
        };
        let Some(pause) = pauses.next() else { return Err(why) };
        tokio::time::sleep(pause).await;
    }
}

/// The values of the two signature headers.
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
    // HMAC accepts keys of every length, so `Err` cannot happen.
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
    let response = AGENT
        .post(url)
        .header("content-type", "application/json")
        .header("user-agent", concat!("ringwall/", env!("CARGO_PKG_VERSION")))
        .header("x-ringwall-timestamp", &signature.timestamp)
        .header("x-ringwall-signature", format!("sha256={}", signature.digits))
        .send(body)
        .map_err(|error| Failure::Temporary(error.to_string()))?;
    let status = response.status();
    match status.as_u16() {
        200..=299 => Ok(()),
        408 | 429 | 500..=599 => Err(Failure::Temporary(format!("the receiver answered with status {status}"))),
        _ => Err(Failure::Final(format!("the receiver answered with status {status}"))),
    }
}

/// Resolves the receiver's name and removes the addresses of cloud metadata services.
#[derive(Debug, Default)]
struct CheckedResolver(DefaultResolver);

impl Resolver for CheckedResolver {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let (mut checked, mut refused) = (self.empty(), None);
        for address in self.0.resolve(uri, config, timeout)?.iter() {
            match metadata_use(address.ip()) {
                None => checked.push(*address),
                Some(what) => refused = Some(format!("{} is {what}; webhooks to it are refused", address.ip())),
            }
        }
        match refused {
            Some(why) if checked.is_empty() => Err(ureq::Error::Other(why.into())),
            Some(_) | None => Ok(checked),
        }
    }
}

/// Created once, because reading the system's root certificates takes longer than a delivery.
static AGENT: LazyLock<Agent> = LazyLock::new(|| {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .proxy(None)
        .max_redirects(0)
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_global(Some(REQUEST_TIMEOUT))
        .tls_config(ringwall_executor::trust())
        .build();
    Agent::with_parts(config, DefaultConnector::default(), CheckedResolver::default())
});

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc;

    use ringwall_service::{ApprovalStatus, ApprovalView, Timestamp};

    use super::*;

    /// The expected value is the output of `printf '1700000000.{}' | openssl dgst -sha256 -hmac secret`.
    #[test]
    fn signature_matches_openssl() {
        let signature = signed(b"secret", 1_700_000_000, "{}");
        assert_eq!(signature.timestamp, "1700000000");
        assert_eq!(signature.digits, "b8569b78799ff9e3cbff0fc2d63a33a2b57f3282abd07c37ae5e8e7d79a5f163");
        assert_ne!(signed(b"secret", 1_700_000_001, "{}").digits, signature.digits);
        assert_ne!(signed(b"Secret", 1_700_000_000, "{}").digits, signature.digits);
    }

    fn announcement() -> Announcement {
        let at = Timestamp::from_milliseconds(0);
        Announcement::Opened(Arc::new(ApprovalView {
            id: "a_0123456789abcdef".parse().unwrap(),
            kind: ringwall_record::ApprovalKind::Path,
            status: ApprovalStatus::Pending,
            session_id: "s".to_owned(),
            exec_id: "e_0123456789abcdef".parse().unwrap(),
            user: "u".parse().unwrap(),
            agent: "a".parse().unwrap(),
            description: String::new(),
            command: "ls".to_owned(),
            code: None,
            requested_paths: Vec::new(),
            blocked_paths: Vec::new(),
            risk_level: ringwall_record::RiskLevel::Low,
            patterns: Vec::new(),
            covered_files: Vec::new(),
            not_covered: Vec::new(),
            created_at: at,
            expires_at: at,
            answered_at: None,
            answered_by: None,
            reason: None,
        }))
    }

    fn webhook(listener: &TcpListener) -> Webhook {
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        Webhook { url, secret: ringwall_policy::Secret::new("secret") }
    }

    /// Reads one request with its body.
    fn read(stream: &TcpStream) {
        let (mut reader, mut length) = (BufReader::new(stream), 0);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            match line.trim().split_once(": ") {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.parse().unwrap(),
                Some(_) => {}
                None if line.starts_with("POST") => {}
                None => break,
            }
        }
        std::io::Read::read_exact(&mut reader, &mut vec![0; length]).unwrap();
    }

    /// A server that answers each delivery with this status and sends a message for each.
    fn answering(status: u16) -> (Webhook, mpsc::Receiver<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let webhook = webhook(&listener);
        let (count, counted) = mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                read(&stream);
                let _ = count.send(());
                write!(
                    stream,
                    "HTTP/1.1 {status} x\r\nlocation: /hook\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                )
                .unwrap();
            }
        });
        (webhook, counted)
    }

    /// Tokio's paused clock advances when all tasks are idle, so the pauses take no time.
    #[tokio::test(start_paused = true)]
    async fn temporary_failure_is_tried_five_times_and_final_one_once() {
        for (status, tries, is_told) in
            [(204, 1, true), (503, 5, false), (429, 5, false), (302, 1, false), (400, 1, false), (410, 1, false)]
        {
            let (webhook, counted) = answering(status);
            let delivered = deliver(&webhook, &announcement(), &[]).await;
            assert_eq!((counted.try_iter().count(), delivered.is_ok()), (tries, is_told), "{status}: {delivered:?}");
        }
    }

    /// As a control, a receiver on loopback is reached in three notations.
    #[test]
    fn metadata_address_is_refused_in_every_notation() {
        let try_post = |url: &str| post(url, "{}".to_owned(), &signed(b"secret", 0, "{}"));
        for url in [
            "http://169.254.169.254/latest",
            "http://2852039166/",
            "http://0251.0376.0251.0376/",
            "http://0xa9fea9fe/",
            "http://169.254.43518/",
            "http://[::ffff:169.254.169.254]/",
            "http://[fe80::1]:9/",
            "http://[fd00:ec2::254]/",
            "http://100.100.100.200/",
            "http://user@168.63.129.16:32526/",
        ] {
            let Err(Failure::Temporary(why)) = try_post(url) else { panic!("{url} was not refused") };
            assert!(why.contains("webhooks to it are refused"), "{url}: {why}");
        }
        let (webhook, counted) = answering(200);
        let port = webhook.url.rsplit(':').next().unwrap().trim_end_matches("/hook").to_owned();
        for allowed in [webhook.url, format!("http://2130706433:{port}/hook"), format!("http://localhost:{port}/hook")]
        {
            assert!(try_post(&allowed).is_ok(), "{allowed}");
        }
        assert_eq!(counted.try_iter().count(), 3);
    }

    /// A server that sends `first` and then `rest` until the client disconnects, and then sends a
    /// message.
    fn endless(first: &'static [u8], rest: &'static [u8]) -> (Webhook, mpsc::Receiver<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let webhook = webhook(&listener);
        let (closed, has_closed) = mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                read(&stream);
                let mut written = stream.write_all(first);
                while written.is_ok() {
                    written = stream.write_all(rest);
                }
                let _ = closed.send(());
            }
        });
        (webhook, has_closed)
    }

    #[tokio::test(start_paused = true)]
    async fn endless_response_body_is_not_read() {
        let (webhook, closed) = endless(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"2\r\nxx\r\n");
        deliver(&webhook, &announcement(), &[]).await.unwrap();
        closed.recv_timeout(Duration::from_secs(30)).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn endless_response_head_fails() {
        let (webhook, closed) = endless(b"HTTP/1.1 200 OK\r\n", b"x: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n");
        deliver(&webhook, &announcement(), &[]).await.unwrap_err();
        for _ in 0..=RETRY_PAUSES.len() {
            closed.recv_timeout(Duration::from_secs(30)).unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn silent_address_does_not_delay_others() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut deliveries = Deliveries::default();
        for _ in 0..MAX_QUEUED + 8 {
            deliveries.enqueue(AddressKind::Session, webhook(&silent), announcement());
        }
        assert_eq!(deliveries.addresses.len(), 1);
        let held: Vec<_> = (0..MAX_PARALLEL).map(|_| silent.accept().unwrap()).collect();
        assert_eq!(
            deliveries.session_slots.available_permits(),
            MAX_PARALLEL_TO_SESSIONS - MAX_PARALLEL,
            "permits for session addresses"
        );
        for kind in [AddressKind::Operator, AddressKind::Session] {
            let (webhook, counted) = answering(200);
            deliveries.enqueue(kind, webhook, announcement());
            let delivered = tokio::task::spawn_blocking(move || counted.recv_timeout(Duration::from_secs(30))).await;
            assert!(delivered.unwrap().is_ok(), "{kind:?}");
        }
        // Closing the connections ends the blocking threads of this test.
        drop((silent, held));
    }
}
