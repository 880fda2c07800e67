//! Lifetimes in a session box: background processes, the agent, pauses, and what is left after a
//! killed server.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ringwall_executor::session_box::{Death, Enabled, ProcessOptions, SessionBox, StartedProcess};
use ringwall_executor::{BoxControl, Ending, Error};
use ringwall_policy::Field;
use rustix::process::Signal;

use super::daemon::{Daemon, wait_until};
use super::project::block_on;
use super::session::{Session, TestBackend, processes_with, read_until};

/// If set, this program is a server with one native session box, which is running or paused.
pub(crate) const SERVER: &str = "RINGWALL_TEST_SESSION";

/// A unique number of seconds, by which the process can be found.
fn long_sleep(salt: u32) -> String {
    format!("{}.{salt}", 200_000 + std::process::id())
}

pub(crate) fn background_process_ends_with_box(daemon: &Daemon) {
    for maker in TestBackend::ALL {
        let session = Session::new(maker, daemon);
        let word = long_sleep(1);
        block_on(async {
            let session_box = session.settle().await.unwrap();
            // Its stdout is not read any more after the script's end; the loop must go on.
            let script =
                format!("(sleep {word}; true) & (while :; do echo x; sleep 0.01; echo y >> ticks; done) & echo $!");
            let first = session.say(&session_box, &script).await;
            assert_eq!(first.outcome.ending, Ending::Exited(0), "{maker:?}");
            let ticker = first.stdout.lines().find(|line| line.len() > 1 || *line != "x").unwrap().to_owned();
            let ticks = || std::fs::metadata(session.path("ticks")).map_or(0, |file| file.len());
            let before = ticks();
            wait_until("the loop goes on", || ticks() > before + 10);
            let alive = session.say(&session_box, &format!("kill -0 {ticker} && echo alive; kill {ticker}")).await;
            assert_eq!(alive.stdout, "alive\n", "{maker:?}: {}", alive.stderr);
            if maker != TestBackend::Gvisor {
                wait_until("the background process runs", || processes_with(&word) != 0);
            }
            session_box.end().await;
            assert_eq!(session_box.died().await, Death::Stopped);
            wait_until("every process of the box has ended", || processes_with(&word) == 0);
        });
    }
}

pub(crate) fn killed_agent_ends_box(daemon: &Daemon) {
    for maker in TestBackend::ALL {
        let session = Session::new(maker, daemon);
        let word = long_sleep(2);
        block_on(async {
            let session_box = session.settle().await.unwrap();
            let sleeper =
                session_box.process(session.grant(&["sleep", &word]), ProcessOptions::default()).await.unwrap();
            let murder = session.grant(&["sh", "-c", "read -r when; kill -9 $PPID; sleep 1000"]);
            let options = ProcessOptions { stdin: Enabled::Yes, ..ProcessOptions::default() };
            let mut murder = session_box.process(murder, options).await.unwrap();
            let mut stdin = murder.streams.stdin.take().unwrap();
            stdin.write(b"now\n").await.unwrap();
            let (sleeper, murder, death) =
                tokio::join!(sleeper.into_running().wait(), murder.into_running().wait(), session_box.died());
            assert!(matches!(sleeper, Err(Error::BoxDied { .. })), "{maker:?}: {sleeper:?}");
            assert!(matches!(murder, Err(Error::BoxDied { .. })), "{maker:?}: {murder:?}");
            assert!(matches!(death, Death::Failed(_)), "{maker:?}: {death:?}");
            wait_until("every process of the box has ended", || processes_with(&word) == 0);
        });
    }
}

pub(crate) fn paused_box_runs_nothing(daemon: &Daemon) {
    for maker in TestBackend::ALL {
        let session = Session::new(maker, daemon);
        block_on(async {
            let session_box = session.settle().await.unwrap();
            let ticker = session.grant(&["sh", "-c", "while :; do echo x >> ticks; sleep 0.01; done"]);
            let ticker = session_box.process(ticker, ProcessOptions::default()).await.unwrap();
            let ticks = || std::fs::metadata(session.path("ticks")).map_or(0, |file| file.len());
            wait_until("it ticks", || ticks() > 0);
            session_box.pause().await.unwrap();
            assert!(session_box.is_paused() && session_box.is_alive());
            session_box.pause().await.unwrap();
            let refused = session_box.process(session.grant(&["true"]), ProcessOptions::default()).await;
            assert!(matches!(refused, Err(Error::BoxPaused)), "{maker:?}");
            let (before, time) = (ticks(), ticker.process.box_time());
            tokio::time::sleep(Duration::from_millis(200)).await;
            assert_eq!(ticks(), before, "{maker:?}: a process ran during the pause");
            assert_eq!(ticker.process.box_time(), time, "{maker:?}: the box's clock ran during the pause");
            session_box.resume().await.unwrap();
            wait_until("it ticks again", || ticks() > before);
            assert!(ticker.process.box_time() > time, "{maker:?}");
            limits_stand_still(&session, &session_box).await;
            // A dropped pause still takes effect, and the next call finds the box paused.
            let mut given_up = Box::pin(session_box.pause());
            assert!(futures::poll!(&mut given_up).is_pending(), "{maker:?}");
            drop(given_up);
            until(|| session_box.is_paused()).await;
            session_box.resume().await.unwrap();
            let before = ticks();
            wait_until("it ticks again", || ticks() > before);
            session_box.pause().await.unwrap();
            session_box.end().await;
            assert_eq!(ticker.into_running().wait().await.unwrap().ending, Ending::Stopped(9), "{maker:?}");
            // A box that is being ended refuses a pause; otherwise it would never end.
            let session_box = session.settle().await.unwrap();
            session_box.kill();
            assert!(session_box.pause().await.is_err(), "{maker:?}");
            let gone = tokio::time::timeout(Duration::from_secs(60), session_box.end()).await;
            assert!(gone.is_ok(), "{maker:?}: the dismissed box did not end");
        });
    }
}

