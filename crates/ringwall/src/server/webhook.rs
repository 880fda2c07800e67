//! The webhook: each question that is opened or resolved, told to one address of the operator's, and to the one that an
//! operator named for its session, signed.
//!
//! Nothing waits for it and nothing depends on it: what cannot be delivered is tried a few times and then logged. Each address
//! has a queue and places of its own, so that one which does not answer holds up nobody but itself, and the addresses of
//! sessions have no part in the operator's. The signature is HMAC-SHA256 over the moment, a dot and the body, so that a
//! receiver can tell an old message from a new one; the secret is in no message, log or record.
//!
//! The addresses of a receiver's name are checked after the lookup, and the connection uses those that were checked, so
//! neither a name nor a spelling of an address nor a second lookup leads to a cloud's metadata service.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use ringwall_policy::metadata_use;
use ringwall_service::{Announcement, Gone, Service, Webhook};
use sha2::Sha256;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use ureq::Agent;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};

use crate::http::tell_announcement;

/// Deliveries to one address that wait or run. What comes then is logged and left.
const QUEUE: usize = 512;
/// Of those, at once.
const AT_ONCE: usize = 4;
/// At once to all addresses of sessions together: each takes a thread while it waits for an answer.
const TO_SESSIONS: usize = 16;
const CONNECTING: Duration = Duration::from_secs(5);
const WHOLE: Duration = Duration::from_secs(10);
/// The waits before the second try and those after it.
const PAUSES: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4), Duration::from_secs(8)];
/// How long what is on its way may take when the server stops.
const FAREWELL: Duration = Duration::from_secs(5);

/// Why one try failed.
#[derive(Debug)]
enum Failure {
    /// Another try may help.
    Passing(String),
    Final(String),
}

/// Tells for as long as the server runs, and a moment longer what is left to tell.
pub(crate) async fn run(service: Service) {
    let mut deliveries = Deliveries::default();
    loop {
        let mut following = service.announcements();
        let gone = loop {
            let announcement = match following.next().await {
                Ok(announcement) => announcement,
                Err(gone) => break gone,
            };
            let (Announcement::Opened(view) | Announcement::Resolved(view)) = &announcement;
            if let Some(webhook) = service.webhook() {
                deliveries.begin(Kind::Operators, webhook, announcement.clone());
            }
            if let Some(webhook) = service.callback(view).await {
                deliveries.begin(Kind::Sessions, webhook, announcement);
            }
        };
        match gone {
            Gone::Stopping => break,
            Gone::Behind => tracing::warn!("the webhook is so slow that some approvals were not told to it"),
        }
    }
    // What is not there by then is broken off with whoever drops it.
    let _ = tokio::time::timeout(FAREWELL, deliveries.finish()).await;
}

/// Whose address it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Operators,
    Sessions,
}

/// All that is on its way.
#[derive(Debug)]
struct Deliveries {
    receivers: HashMap<(Kind, String), Receiver>,
    to_sessions: Arc<Semaphore>,
    tasks: JoinSet<()>,
}

/// One address, while something is on its way there.
#[derive(Debug, Clone)]
struct Receiver {
    queue: Arc<Semaphore>,
    places: Arc<Semaphore>,
}

impl Default for Deliveries {
    fn default() -> Self {
        let to_sessions = Arc::new(Semaphore::new(TO_SESSIONS));
        Self { receivers: HashMap::new(), to_sessions, tasks: JoinSet::new() }
    }
}

