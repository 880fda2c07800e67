//! Tests of the client against a fake service (`tests/support/aio_service.py`), which executes
//! commands in boxes of the binary under test: `RINGWALL_BIN`, or `target/debug/ringwall`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use ringwall_policy::{
    Ceilings, Field, Grant, Layer, LayerName, Layers, Request, Requirement, Root, Secret, Verdict, Workspace,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::client::AioService;
use super::connection::{Connection, ServiceRequest};
use super::start::{OnCreated, ServiceFile, ServiceWork};
use crate::aio_error::AioError;
use crate::error::Error;
use crate::running::{Ending, RunningBox};
use crate::{ProtectionName, ProtectionState};

const KEY: &str = "a-key-that-nobody-prints";

struct StandIn {
    process: Child,
    url: String,
    _directory: TempDir,
}

impl StandIn {
    #[expect(clippy::disallowed_methods, reason = "a test's own service, which runs commands in boxes")]
    fn start() -> Self {
        let boxes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let binary =
            std::env::var_os("RINGWALL_BIN").map_or_else(|| boxes.join("target/debug/ringwall"), PathBuf::from);
        let directory = TempDir::with_prefix("rw-aio-").unwrap();
        let mut process = Command::new("/usr/bin/python3")
            .arg("-B")
            .arg(boxes.join("tests/support/aio_service.py"))
            .args([binary.as_os_str(), directory.path().as_os_str(), KEY.as_ref()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut url = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Self { process, url: url.trim().to_owned(), _directory: directory }
    }

    fn service(&self) -> AioService {
        AioService::new(self.url.parse().unwrap(), &Secret::new(KEY)).unwrap()
    }

    fn spoil(&self, fault: Value) {
        ureq::post(format!("{}/stand-in/fault", self.url)).send(fault.to_string()).unwrap();
    }

    /// The requests on this route, in order.
    fn asked(&self, path: &str) -> Vec<Value> {
        let mut answer = ureq::get(format!("{}/stand-in/requests", self.url)).call().unwrap();
        let all: Vec<Value> = serde_json::from_reader(answer.body_mut().as_reader()).unwrap();
        let bodies = all.into_iter().filter(|request| request["path"] == path);
        bodies.map(|request| serde_json::from_str(request["body"].as_str().unwrap()).unwrap_or(Value::Null)).collect()
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        // The fake service ends its boxes when its stdin ends.
        drop(self.process.stdin.take());
        self.process.wait().unwrap();
    }
}

fn granted(argv: &[&str], timeout_ms: u64, require: &[Requirement], root: Root) -> Grant {
    let request = Request {
        argv: argv.iter().map(Into::into).collect(),
        env: BTreeMap::from([("GREETING".to_owned(), Secret::new("it's $HOME"))]),
        cwd: None,
        root,
        workspace: Workspace::Private,
        read_only: Vec::new(),
    };
    let mut operator = Layer::new(LayerName::CommandLine);
    operator.limits.insert(Field::TimeoutMs, timeout_ms);
    operator.require = require.iter().copied().collect();
    let ceilings =
        Ceilings { limits: ringwall_policy::profile::machine_ceilings(8192, 4, 32_768), set_by: LayerName::Machine };
    let layers = Layers { system: ringwall_policy::profile::RUN, ceilings, operator, narrowing: Vec::new() };
    match ringwall_policy::decide(&request, &layers) {
        Verdict::Allow(grant) => grant,
        other => panic!("the policy did not allow the test's request: {other:?}"),
    }
}

fn bash(line: &str) -> Grant {
    granted(&["bash", "-c", line], 60_000, &[], Root::Host)
}

async fn start(service: &AioService, grant: Grant) -> RunningBox {
    service.start(grant, "e_1", of("s1"), unused()).await.unwrap()
}

/// Ignores the new files.
fn unused() -> OnCreated {
    Box::new(|_| ())
}

/// Receives the names of the new files.
fn created() -> (OnCreated, mpsc::Receiver<Vec<String>>) {
    let (sender, receiver) = mpsc::channel();
    (Box::new(move |created| sender.send(created.unwrap()).unwrap()), receiver)
}

fn of(session: &str) -> ServiceWork {
    ServiceWork { session: session.to_owned(), ..ServiceWork::default() }
}

/// Reads both streams to their ends while the command runs.
fn reading(running: &mut RunningBox) -> tokio::task::JoinHandle<(String, String)> {
    let [_, stdout, stderr] = running.take_streams().into_pipes().unwrap();
    tokio::task::spawn_blocking(move || {
        let mut texts = (String::new(), String::new());
        std::thread::scope(|scope| {
            scope.spawn(|| std::fs::File::from(stdout).read_to_string(&mut texts.0).unwrap());
            scope.spawn(|| std::fs::File::from(stderr).read_to_string(&mut texts.1).unwrap());
        });
        texts
    })
}

#[tokio::test]
async fn command_receives_arguments_files_and_environment() {
    let stand_in = StandIn::start();
    let service = stand_in.service();
    let files = vec![
        ServiceFile { path: "data/in.txt".to_owned(), content: b"from us\n".to_vec() },
        ServiceFile { path: "raw".to_owned(), content: vec![0, 255] },
    ];
    let line =
        "cat data/in.txt; stat -c %s raw; echo \"$GREETING\"; cat; mkdir out; echo x > out/new; echo bad >&2; exit 3";
    let (on_created, new_files) = created();
    let mut running = service.start(bash(line), "e_1", ServiceWork { files, ..of("s1") }, on_created).await.unwrap();
    assert!(running.protections.iter().all(|one| one.state == ProtectionState::NotAvailable));
    assert_eq!(running.protections.len(), ProtectionName::ALL.len());
    let reading = reading(&mut running);
    let ended = running.wait().await.unwrap();
    assert_eq!(reading.await.unwrap(), ("from us\n2\nit's $HOME\n".to_owned(), "bad\n".to_owned()));
    assert_eq!(ended.ending, Ending::Exited(3));
    assert_eq!(new_files.recv().unwrap(), ["out/new"]);
    let begun = &stand_in.asked("/v1/bash/exec")[1];
    assert!(begun["hard_timeout"].as_f64().unwrap() > 60.0, "{begun}");
    assert_eq!(stand_in.asked("/v1/bash/sessions/ringwall-e_1/close").len(), 1);

    // The next command of the session finds the files of the first; another session does not.
    let mut again = start(&service, bash("cat out/new")).await;
    let read = self::reading(&mut again);
    assert_eq!(again.wait().await.unwrap().ending, Ending::Exited(0));
    assert_eq!(read.await.unwrap().0, "x\n");
    let input = b"given\n".repeat(50_000);
    let counting = ServiceWork { input, ..of("s1") };
    let (on_created, new_files) = created();
    let mut counting = service.start(bash("wc -l; ls -A"), "e_3", counting, on_created).await.unwrap();
    let read = self::reading(&mut counting);
    counting.wait().await.unwrap();
    assert_eq!(read.await.unwrap().0, "50000\ndata\nout\nraw\n", "the input file is deleted");
    assert_eq!(new_files.recv().unwrap(), [""; 0]);
    let other = service.start(bash("cat out/new"), "e_2", of("s2"), unused()).await.unwrap();
    assert_eq!(other.wait().await.unwrap().ending, Ending::Exited(1));
}

#[tokio::test]
async fn timeout_or_signal_ends_command() {
    let stand_in = StandIn::start();
    let service = stand_in.service();
    let late = granted(&["sleep", "600"], 300, &[], Root::Host);
    assert_eq!(start(&service, late).await.wait().await.unwrap().ending, Ending::TimedOut);
    assert_eq!(stand_in.asked("/v1/bash/kill")[0]["signal"], "SIGTERM");

    let mut running = start(&service, bash("trap '' TERM; echo ready; sleep 600; sleep 600")).await;
    let [_, stdout, _stderr] = running.take_streams().into_pipes().unwrap();
    let (first, stdout) = tokio::task::spawn_blocking(move || {
        let mut reader = BufReader::new(std::fs::File::from(stdout));
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        (line, reader)
    })
    .await
    .unwrap();
    assert_eq!(first, "ready\n");
    let control = running.control();
    let (ended, ()) = tokio::join!(running.wait(), control.stop(Signal::TERM));
    assert_eq!(ended.unwrap().ending, Ending::Signalled(9));
    drop(stdout);
}

#[tokio::test]
async fn dropped_run_leaves_no_command() {
    let stand_in = StandIn::start();
    let service = stand_in.service();
    drop(start(&service, bash("sleep 600")).await);
    let closed = async {
        while stand_in.asked("/v1/bash/sessions/ringwall-e_1/close").is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), closed).await.expect("the session of the command is closed");
    assert_eq!(stand_in.asked("/v1/bash/kill")[0]["signal"], "SIGKILL");
}

#[tokio::test]
async fn broken_connection_loses_no_output() {
    let stand_in = StandIn::start();
    stand_in.spoil(json!({"path": "/v1/bash/output", "kind": "cut"}));
    stand_in.spoil(json!({"path": "/v1/bash/output", "kind": "reset", "after": 1}));
    let mut running = start(&stand_in.service(), bash("seq 20000; seq 3 >&2")).await;
    let reading = reading(&mut running);
    assert_eq!(running.wait().await.unwrap().ending, Ending::Exited(0));
    let (stdout, stderr) = reading.await.unwrap();
    let counted: String = (1..=20_000).map(|number| format!("{number}\n")).collect();
    assert_eq!((stdout, stderr.as_str()), (counted, "1\n2\n3\n"));
}

#[tokio::test]
async fn command_without_start_answer_is_killed_and_not_repeated() {
    let stand_in = StandIn::start();
    // The first request creates the directory.
    stand_in.spoil(json!({"path": "/v1/bash/exec", "kind": "cut", "after": 1}));
    let error = stand_in.service().start(bash("sleep 600"), "e_1", of("s1"), unused()).await.unwrap_err();
    assert!(matches!(error, Error::Aio(AioError::Unclear(_))), "{error}");
    assert_eq!(stand_in.asked("/v1/bash/exec").len(), 2);
    assert_eq!(stand_in.asked("/v1/bash/kill")[0]["signal"], "SIGKILL");
    assert_eq!(stand_in.asked("/v1/bash/sessions/ringwall-e_1/close").len(), 1);
}

#[tokio::test]
async fn endless_answer_kills_command() {
    let stand_in = StandIn::start();
    stand_in.spoil(json!({"path": "/v1/bash/output", "kind": "huge"}));
    let error = start(&stand_in.service(), bash("sleep 600")).await.wait().await.unwrap_err();
    assert!(matches!(error, Error::Aio(AioError::TooLarge { .. })), "{error}");
    assert_eq!(stand_in.asked("/v1/bash/kill")[0]["signal"], "SIGKILL");
}

#[tokio::test]
async fn too_long_line_runs_as_script_that_is_deleted() {
    let stand_in = StandIn::start();
    let code = format!("print(len('{}'))", "x".repeat(110_000));
    let grant = granted(&["python3", "-c", &code], 60_000, &[], Root::Host);
    let (on_created, new_files) = created();
    let mut running = stand_in.service().start(grant, "e_1", of("s1"), on_created).await.unwrap();
    let reading = reading(&mut running);
    running.wait().await.unwrap();
    assert_eq!(reading.await.unwrap(), ("110000\n".to_owned(), String::new()));
    assert_eq!(new_files.recv().unwrap(), [""; 0]);
}

#[tokio::test]
async fn grant_that_service_cannot_serve_is_refused_without_request() {
    let stand_in = StandIn::start();
    let service = stand_in.service();
    let required = granted(&["true"], 1000, &[Requirement::Memory], Root::Host);
    let error = service.start(required, "e_1", of("s1"), unused()).await.unwrap_err();
    assert!(matches!(error, Error::ProtectionMissing { backend: "aio", .. }), "{error}");
    let image = granted(&["true"], 1000, &[], Root::Image("tools".parse().unwrap()));
    let error = service.start(image, "e_1", of("s1"), unused()).await.unwrap_err();
    assert!(matches!(error, Error::Aio(AioError::NotForService(_))), "{error}");
    assert!(stand_in.asked("/v1/sandbox").is_empty());
    let files = vec![ServiceFile { path: "../x".to_owned(), content: Vec::new() }];
    let error = service.start(bash("true"), "e_1", ServiceWork { files, ..of("s1") }, unused()).await.unwrap_err();
    assert!(matches!(error, Error::Aio(AioError::NotForService(_))), "{error}");
    assert!(stand_in.asked("/v1/bash/exec").is_empty());
}

#[tokio::test]
async fn bad_answer_gives_its_error() {
    let stand_in = StandIn::start();
    let service = stand_in.service();
    assert_eq!(service.info().await.unwrap().home, "/workspace");
    type Is = fn(&AioError) -> bool;
    let kinds: [(&str, Is); 9] = [
        ("401", |error| matches!(error, AioError::KeyRefused)),
        ("422", |error| matches!(error, AioError::NotUnderstood { words, .. } if words.contains("Field required"))),
        ("500", |error| matches!(error, AioError::Failed { status: 500, .. })),
        ("cut", |error| matches!(error, AioError::Unreachable { .. })),
        ("reset", |error| matches!(error, AioError::Unreachable { .. })),
        ("redirect", |error| matches!(error, AioError::Redirected { .. })),
        ("huge", |error| matches!(error, AioError::TooLarge { .. })),
        ("not_json", |error| matches!(error, AioError::Malformed { .. })),
        ("no_data", |error| matches!(error, AioError::Malformed { .. })),
    ];
    for (kind, is_expected) in kinds {
        stand_in.spoil(json!({"path": "/v1/sandbox", "kind": kind}));
        let error = service.info().await.unwrap_err();
        assert!(is_expected(&error), "{kind}: {error:?}");
        assert!(!format!("{error:?} {error}").contains(KEY) && !error.hint().is_empty());
    }
    assert!(stand_in.asked("/v1/elsewhere").is_empty(), "a redirect was followed");
    stand_in.spoil(json!({"path": "/v1/bash/sessions/create", "kind": "refused"}));
    let error = service.open_session("s").await.unwrap_err();
    assert_eq!(error.to_string(), "the AIO service could not open a session: it could  not be done");
    assert!(!format!("{service:?}").contains(KEY));

    let stranger = AioService::new(stand_in.url.parse().unwrap(), &Secret::new("guessed")).unwrap();
    assert!(matches!(stranger.info().await, Err(AioError::KeyRefused)));
    assert!(AioService::new(stand_in.url.parse().unwrap(), &Secret::new("a\nb")).is_err());
    let connection = Connection::new(stand_in.url.parse().unwrap(), &Secret::new(KEY)).unwrap();
    stand_in.spoil(json!({"path": "/v1/sandbox", "kind": "slow"}));
    let timeout = Duration::from_millis(200);
    let request = ServiceRequest { action: "wait", path: "/v1/sandbox".to_owned(), timeout };
    assert!(matches!(connection.get::<Value>(request).await, Err(AioError::TooLate { .. })));
    let (url, _) = (stand_in.url.clone(), drop(stand_in));
    let nobody = AioService::new(url.parse().unwrap(), &Secret::new(KEY)).unwrap();
    assert!(matches!(nobody.info().await, Err(AioError::Unreachable { .. })));
}