/// The time limit of a command does not advance during a pause that is longer than the limit. On a
/// slow machine the limit may pass before the pause; then a longer one is tried.
async fn limits_stand_still(session: &Session, session_box: &SessionBox) {
    let options = ProcessOptions { terminal: None, channel: Enabled::No, stdin: Enabled::Yes };
    for limit in [500, 4000, 32_000].map(Duration::from_millis) {
        let milliseconds = u64::try_from(limit.as_millis()).unwrap();
        let reader = session.limited(&[(Field::TimeoutMs, milliseconds)], &["sh", "-c", "read -r line; exit 4"]);
        let mut reader = session_box.process(reader, options).await.unwrap();
        let mut stdin = reader.streams.stdin.take().unwrap();
        stdin.write(b"now\n").await.unwrap();
        session_box.pause().await.unwrap();
        let reader = tokio::spawn(reader.into_running().wait());
        tokio::time::sleep(limit + Duration::from_millis(100)).await;
        session_box.resume().await.unwrap();
        let outcome = reader.await.unwrap().unwrap();
        if outcome.ending != Ending::TimedOut {
            assert_eq!(outcome.ending, Ending::Exited(4), "{:?}", session.maker);
            return;
        }
    }
    panic!("{:?}: the time limit advances during a pause", session.maker);
}

/// Waits for the effect of another task on the same thread.
pub(crate) async fn until(is_so: impl Fn() -> bool) {
    for _ in 0..30_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("waited too long");
}

/// A frozen agent receives no request: the box is resumed until the process has ended, and then
/// paused again.
pub(crate) fn process_in_paused_box_can_be_ended(daemon: &Daemon) {
    for maker in TestBackend::ALL {
        let session = Session::new(maker, daemon);
        block_on(async {
            let session_box = session.settle().await.unwrap();
            let deaf = session.grant(&["sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 0.05; done"]);
            let [sleeper, deaf] = [session.grant(&["sleep", "1000"]), deaf]
                .map(|grant| async { session_box.process(grant, ProcessOptions::default()).await.unwrap() });
            let (sleeper, mut deaf) = tokio::join!(sleeper, deaf);
            read_until(&mut deaf.streams.stdout, "deaf").await;
            session_box.pause().await.unwrap();
            let stop = |started: StartedProcess, signal| async move {
                let process = started.process.clone();
                let (outcome, ()) = tokio::join!(started.into_running().wait(), process.stop(signal));
                outcome.unwrap().ending
            };
            assert_eq!(stop(sleeper, Signal::TERM).await, Ending::Signalled(15), "{maker:?}");
            until(|| session_box.is_paused()).await;
            // A resume during the stop wins: the box is not paused again.
            let (ending, resumed) = tokio::join!(stop(deaf, Signal::TERM), async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                session_box.resume().await
            });
            resumed.unwrap();
            assert_eq!(ending, Ending::Signalled(9), "{maker:?}");
            assert!(
                session.say(&session_box, "echo on").await.stdout == "on\n" && !session_box.is_paused(),
                "{maker:?}"
            );
        });
    }
}

pub(crate) fn killed_server_leaves_no_process_or_cgroup(_: &Daemon) {
    for (salt, state) in [(3, "awake"), (4, "paused")] {
        let directory = tempfile::tempdir().unwrap();
        let word = long_sleep(salt);
        let mut server = Command::new(std::env::current_exe().unwrap());
        server.env(SERVER, format!("{state} {word}")).env("TMPDIR", directory.path());
        let mut server = Server(server.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap());
        let mut ready = String::new();
        BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n", "{state}");
        assert_ne!(processes_with(&word), 0, "{state}");
        let number = server.0.id();
        drop(server);
        wait_until("every process of the killed server has ended", || processes_with(&word) == 0);
        let groups = format!("ringwall-{number}-");
        wait_until("its cgroups are removed", || {
            let hierarchies = std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten();
            let mut names = hierarchies.filter_map(|one| std::fs::read_dir(one.path()).ok()).flatten().flatten();
            !names.any(|name| name.file_name().to_string_lossy().starts_with(&groups))
        });
    }
}

/// Kills the server on drop.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a session box with two sleeping processes, prints `ready`, and waits to be killed.
pub(crate) fn serve(run_request: &OsStr) -> ! {
    let run_request = run_request.to_str().unwrap();
    let (state, word) = run_request.split_once(' ').unwrap();
    let session = Session::without_docker(TestBackend::Native);
    block_on(async {
        let session_box = session.settle().await.unwrap();
        let script = format!("sleep {word} & setsid sleep {word} & wait");
        let process =
            session_box.process(session.grant(&["sh", "-c", &script]), ProcessOptions::default()).await.unwrap();
        wait_until("they sleep", || processes_with(word) == 2);
        if state == "paused" {
            session_box.pause().await.unwrap();
        }
        println!("ready");
        let outcome = process.into_running().wait().await;
        panic!("the server was not killed: {outcome:?}");
    })
}
