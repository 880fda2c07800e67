//! Network access of containers: through the proxy port of their own loopback, judged by their own
//! gate, and no other way.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};

use ringwall_executor::docker::{Docker, Runtime};
use ringwall_executor::egress::{Connection, Fate, Gate, Proxy, Resolver, Ruling};
use ringwall_executor::session_box::ProcessOptions;
use ringwall_executor::{Ending, Error};
use ringwall_policy::{Field, NetHost, NetList};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::broken_agent::{FAULT, LEAVING};
use super::daemon::Daemon;
use super::project::{Project, RunRequest, block_on, exec_id, read};
use super::session::{Session, TestBackend};

/// A gate that allows one host and records every connection.
#[derive(Debug)]
struct Only {
    host: &'static str,
    noted: Mutex<Vec<(String, Fate)>>,
}

impl Gate for Only {
    fn judge(&self, host: NetHost, _: u16) -> futures::future::BoxFuture<'_, Ruling> {
        let ruling = match host.to_string() == self.host {
            true => Ruling::Allowed(self.host.to_owned()),
            false => Ruling::Refused("not this box's".to_owned()),
        };
        Box::pin(std::future::ready(ruling))
    }

    fn note(&self, connection: Connection) {
        self.noted.lock().unwrap().push((connection.host, connection.fate));
    }
}

impl Only {
    fn new(host: &'static str) -> Arc<Self> {
        Arc::new(Only { host, noted: Mutex::default() })
    }

    fn take(&self) -> Vec<(String, Fate)> {
        std::mem::take(&mut self.noted.lock().unwrap())
    }
}

/// An HTTP server that counts its connections.
struct Other {
    port: u16,
    came: Arc<Mutex<usize>>,
}

impl Other {
    async fn serve() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, came) = (listener.local_addr().unwrap().port(), Arc::<Mutex<usize>>::default());
        let counted = came.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                *counted.lock().unwrap() += 1;
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                let answer = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nthere\n";
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Other { port, came }
    }

    fn came(&self) -> usize {
        *self.came.lock().unwrap()
    }

    /// A proxy that resolves the test names to this machine.
    fn proxy(&self, gate: &Arc<Only>) -> Proxy {
        let names = ["one.test", "two.test", "evil.test"];
        let here = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
        let table: HashMap<_, _> = names.iter().map(|name| ((*name).to_owned(), here.clone())).collect();
        let lifted = NetList::read(names.map(|name| format!("{name}:{}", self.port))).unwrap();
        Proxy::new(gate.clone(), Resolver::of_table(table), lifted)
    }

    fn fetch(&self, host: &str) -> String {
        format!("/bin/busybox wget -qO- http://{host}:{}/", self.port)
    }
}

fn open() -> RunRequest {
    RunRequest { is_open: true, limits: vec![(Field::TimeoutMs, 60_000)], ..RunRequest::default() }
}

/// Runs a script in a container while the proxy serves it, and returns its output.
async fn run(docker: &Docker, project: &Project, other: &Other, gate: &Arc<Only>, script: &str) -> (Ending, String) {
    let grant = project.grant(&open(), &["sh", "-c", script]);
    let mut container = docker.start(grant, &exec_id(), Runtime::Default).await.unwrap();
    let proxy_socket = container.proxy_socket.take().unwrap();
    let (tell, over) = oneshot::channel();
    let serving = tokio::spawn(other.proxy(gate).serve(proxy_socket, async {
        let _ = over.await;
    }));
    let output = read(container.take_streams());
    let ending = container.wait().await.unwrap().ending;
    let _ = tell.send(());
    serving.await.unwrap().unwrap();
    let (stdout, stderr) = output.await.unwrap();
    (ending, stdout + &stderr)
}

pub(crate) fn container_reaches_allowed_hosts_only(daemon: &Daemon) {
    let project = Project::new();
    let docker = daemon.docker(project.data());
    block_on(async {
        let other = Other::serve().await;
        let (one, two) = (Only::new("one.test"), Only::new("two.test"));
        let both = format!("{}; {}", other.fetch("one.test"), other.fetch("two.test"));
        // Both run at the same time, each with its own gate.
        let (first, second) =
            tokio::join!(run(&docker, &project, &other, &one, &both), run(&docker, &project, &other, &two, &both));
        assert!(first.1.contains("there\n") && first.1.contains("403"), "{first:?}");
        assert!(second.1.contains("there\n") && second.1.contains("403"), "{second:?}");
        let noted = |one, two| vec![("one.test".to_owned(), one), ("two.test".to_owned(), two)];
        assert_eq!(one.take(), noted(Fate::Allowed, Fate::Refused));
        assert_eq!(two.take(), noted(Fate::Refused, Fate::Allowed));
        assert_eq!(other.came(), 2);
        // Without the proxy variables there is no network: direct connections fail.
        let direct = format!(
            "unset http_proxy HTTP_PROXY; {}; {}; /bin/busybox nc -w 2 127.0.0.1 {}; ls /sys/class/net",
            other.fetch("one.test"),
            other.fetch("127.0.0.1"),
            other.port,
        );
        let (_, said) = run(&docker, &project, &other, &one, &direct).await;
        assert!(!said.contains("there\n") && said.starts_with("lo\n"), "{said}");
        assert_eq!((other.came(), one.take()), (2, vec![]));
    });
    let left = std::fs::read_dir(project.data().join("ways-out")).unwrap().count();
    assert_eq!(left, 0, "no socket is left");
}

