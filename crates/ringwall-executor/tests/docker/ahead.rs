//! Warm containers: a session that gets one has the same box as a cold start makes, and a changed
//! container is never handed out. The tests run one after another, because a change of images
//! affects all warm containers.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use ringwall_executor::Error;
use ringwall_executor::session_box::SessionBox;
use ringwall_policy::{Field, Root};
use rustix::process::{Pid, Signal, kill_process};

use super::daemon::{Daemon, IMAGE};
use super::project::{GID, RunRequest, UID, block_on, docker_root};
use super::session::{Session, TestBackend};
use super::staying::until;

/// An image with a symbolic link at `/workspace`.
const LINKED_IMAGE: &str = "ringwall-linked:latest";
const TAG: &str = "ringwall-test:tagged";

pub(crate) fn a_container_made_ahead_becomes_a_sessions_box(daemon: &Daemon) {
    daemon.import(LINKED_IMAGE, &[("workspace", "bin")], &[]);
    as_from_nothing(daemon);
    other_shapes(daemon);
    not_as_it_was_made(daemon);
    through_no_link(daemon);
    of_another_process(daemon);
    with_another_image(daemon);
}

/// Prints what a command sees of its box: environment, privileges, limits, files.
const LOOK: &str = "env; grep -E 'Cap|NoNewPrivs|Seccomp:' /proc/self/status; cat /proc/self/limits; \
                    ls -a / /workspace /workspace/.. /tmp /dev/shm; pwd";

async fn mounts(session: &Session, session_box: &SessionBox) -> Vec<(String, String)> {
    let said = session.say(session_box, "cat /proc/self/mountinfo").await.stdout;
    let mut mounts: Vec<(String, String)> = said
        .lines()
        .map(|line| {
            let mut fields = line.split(' ');
            (fields.nth(4).unwrap().to_owned(), fields.next().unwrap().to_owned())
        })
        .collect();
    mounts.sort();
    mounts
}

fn as_from_nothing(daemon: &Daemon) {
    let session = Session::new(TestBackend::Docker, daemon);
    block_on(async {
        let warm_box = session.prepare(&RunRequest::default()).await.unwrap();
        assert!(warm_box.is_alive());
        let before = session.containers(daemon);
        std::fs::write(session.path("given"), "given\n").unwrap();
        chown(session.path("given"), Some(UID), Some(GID)).unwrap();
        let session_box = session.settle_in(warm_box, &RunRequest::default()).await.unwrap();
        assert_eq!(session.containers(daemon), before, "the warm container was used");
        let cold = session.settle().await.unwrap();
        assert_eq!(session_box.protections(), cold.protections());
        let [ahead, from_nothing] =
            [session.say(&session_box, LOOK).await, session.say(&cold, LOOK).await].map(|said| said.stdout);
        assert_eq!(ahead, from_nothing);
        assert!(ahead.contains("given\n"), "{ahead}");

        let (ahead, from_nothing) = (mounts(&session, &session_box).await, mounts(&session, &cold).await);
        let places = |mounts: &[(String, String)]| mounts.iter().map(|(at, _)| at.clone()).collect::<Vec<_>>();
        assert_eq!(places(&ahead), places(&from_nothing));
        let (_, options) = ahead.iter().find(|(at, _)| at == "/workspace").unwrap();
        assert!(["rw", "nosuid", "nodev"].iter().all(|one| options.split(',').any(|other| other == *one)), "{options}");

        let made =
            session.say(&session_box, "cat given; echo new >> given; mkdir d; echo made > d/made; echo x > gone").await;
        assert_eq!((made.stdout.as_str(), made.stderr.as_str()), ("given\n", ""));
        for name in ["given", "d", "d/made"] {
            let on_disk = std::fs::metadata(session.path(name)).unwrap();
            assert_eq!((on_disk.uid(), on_disk.gid()), (UID, GID), "{name}");
        }
        let said = session.say(&cold, "cat d/made; echo changed > d/made; mv gone d/; echo cold > cold").await;
        assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("made\n", ""));
        let said = session.say(&session_box, "cat d/made d/gone cold; echo on >> cold").await;
        assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("changed\nx\ncold\n", ""));
        session_box.pause().await.unwrap();
        session_box.resume().await.unwrap();
        session_box.end().await;
        cold.end().await;
        assert_eq!(session.containers(daemon), "");
    });
    let session = session.by(TestBackend::Native);
    block_on(async {
        let (_, said) = session.run_alone(&["sh", "-c", "cat given cold; rm -r d cold && ls"]).await.unwrap();
        assert_eq!(said, "given\nnew\ncold\non\ngiven\n");
    });
}

