//! A daemon that is missing, hangs, dies or is stopped: the exec fails within 10 s, and nothing is
//! left behind.

use std::path::Path;
use std::time::{Duration, Instant};

use ringwall_executor::docker::{Docker, DockerSettings, Runtime};
use ringwall_executor::{Ending, Error, RunningBox};
use ringwall_policy::Root;
use rustix::process::Signal;

use super::daemon::Daemon;
use super::project::{Project, RunRequest, exec_id};

const BOUND: Duration = Duration::from_secs(10);

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn unavailable<T: std::fmt::Debug>(result: Result<T, Error>, since: Instant) {
    let took = since.elapsed();
    assert!(matches!(result, Err(Error::BackendUnavailable { backend: "docker", .. })), "{result:?}");
    assert!(took < BOUND, "{took:?}");
    println!("{took:?}: {}", result.unwrap_err());
}

async fn sleeper(docker: &Docker, project: &Project, name: &str) -> RunningBox {
    let grant = project.grant(&RunRequest::default(), &["sleep", "1000"]);
    docker.start(grant, name, Runtime::Default).await.unwrap()
}

pub(crate) fn missing_daemon_fails_exec_within_10_s() {
    let project = Project::new();
    let client = project.data().join("docker");
    std::fs::write(&client, "#!/bin/sh\nexec docker --host unix:///nonexistent/docker.sock \"$@\"\n").unwrap();
    std::fs::set_permissions(&client, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for client in [client.as_path(), Path::new("/nonexistent/docker")] {
        let settings = DockerSettings { client: Some(client.to_owned()), context: None };
        let docker = Docker::new(settings, project.data()).unwrap();
        let began = Instant::now();
        unavailable(project.run(&docker, &RunRequest::default(), &["true"]), began);
        let state = runtime().block_on(docker.probe());
        assert!(state.daemon.is_err() && began.elapsed() < BOUND);
    }
}

pub(crate) fn hanging_daemon_fails_exec_within_10_s() {
    let daemon = Daemon::start();
    let project = Project::new();
    let docker = daemon.docker(project.data());
    let (running, starting) = (exec_id(), exec_id());
    let runtime = runtime();
    runtime.block_on(async {
        let container = sleeper(&docker, &project, &running).await;
        daemon.signal(Signal::STOP);
        let hung = Instant::now();
        let grant = project.grant(&RunRequest::default(), &["true"]);
        let (ended, started, state) = tokio::join!(
            timed(container.wait()),
            timed(docker.start(grant, &starting, Runtime::Default)),
            docker.probe()
        );
        unavailable(ended.0, Instant::now() - (ended.1 - hung));
        unavailable(started.0, Instant::now() - (started.1 - hung));
        assert!(state.daemon.is_err());
    });
    // A native box is not affected.
    let native = project.run_natively(&RunRequest { root: Root::Host, ..RunRequest::default() }, &["true"]).unwrap();
    assert_eq!(native.outcome.ending, Ending::Exited(0));
    daemon.signal(Signal::CONT);
    for name in [running, starting] {
        daemon.wait_until_gone(&format!("ringwall-{name}"));
    }
    let again = project.run(&docker, &RunRequest::default(), &["true"]).unwrap();
    assert_eq!(again.outcome.ending, Ending::Exited(0), "the backend works again");
}

async fn timed<T>(future: impl Future<Output = T>) -> (T, Instant) {
    let result = future.await;
    (result, Instant::now())
}

pub(crate) fn killed_daemon_fails_exec_within_10_s() {
    let daemon = Daemon::start();
    let project = Project::new();
    let docker = daemon.docker(project.data());
    let name = exec_id();
    let runtime = runtime();
    runtime.block_on(async {
        let container = sleeper(&docker, &project, &name).await;
        daemon.signal(Signal::KILL);
        let killed = Instant::now();
        unavailable(container.wait().await, killed);
    });
    daemon.replace();
    daemon.wait_until_gone(&format!("ringwall-{name}"));
    let again = project.run(&docker, &RunRequest::default(), &["true"]).unwrap();
    assert_eq!(again.outcome.ending, Ending::Exited(0), "the backend works again");
}

pub(crate) fn stopped_daemon_fails_exec_within_10_s() {
    let daemon = Daemon::start();
    let project = Project::new();
    let docker = daemon.docker(project.data());
    let name = exec_id();
    let runtime = runtime();
    runtime.block_on(async {
        let container = sleeper(&docker, &project, &name).await;
        daemon.signal(Signal::TERM);
        let stopped = Instant::now();
        unavailable(container.wait().await, stopped);
    });
    daemon.wait_until_ended();
    let began = Instant::now();
    unavailable(project.run(&docker, &RunRequest::default(), &["true"]), began);
}

/// gVisor is optional: if it is installed it must work, otherwise it must be refused.
pub(crate) fn installed_gvisor_runtime_runs_exec() {
    let runsc = ["/usr/bin/runsc", "/usr/local/bin/runsc"].into_iter().find(|path| Path::new(path).exists());
    let project = Project::new();
    let Some(runsc) = runsc else {
        println!("skipped: runsc is not installed");
        return;
    };
    let settings = project.data().join("daemon.json");
    let runtimes = serde_json::json!({"runtimes": {"runsc": {"path": runsc, "runtimeArgs": ["--platform=ptrace", "--network=none"]}}});
    std::fs::write(&settings, runtimes.to_string()).unwrap();
    let daemon = Daemon::start_with(&[format!("--config-file={}", settings.display())]);
    let docker = daemon.docker(project.data());
    let grant =
        project.grant(&RunRequest::default(), &["sh", "-c", "dmesg; cat ../inputs/given; echo x > made; exit 4"]);
    let (outcome, output) = runtime().block_on(async {
        assert!(docker.probe().await.available(Runtime::Gvisor).is_ok());
        let mut container = docker.start(grant, &exec_id(), Runtime::Gvisor).await.unwrap();
        let output = super::project::read(container.take_streams());
        let outcome = container.wait().await.unwrap();
        (outcome, output.await.unwrap())
    });
    assert_eq!(outcome.ending, Ending::Exited(4), "{output:?}");
    assert!(output.0.contains("gVisor") && output.0.ends_with("given\n"), "{output:?}");
    assert!(project.path("work/made").exists());
}