pub(crate) fn shim_changes_nothing_for_command(daemon: &Daemon) {
    let project = Project::new();
    let docker = daemon.docker(project.data());
    let script = "pwd; grep -E '^(Sig(Blk|Cgt)|NoNewPrivs|Cap.*):' /proc/self/status; ls /proc/self/fd; id -u; exit 7";
    let run = |run_request: &RunRequest, command: &[&str]| project.run(&docker, run_request, command);
    let plain = run(&RunRequest::default(), &["sh", "-c", script]).unwrap();
    let ported = run(&open(), &["sh", "-c", script]).unwrap();
    assert_eq!((&ported.stdout, ported.outcome.ending), (&plain.stdout, Ending::Exited(7)), "{}", ported.stderr);
    // Rust programs ignore SIGPIPE, and an ignored signal stays ignored across exec unless the shim
    // resets it.
    let ignored = run(&open(), &["grep", "SigIgn", "/proc/self/status"]).unwrap().stdout;
    assert_eq!(ignored, "SigIgn:\t0000000000000000\n");
    let env = run(&open(), &["env"]).unwrap().stdout;
    assert!(env.contains("\nHTTPS_PROXY=http://127.0.0.1:3128\n"), "{env}");
    let own = RunRequest { env: vec![("https_proxy", "http://mine".to_owned())], ..open() };
    let env = run(&own, &["env"]).unwrap().stdout;
    assert!(env.contains("https_proxy=http://mine\n") && !env.contains("https_proxy=http://127"), "{env}");
    let missing = run(&open(), &["no-such-program"]);
    assert!(matches!(&missing, Err(Error::CommandNotFound { command }) if command == "no-such-program"), "{missing:?}");
    let refused = run(&open(), &["/bin/not-executable"]);
    assert!(matches!(refused, Err(Error::CommandNotExecutable { errno: 13, .. })), "{refused:?}");
}

/// Without a proxy on the socket there is no network access.
pub(crate) fn container_without_proxy_reaches_nothing(daemon: &Daemon) {
    let project = Project::new();
    let docker = daemon.docker(project.data());
    let grant = project.grant(&open(), &["sh", "-c", "/bin/busybox wget -qO- http://one.test/ 2>&1"]);
    block_on(async {
        let mut container = docker.start(grant, &exec_id(), Runtime::Default).await.unwrap();
        drop(container.proxy_socket.take().unwrap());
        let output = read(container.take_streams());
        assert_eq!(container.wait().await.unwrap().ending, Ending::Exited(1));
        let said = output.await.unwrap().0;
        assert!(said.contains("refused") || said.contains("reset"), "{said}");
    });
}

/// A container whose shim does not send the proxy socket is refused instead of started without its
/// network.
pub(crate) fn container_that_withholds_proxy_socket_fails(daemon: &Daemon) {
    let session = Session::new(TestBackend::Docker, daemon);
    std::fs::write(session.path(FAULT), LEAVING).unwrap();
    let made = block_on(async { session.settle_for(&open()).await.map(drop) });
    assert!(matches!(&made, Err(Error::EgressWithheld { words }) if words == LEAVING), "{made:?}");
}

pub(crate) fn session_box_reaches_allowed_hosts_only(daemon: &Daemon) {
    let session = Session::new(TestBackend::Docker, daemon);
    block_on(async {
        let other = Other::serve().await;
        let gate = Only::new("one.test");
        let mut session_box = session.settle_for(&open()).await.unwrap();
        let proxy_socket = session_box.proxy_socket.take().unwrap();
        let serving = tokio::spawn(other.proxy(&gate).serve(proxy_socket, session_box.gone()));
        let process = async |script: &str| {
            let grant = session.run_request(&open(), &["sh", "-c", script]);
            session.follow(session_box.process(grant, ProcessOptions::default()).await.unwrap()).await
        };
        for _ in 0..2 {
            let said = process(&other.fetch("one.test")).await;
            assert_eq!((said.stdout.as_str(), said.outcome.ending), ("there\n", Ending::Exited(0)), "{said:?}");
        }
        let said = process(&other.fetch("evil.test")).await;
        assert!(said.stderr.contains("403"), "{said:?}");
        // A grant without network access is refused in a box with it.
        let closed = session_box.process(session.grant(&["true"]), ProcessOptions::default()).await;
        assert!(matches!(closed, Err(Error::NotForThisBox { what: "networks" })), "{closed:?}");
        session_box.end().await;
        serving.await.unwrap().unwrap();
        let noted: Vec<Fate> = gate.take().into_iter().map(|(_, fate)| fate).collect();
        assert_eq!((noted, other.came()), (vec![Fate::Allowed, Fate::Allowed, Fate::Refused], 2));
    });
}