/// A warm container serves only grants with the properties it was made with.
fn other_shapes(daemon: &Daemon) {
    let session = Session::new(TestBackend::Docker, daemon);
    block_on(async {
        let default = session.shape(&RunRequest::default()).await;
        assert!(default.is_some() && default == session.shape(&RunRequest::default()).await);
        let timed = RunRequest { limits: vec![(Field::TimeoutMs, 7)], ..RunRequest::default() };
        assert_eq!(session.shape(&timed).await, default, "the time limit is not part of the shape");
        for field in [Field::MemoryMb, Field::CpuMillis, Field::Pids, Field::ScratchMb] {
            let other = session.shape(&RunRequest { limits: vec![(field, 33)], ..RunRequest::default() }).await;
            assert!(other.is_some() && other != default, "{field:?}");
        }
        let other = session.shape(&RunRequest { root: docker_root(LINKED_IMAGE), ..RunRequest::default() }).await;
        assert!(other.is_some() && other != default);
        let none = [
            RunRequest { env: vec![("A", "b".to_owned())], ..RunRequest::default() },
            RunRequest { is_open: true, ..RunRequest::default() },
            RunRequest { root: Root::Host, ..RunRequest::default() },
        ];
        for run_request in none {
            assert_eq!(session.shape(&run_request).await, None, "{run_request:?}");
        }
        let warm_box = session.prepare(&RunRequest::default()).await.unwrap();
        let other = RunRequest { limits: vec![(Field::MemoryMb, 33)], ..RunRequest::default() };
        let refused = session.settle_in(warm_box, &other).await;
        assert!(matches!(refused, Err(Error::WarmBoxUnfit(_))), "{refused:?}");
        assert_eq!(session.containers(daemon), "", "the container is removed");
    });
}

/// A container is changed from outside just before a session takes it.
fn not_as_it_was_made(daemon: &Daemon) {
    let session = Session::new(TestBackend::Docker, daemon);
    let agent = |id: &str| {
        let init: i32 = daemon.ask(&["inspect", "--format={{.State.Pid}}", id]).trim().parse().unwrap();
        let children = std::fs::read_to_string(format!("/proc/{init}/task/{init}/children")).unwrap();
        Pid::from_raw(children.trim().parse().unwrap()).unwrap()
    };
    type Deed<'a> = (&'a str, &'a dyn Fn(&str));
    let deeds: [Deed<'_>; 4] = [
        ("killed", &|id| drop(daemon.ask(&["kill", id]))),
        ("paused", &|id| drop(daemon.ask(&["pause", id]))),
        ("its agent killed", &|id| kill_process(agent(id), Signal::KILL).unwrap()),
        ("its agent stopped", &|id| kill_process(agent(id), Signal::STOP).unwrap()),
    ];
    for (deed, act) in deeds {
        block_on(async {
            let warm_box = session.prepare(&RunRequest::default()).await.unwrap();
            assert!(warm_box.is_alive(), "{deed}");
            act(session.containers(daemon).trim());
            let refused = session.settle_in(warm_box, &RunRequest::default()).await;
            assert!(refused.is_err(), "{deed}: {refused:?}");
            assert_eq!(session.containers(daemon), "", "{deed}: the container is removed");
        });
    }
    // A change that only the daemon knows is reported by an event, with a delay.
    block_on(async {
        let warm_box = session.prepare(&RunRequest::default()).await.unwrap();
        daemon.ask(&["update", "--pids-limit=7", session.containers(daemon).trim()]);
        until(|| !warm_box.is_alive()).await;
        assert!(matches!(session.settle_in(warm_box, &RunRequest::default()).await, Err(Error::WarmBoxUnfit(_))));
    });
    // A container that is never taken can be ended too.
    block_on(async { session.prepare(&RunRequest::default()).await.unwrap().end().await });
    assert_eq!(session.containers(daemon), "");
}

fn through_no_link(daemon: &Daemon) {
    let session = Session::new(TestBackend::Docker, daemon);
    block_on(async {
        let linked = RunRequest { root: docker_root(LINKED_IMAGE), ..RunRequest::default() };
        let refused = session.prepare(&linked).await;
        assert!(matches!(refused, Err(Error::Setup(_))), "{refused:?}");
        assert_eq!(session.containers(daemon), "", "the container is removed");
        assert!(session.shape(&linked).await.is_some(), "another image may work");
    });
}

/// A remote daemon, or one in another PID namespace, returns a PID that is another process here.
fn of_another_process(daemon: &Daemon) {
    let directory = tempfile::tempdir().unwrap();
    let client = directory.path().join("docker");
    let real = daemon.client();
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = inspect ] || exec {real} \"$@\"\nsaid=$({real} \"$@\") && echo \"${{said% *}} {}\"\n",
        std::process::id(),
        real = real.display()
    );
    std::fs::write(&client, script).unwrap();
    std::fs::set_permissions(&client, Permissions::from_mode(0o755)).unwrap();
    let session = Session::through(client);
    block_on(async {
        let refused = session.prepare(&RunRequest::default()).await;
        assert!(matches!(refused, Err(Error::NoWarmBoxes(_))), "{refused:?}");
        assert_eq!(session.containers(daemon), "", "the container is removed");
        assert_eq!(session.shape(&RunRequest::default()).await, None, "no further attempt is made");
        let session_box = session.settle().await.unwrap();
        assert_eq!(session.say(&session_box, "echo there").await.stdout, "there\n", "cold containers still work");
        session_box.end().await;
    });
}

/// The image's name gets another meaning while a container waits.
fn with_another_image(daemon: &Daemon) {
    let session = Session::new(TestBackend::Docker, daemon);
    daemon.ask(&["tag", IMAGE, TAG]);
    let run_request = RunRequest { root: docker_root(TAG), ..RunRequest::default() };
    block_on(async {
        let warm_box = session.prepare(&run_request).await.unwrap();
        assert!(warm_box.is_alive());
        daemon.ask(&["tag", LINKED_IMAGE, TAG]);
        until(|| !warm_box.is_alive()).await;
        let refused = session.settle_in(warm_box, &run_request).await;
        assert!(matches!(refused, Err(Error::WarmBoxUnfit(_))), "{refused:?}");
    });
    assert_eq!(session.containers(daemon), "");
}