impl Deliveries {
    /// Comes back at once, whatever the receiver does.
    fn begin(&mut self, kind: Kind, webhook: Webhook, announcement: Announcement) {
        while self.tasks.try_join_next().is_some() {}
        self.receivers.retain(|_, receiver| receiver.queue.available_permits() < QUEUE);
        let receiver = self.receivers.entry((kind, webhook.url.clone())).or_insert_with(|| Receiver {
            queue: Arc::new(Semaphore::new(QUEUE)),
            places: Arc::new(Semaphore::new(AT_ONCE)),
        });
        let Ok(queued) = receiver.queue.clone().try_acquire_owned() else {
            log(&announcement, "so many wait for this address that no more is kept");
            return;
        };
        let mut places = vec![receiver.places.clone()];
        if kind == Kind::Sessions {
            places.push(self.to_sessions.clone());
        }
        self.tasks.spawn(async move {
            if let Err(why) = deliver(&webhook, &announcement, &places).await {
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
    tracing::warn!(approval = %view.id, status = %view.status, why, "the webhook was not told of an approval");
}

/// Holds the places while it tries, and not in between.
async fn deliver(webhook: &Webhook, announcement: &Announcement, places: &[Arc<Semaphore>]) -> Result<(), String> {
    let mut pauses = PAUSES.into_iter();
    loop {
        let mut held = Vec::new();
        for places in places {
            held.push(places.acquire().await.map_err(|error| error.to_string())?);
        }
        let (url, body) = (webhook.url.clone(), tell_announcement(announcement).to_string());
        let signature = sign(webhook, &body);
        let tried = tokio::task::spawn_blocking(move || post(&url, body, &signature)).await;
        drop(held);
        let why = match tried {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(Failure::Passing(why))) => why,
            Ok(Err(Failure::Final(why))) => return Err(why),
            Err(_) => return Err("the delivery was broken off".to_owned()),
        };
        let Some(pause) = pauses.next() else { return Err(why) };
        tokio::time::sleep(pause).await;
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

/// Looks a receiver up and leaves out the addresses that the server must not call.
#[derive(Debug, Default)]
struct CheckedResolver(DefaultResolver);

impl Resolver for CheckedResolver {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let (mut checked, mut refused) = (self.empty(), None);
        for address in self.0.resolve(uri, config, timeout)?.iter() {
            match metadata_use(address.ip()) {
                None => checked.push(*address),
                Some(what) => refused = Some(format!("{} is {what}, which no webhook is sent to", address.ip())),
            }
        }
        match refused {
            Some(why) if checked.is_empty() => Err(ureq::Error::Other(why.into())),
            Some(_) | None => Ok(checked),
        }
    }
}

/// Made once, because reading the system's root certificates takes longer than a delivery.
static AGENT: LazyLock<Agent> = LazyLock::new(|| {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .proxy(None)
        .max_redirects(0)
        .timeout_connect(Some(CONNECTING))
        .timeout_global(Some(WHOLE))
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

    /// Computed elsewhere: `printf '1700000000.{}' | openssl dgst -sha256 -hmac secret`.
    #[test]
    fn a_signature_is_one_that_others_compute() {
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

    /// Reads one request whole.
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

    /// Answers each delivery with this status, and counts them.
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

    /// The pauses pass at once: the clock of this test stands still, and jumps when nobody does anything.
    #[tokio::test(start_paused = true)]
    async fn what_may_pass_is_tried_five_times_and_what_will_not_once() {
        for (status, tries, is_told) in
            [(204, 1, true), (503, 5, false), (429, 5, false), (302, 1, false), (400, 1, false), (410, 1, false)]
        {
            let (webhook, counted) = answering(status);
            let delivered = deliver(&webhook, &announcement(), &[]).await;
            assert_eq!((counted.try_iter().count(), delivered.is_ok()), (tries, is_told), "{status}: {delivered:?}");
        }
    }

    /// The control reaches a receiver at the loopback address in three spellings.
    #[test]
    fn metadata_address_is_refused_in_every_spelling() {
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
            let Err(Failure::Passing(why)) = try_post(url) else { panic!("{url} was not refused") };
            assert!(why.contains("which no webhook is sent to"), "{url}: {why}");
        }
        let (webhook, counted) = answering(200);
        let port = webhook.url.rsplit(':').next().unwrap().trim_end_matches("/hook").to_owned();
        for allowed in [webhook.url, format!("http://2130706433:{port}/hook"), format!("http://localhost:{port}/hook")]
        {
            assert!(try_post(&allowed).is_ok(), "{allowed}");
        }
        assert_eq!(counted.try_iter().count(), 3);
    }

    /// Writes this without end and counts connections. Returns when the other end has closed.
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
    async fn endless_response_head_is_broken_off() {
        let (webhook, closed) = endless(b"HTTP/1.1 200 OK\r\n", b"x: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n");
        deliver(&webhook, &announcement(), &[]).await.unwrap_err();
        for _ in 0..=PAUSES.len() {
            closed.recv_timeout(Duration::from_secs(30)).unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn who_does_not_answer_holds_up_nobody_else() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut deliveries = Deliveries::default();
        for _ in 0..QUEUE + 8 {
            deliveries.begin(Kind::Sessions, webhook(&silent), announcement());
        }
        assert_eq!(deliveries.receivers.len(), 1);
        let held: Vec<_> = (0..AT_ONCE).map(|_| silent.accept().unwrap()).collect();
        assert_eq!(deliveries.to_sessions.available_permits(), TO_SESSIONS - AT_ONCE, "one of many takes a part");
        for kind in [Kind::Operators, Kind::Sessions] {
            let (webhook, counted) = answering(200);
            deliveries.begin(kind, webhook, announcement());
            let told = tokio::task::spawn_blocking(move || counted.recv_timeout(Duration::from_secs(30))).await;
            assert!(told.unwrap().is_ok(), "{kind:?}");
        }
        // Whoever hangs up ends the wait of the threads that this test began.
        drop((silent, held));
    }
}
