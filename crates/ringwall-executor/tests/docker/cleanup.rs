//! Containers without a caller: dropped, orphaned, or of a killed server.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use ringwall_executor::docker::{Docker, DockerSettings, Runtime};

use super::daemon::{Daemon, IMAGE, wait_until};
use super::project::{Project, RunRequest, block_on, exec_id};

/// If set, this program is a server with one container.
pub(crate) const SERVER: &str = "RINGWALL_TEST_SERVER";

pub(crate) fn dropped_container_is_removed(daemon: &Daemon) {
    let project = Project::new();
    let docker = daemon.docker(project.data());
    let name = exec_id();
    let grant = project.grant(&RunRequest::default(), &["sleep", "1000"]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let container = runtime.block_on(docker.start(grant, &name, Runtime::Default)).unwrap();
    let name = format!("ringwall-{name}");
    assert!(daemon.containers().contains(&name));
    runtime.block_on(async { drop(container) });
    daemon.wait_until_gone(&name);
}

pub(crate) fn sweep_removes_orphans_only(daemon: &Daemon) {
    let (project, other) = (Project::new(), Project::new());
    let docker = daemon.docker(project.data());
    let _neighbour = daemon.docker(other.data());
    let id = |project: &Project| std::fs::read_to_string(project.data().join("instance-id")).unwrap();
    let (ours, theirs) = (id(&project), id(&other));
    let init = std::fs::read_to_string("/proc/1/stat").unwrap();
    let start = init.rsplit_once(')').unwrap().1.split_ascii_whitespace().nth(19).unwrap();
    let run = |name: &str, data: &str, maker: &str| {
        let labels = [format!("--label=ringwall={}", data.trim()), format!("--label=ringwall.maker={maker}")];
        let name = format!("--name={name}");
        daemon.ask(&["run", "--detach", "--network=none", &name, &labels[0], &labels[1], IMAGE, "sleep", "1000"]);
    };
    let name = exec_id();
    let grant = project.grant(&RunRequest::default(), &["sleep", "1000"]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let container = runtime.block_on(docker.start(grant, &name, Runtime::Default)).unwrap();
    let name = format!("ringwall-{name}");
    let maker = daemon.ask(&["inspect", "--format={{index .Config.Labels \"ringwall.maker\"}}", &name]);
    run("sweep-orphan", &ours, "1-1-0");
    run("sweep-own-forgotten", &ours, maker.trim());
    run("sweep-alive", &ours, &format!("1-{start}-0"));
    run("sweep-neighbour", &theirs, "1-1-0");
    run("sweep-foreign", "", "1-1-0");
    assert_eq!(runtime.block_on(docker.sweep()).unwrap(), 2);
    let left: Vec<String> =
        daemon.containers().into_iter().filter(|one| one.starts_with("sweep-") || *one == name).collect();
    assert_eq!(left, ["sweep-foreign", "sweep-neighbour", "sweep-alive", &name]);
    assert_eq!(runtime.block_on(docker.sweep()).unwrap(), 0);
    daemon.ask(&["rm", "--force", "sweep-foreign", "sweep-neighbour", "sweep-alive"]);
    runtime.block_on(async { drop(container) });
    daemon.wait_until_gone(&name);
}

pub(crate) fn containers_of_killed_server_are_removed(daemon: &Daemon) {
    // The killed server cannot delete its own temporary directory.
    let directory = tempfile::tempdir().unwrap();
    let mut server = Command::new(std::env::current_exe().unwrap());
    server.env(SERVER, daemon.client()).env("TMPDIR", directory.path()).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut server = server.spawn().unwrap();
    let mut name = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut name).unwrap();
    let name = name.trim();
    assert!(daemon.containers().iter().any(|one| one == name), "{name:?} runs");
    server.kill().unwrap();
    server.wait().unwrap();
    daemon.wait_until_gone(name);
    let watcher = format!("ringwall-watcher\0ringwall.maker={}-", server.id());
    wait_until("the watcher has ended", || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let mut words = processes.map(|process| std::fs::read(process.path().join("cmdline")).unwrap_or_default());
        !words.any(|words| words.windows(watcher.len()).any(|window| window == watcher.as_bytes()))
    });
}

/// Starts one container, prints its name, and waits to be killed.
pub(crate) fn serve(client: PathBuf) -> ! {
    let project = Project::new();
    let settings = DockerSettings { client: Some(client), context: None };
    let docker = Docker::new(settings, project.data()).unwrap();
    let name = exec_id();
    let grant = project.grant(&RunRequest::default(), &["sleep", "1000"]);
    block_on(async {
        let container = docker.start(grant, &name, Runtime::Default).await.unwrap();
        println!("ringwall-{name}");
        let outcome = container.wait().await;
        panic!("the server was not killed: {outcome:?}");
    })
}
