//! How containers end: by themselves, by memory, by the time limit, by signals; and that an image
//! cannot change it.

use std::time::{Duration, Instant};

use ringwall_executor::docker::Runtime;
use ringwall_executor::{Ending, Error, Input, Output, Streams};
use ringwall_policy::Field;
use rustix::process::Signal;

use super::daemon::{Daemon, HOSTILE_IMAGE};
use super::project::{Project, RunRequest, UID, block_on, docker_root, exec_id, read, write};

pub(crate) fn streams_carry_all_bytes_both_ways(daemon: &Daemon) {
    let project = Project::new();
    let docker = daemon.docker(project.data());
    let big = 3_000_000;
    let script = format!("yes | head -c {big}; yes | head -c {big} >&2");
    let run = project.run(&docker, &RunRequest::default(), &["sh", "-c", &script]).unwrap();
    assert_eq!((run.stdout.len(), run.stderr.len()), (big, big));
    let grant = project.grant(&RunRequest::default(), &["cat"]);
    block_on(async {
        let mut container = docker.start(grant, &exec_id(), Runtime::Default).await.unwrap();
        let mut streams = container.take_streams();
        let Some(Input::Pipe(stdin)) = streams.stdin.take() else { panic!("no pipe") };
        write(stdin, "through the wall\n");
        let output = read(streams);
        assert_eq!(container.wait().await.unwrap().ending, Ending::Exited(0));
        assert_eq!(output.await.unwrap().0, "through the wall\n");
    });
}

pub(crate) fn command_that_cannot_run_is_reported_with_reason(daemon: &Daemon) {
    let project = Project::new();
    let docker = daemon.docker(project.data());
    let run = |command: &[&str]| project.run(&docker, &RunRequest::default(), command);
    let missing = run(&["no-such-program"]);
    assert!(matches!(&missing, Err(Error::CommandNotFound { command }) if command == "no-such-program"), "{missing:?}");
    let refused = run(&["/bin/not-executable"]);
    assert!(matches!(refused, Err(Error::CommandNotExecutable { errno: 13, .. })), "{refused:?}");
    for code in [125, 126, 127] {
        let own = run(&["sh", "-c", &format!("echo mine >&2; exit {code}")]).unwrap();
        assert_eq!(own.outcome.ending, Ending::Exited(code), "a command's own exit code");
    }
    assert_eq!(run(&["sh", "-c", "exit 137"]).unwrap().outcome.ending, Ending::Exited(137));
    let absent = RunRequest { root: docker_root("no-such-image:1"), ..RunRequest::default() };
    let absent = project.run(&docker, &absent, &["true"]);
    assert!(matches!(absent, Err(Error::DockerImageMissing(_))), "{absent:?}");
    let little = RunRequest { limits: vec![(Field::MemoryMb, 1)], ..RunRequest::default() };
    let little = project.run(&docker, &little, &["true"]);
    assert!(matches!(little, Err(Error::ContainerRefused { .. })), "docker wants more memory than that: {little:?}");
}

pub(crate) fn oom_kill_is_reported(daemon: &Daemon) {
    let project = Project::new();
    let docker = daemon.docker(project.data());
    let hog = "dd if=/dev/zero of=/dev/null bs=200M count=1";
    let child = project.run(&docker, &RunRequest::default(), &["sh", "-c", &format!("{hog}; exit 3")]).unwrap();
    assert_eq!((child.outcome.ending, child.outcome.out_of_memory), (Ending::Exited(3), true), "{child:?}");
    let whole = project.run(&docker, &RunRequest::default(), &["sh", "-c", &format!("exec {hog}")]).unwrap();
    assert_eq!((whole.outcome.ending, whole.outcome.out_of_memory), (Ending::Signalled(9), true), "{whole:?}");
    let wide = RunRequest { limits: vec![(Field::MemoryMb, 512)], ..RunRequest::default() };
    let enough = project.run(&docker, &wide, &["sh", "-c", hog]).unwrap();
    assert_eq!((enough.outcome.ending, enough.outcome.out_of_memory), (Ending::Exited(0), false), "the control");
}

pub(crate) fn time_limit_ends_container(daemon: &Daemon) {
    let project = Project::new();
    let docker = daemon.docker(project.data());
    let run_request = RunRequest { limits: vec![(Field::TimeoutMs, 500)], ..RunRequest::default() };
    for script in ["exec sleep 1000", "trap '' TERM; while :; do sleep 1; done"] {
        let run = project.run(&docker, &run_request, &["sh", "-c", script]).unwrap();
        assert_eq!(run.outcome.ending, Ending::TimedOut, "{script}");
        assert!(run.outcome.duration >= Duration::from_millis(500), "{:?}", run.outcome.duration);
    }
    // Making the container does not count against the limit. A slow daemon reports the end late, so
    // longer limits are tried.
    let limits = [500, 2_000, 8_000]
        .map(|limit| RunRequest { limits: vec![(Field::TimeoutMs, limit)], ..RunRequest::default() });
    let ends = |run_request: &RunRequest| {
        project.run(&docker, run_request, &["true"]).unwrap().outcome.ending == Ending::Exited(0)
    };
    assert!(limits.iter().any(ends), "a command that ends at once timed out");
}

pub(crate) fn signal_and_kill_reach_command(daemon: &Daemon) {
    let project = Project::new();
    let docker = daemon.docker(project.data());
    let script = "trap 'echo heard; exit 7' USR1; echo ready; while :; do sleep 0.1; done";
    for (is_kill, expected) in [(false, Ending::Exited(7)), (true, Ending::Signalled(9))] {
        let grant = project.grant(&RunRequest::default(), &["sh", "-c", script]);
        let name = exec_id();
        block_on(async {
            let mut container = docker.start(grant, &name, Runtime::Default).await.unwrap();
            let mut streams = container.take_streams();
            let Some(Output::Pipe(stdout)) = streams.stdout.take() else { panic!("no pipe") };
            // After this line the trap is set.
            let ready = tokio::task::spawn_blocking(move || {
                let mut line = [0; 6];
                std::io::Read::read_exact(&mut std::fs::File::from(stdout.try_clone().unwrap()), &mut line).unwrap();
                stdout
            });
            let output = read(Streams { stdout: Some(Output::Pipe(ready.await.unwrap())), ..streams });
            match is_kill {
                true => container.control().kill(),
                false => container.control().signal(Signal::USR1),
            }
            assert_eq!(container.wait().await.unwrap().ending, expected);
            output.await.unwrap();
        });
        daemon.wait_until_gone(&format!("ringwall-{name}"));
    }
}

pub(crate) fn hostile_image_changes_neither_command_nor_outcome(daemon: &Daemon) {
    let project = Project::new();
    let docker = daemon.docker(project.data());
    let run_request = RunRequest { root: docker_root(HOSTILE_IMAGE), ..RunRequest::default() };
    let run = project.run(&docker, &run_request, &["sh", "-c", "id -u; echo $FROM_IMAGE; sleep 2; exit 5"]).unwrap();
    assert_eq!(run.outcome.ending, Ending::Exited(5), "the image's entry point or labels had an effect");
    assert_eq!(run.stdout, format!("{UID}\nyes\n"));
    assert!(!project.path("work/health").exists(), "the image's health check ran");
}

pub(crate) fn eight_concurrent_containers_keep_their_outcomes(daemon: &Daemon) {
    let project = Project::new();
    let docker = daemon.docker(project.data());
    let began = Instant::now();
    block_on(async {
        let mut running = tokio::task::JoinSet::new();
        for number in 0..8 {
            let grant = project.grant(&RunRequest::default(), &["sh", "-c", &format!("echo {number}; exit {number}")]);
            let docker = docker.clone();
            running.spawn(async move {
                let mut container = docker.start(grant, &exec_id(), Runtime::Default).await.unwrap();
                let output = read(container.take_streams());
                let outcome = container.wait().await.unwrap();
                assert_eq!(outcome.ending, Ending::Exited(number));
                assert_eq!(output.await.unwrap().0, format!("{number}\n"));
            });
        }
        while let Some(joined) = running.join_next().await {
            joined.unwrap();
        }
    });
    println!("eight containers in {:?}", began.elapsed());
}

/// A figure may be unknown if the cgroup was gone before it was read, but never wrong.
pub(crate) fn container_usage_is_reported(daemon: &Daemon) {
    let project = Project::new();
    let docker = daemon.docker(project.data());
    // Uses about 50 MB at once, and some CPU time.
    let work = "dd if=/dev/zero of=/dev/null bs=50M count=20; i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done";
    let wide = RunRequest { limits: vec![(Field::MemoryMb, 512)], ..RunRequest::default() };
    let mut known = 0;
    for _ in 0..5 {
        let outcome = project.run(&docker, &wide, &["sh", "-c", work]).unwrap().outcome;
        if let (Some(cpu), Some(peak)) = (outcome.usage.cpu, outcome.usage.peak_memory_bytes) {
            known += 1;
            assert!(cpu > Duration::from_millis(10) && cpu < Duration::from_secs(60), "{cpu:?}");
            assert!(peak > 50 << 20 && peak <= 512 << 20, "{peak}");
        }
    }
    assert!(known > 0, "the cgroups of this machine's daemon were never read");
}
