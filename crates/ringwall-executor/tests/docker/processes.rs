//! Session processes on every backend: streams, channel, terminal, signals, limits, isolation.

use std::time::{Duration, Instant};

use ringwall_executor::session_box::{Death, Enabled, ProcessOptions};
use ringwall_executor::{BoxControl, Ending, Error, ProtectionName, ProtectionState, WindowSize};
use ringwall_policy::Field;
use rustix::process::Signal;

use super::daemon::{Daemon, wait_until};
use super::project::{RunRequest, block_on};
use super::session::{Session, TestBackend, processes_with, read, read_some, read_until};

const WITH_STDIN: ProcessOptions = ProcessOptions { terminal: None, channel: Enabled::No, stdin: Enabled::Yes };
const WITH_CHANNEL: ProcessOptions = ProcessOptions { terminal: None, channel: Enabled::Yes, stdin: Enabled::No };
const ON_A_TERMINAL: ProcessOptions =
    ProcessOptions { terminal: Some(WindowSize { rows: 24, columns: 80 }), channel: Enabled::No, stdin: Enabled::Yes };

pub(crate) fn session_box_runs_processes_in_sequence_and_at_once(daemon: &Daemon) {
    for maker in TestBackend::ALL {
        let session = Session::new(maker, daemon);
        block_on(async {
            let session_box = session.settle().await.unwrap();
            assert!(!session_box.protections().is_empty());
            let run_request = RunRequest {
                env: vec![("WORD", "two words".to_owned())],
                cwd: Some("/workspace".into()),
                ..RunRequest::default()
            };
            let first =
                session.run_request(&run_request, &["sh", "-c", "read -r line; pwd; echo $line $WORD >&2; exit 3"]);
            let mut first = session_box.process(first, WITH_STDIN).await.unwrap();
            let second = session.say(&session_box, "echo kept > /tmp/state; echo made > made; echo second").await;
            assert_eq!(
                (second.outcome.ending, second.stdout.as_str()),
                (Ending::Exited(0), "second\n"),
                "{maker:?}: {}",
                second.stderr
            );
            assert_eq!(second.stderr, "", "{maker:?}");
            let mut stdin = first.streams.stdin.take().unwrap();
            stdin.write(b"first\n").await.unwrap();
            let said = session.follow(first).await;
            assert_eq!(said.outcome.ending, Ending::Exited(3), "{maker:?}: {said:?}");
            assert_eq!(
                (said.stdout.as_str(), said.stderr.as_str()),
                ("/workspace\n", "first two words\n"),
                "{maker:?}"
            );
            let third = session.say(&session_box, "cat /tmp/state; echo ${WORD-nothing}").await;
            assert_eq!(third.stdout, "kept\nnothing\n", "{maker:?}: the box is the same, the environment is not");
            assert!(third.outcome.usage.cpu.is_some());
            assert_eq!(std::fs::read_to_string(session.path("made")).unwrap(), "made\n", "{maker:?}");
            let signalled = session.say(&session_box, "kill -9 $$").await;
            assert_eq!(signalled.outcome.ending, Ending::Signalled(9), "{maker:?}");
            session_box.end().await;
            assert!(!session_box.is_alive());
            let late = session_box.process(session.grant(&["true"]), ProcessOptions::default()).await;
            assert!(matches!(late, Err(Error::BoxDied { .. })), "{maker:?}");
        });
    }
}

pub(crate) fn command_that_cannot_start_reports_common_error(daemon: &Daemon) {
    for maker in TestBackend::ALL {
        let session = Session::new(maker, daemon);
        block_on(async {
            let session_box = session.settle().await.unwrap();
            let begin = async |grant| session_box.process(grant, ProcessOptions::default()).await.map(drop);
            let missing = begin(session.grant(&["no-such-program"])).await;
            assert!(matches!(&missing, Err(Error::CommandNotFound { command }) if command == "no-such-program"));
            let closed = begin(session.grant(&["/workspace"])).await;
            assert!(matches!(closed, Err(Error::CommandNotExecutable { errno: 13, .. })), "{closed:?}");
            let nowhere = RunRequest { cwd: Some("/workspace/nowhere".into()), ..RunRequest::default() };
            let nowhere = begin(session.run_request(&nowhere, &["true"])).await;
            assert!(matches!(nowhere, Err(Error::DirectoryMissing(_))), "{nowhere:?}");
            let wide = begin(session.limited(&[(Field::MemoryMb, 65)], &["true"])).await;
            assert!(matches!(wide, Err(Error::NotForThisBox { what: "limits" })), "{wide:?}");
            let elsewhere = begin(Session::new(maker, daemon).grant(&["true"])).await;
            assert!(matches!(elsewhere, Err(Error::NotForThisBox { what: "files" })), "{elsewhere:?}");
            assert_eq!(session.say(&session_box, "echo fine").await.stdout, "fine\n", "{maker:?}");
        });
    }
}

/// Each channel message is answered, so that a round is checked before the next one begins.
pub(crate) fn output_before_channel_message_arrives_first(daemon: &Daemon) {
    const ROUNDS: usize = 100;
    let script =
        "i=100; while [ $i -lt 200 ]; do echo $i; echo $i >&2; echo $i >&3; read -r answer <&3; i=$((i + 1)); done
        echo end; echo last >&3";
    for maker in TestBackend::ALL {
        let session = Session::new(maker, daemon);
        block_on(async {
            let session_box = session.settle().await.unwrap();
            let process = session_box.process(session.grant(&["sh", "-c", script]), WITH_CHANNEL).await.unwrap();
            let mut streams = process.streams;
            let (mut to, mut from) = streams.channel.take().unwrap();
            let mut stderr = streams.stderr.take().unwrap();
            for round in 100..100 + ROUNDS {
                let expected = format!("{round}\n");
                assert_eq!(read_some(&mut from, 4).await, expected, "{maker:?}");
                assert_eq!(streams.stdout.read_now(), expected.as_bytes(), "{maker:?}");
                assert_eq!(stderr.read_now(), expected.as_bytes(), "{maker:?}");
                to.write(b"go on\n").await.unwrap();
            }
            assert_eq!(read(&mut from).await, "last\n", "{maker:?}: the channel ends");
            assert_eq!(read(&mut streams.stdout).await, "end\n", "{maker:?}");
            assert_eq!(process.running.wait().await.unwrap().ending, Ending::Exited(0), "{maker:?}");
        });
    }
}

pub(crate) fn unread_output_blocks_only_its_own_process(daemon: &Daemon) {
    const MUCH: u64 = 100_000_000;
    let resident_memory = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap().to_owned();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    };
    for maker in [TestBackend::Native, TestBackend::Docker] {
        let session = Session::new(maker, daemon);
        block_on(async {
            let session_box = session.settle().await.unwrap();
            // The output of this process is never read; it must not delay others.
            let stuck = session_box.process(session.grant(&["yes"]), ProcessOptions::default()).await.unwrap();
            let before = resident_memory();
            let script = format!("head -c {MUCH} /dev/zero; echo done >&2");
            let process =
                session_box.process(session.grant(&["sh", "-c", &script]), ProcessOptions::default()).await.unwrap();
            let mut streams = process.streams;
            let counted = async {
                let mut sink = tokio::io::sink();
                tokio::io::copy(&mut streams.stdout, &mut sink).await.unwrap()
            };
            let (outcome, counted) = tokio::join!(process.running.wait(), counted);
            assert_eq!((outcome.unwrap().ending, counted), (Ending::Exited(0), MUCH), "{maker:?}");
            assert_eq!(read(streams.stderr.as_mut().unwrap()).await, "done\n");
            let grown = resident_memory().saturating_sub(before);
            assert!(grown < MUCH / 2, "{maker:?}: the server's memory grew by {grown} bytes");
            // Output without a reader is discarded, and the command runs to its end.
            let unread =
                session_box.process(session.grant(&["head", "-c", "10000000", "/dev/zero"]), ProcessOptions::default());
            assert_eq!(
                unread.await.unwrap().into_running().wait().await.unwrap().ending,
                Ending::Exited(0),
                "{maker:?}"
            );
            let handle = stuck.process.clone();
            let stopped = async {
                handle.stop(Signal::TERM).await;
            };
            let (outcome, ()) = tokio::join!(stuck.into_running().wait(), stopped);
            assert_eq!(outcome.unwrap().ending, Ending::Signalled(15), "{maker:?}");
        });
    }
}

pub(crate) fn input_blocks_until_it_is_read(daemon: &Daemon) {
    const MUCH: usize = 1_000_000;
    let script = "while ! [ -e go ]; do sleep 0.02; done; cat > all";
    for maker in TestBackend::ALL {
        let session = Session::new(maker, daemon);
        block_on(async {
            let session_box = session.settle().await.unwrap();
            let mut process = session_box.process(session.grant(&["sh", "-c", script]), WITH_STDIN).await.unwrap();
            let mut stdin = process.streams.stdin.take().unwrap();
            let written = tokio::spawn(async move {
                stdin.write(&vec![b'x'; MUCH]).await.unwrap();
                drop(stdin);
            });
            // Other processes are served meanwhile, and the write is still waiting.
            assert_eq!(session.say(&session_box, "echo other").await.stdout, "other\n", "{maker:?}");
            assert!(!written.is_finished(), "{maker:?}: more input was accepted than a window and a pipe hold");
            assert_eq!(session.say(&session_box, "touch go").await.outcome.ending, Ending::Exited(0));
            written.await.unwrap();
            assert_eq!(process.into_running().wait().await.unwrap().ending, Ending::Exited(0), "{maker:?}");
            assert_eq!(std::fs::metadata(session.path("all")).unwrap().len(), MUCH as u64, "{maker:?}");
            let mut process =
                session_box.process(session.grant(&["sh", "-c", "exec <&-; read -r x <go"]), WITH_STDIN).await.unwrap();
            let mut stdin = process.streams.stdin.take().unwrap();
            process.into_running().wait().await.unwrap();
            let broken = stdin.write(b"too late").await.unwrap_err();
            assert_eq!(broken.kind(), std::io::ErrorKind::BrokenPipe, "{maker:?}");
        });
    }
}

pub(crate) fn terminal_passes_keys_and_sizes(daemon: &Daemon) {
    let script = "trap 'echo caught; exit 7' INT; trap 'stty size' WINCH; stty size; echo ready
        while :; do sleep 0.05; done";
    for maker in TestBackend::ALL {
        let session = Session::new(maker, daemon);
        block_on(async {
            let session_box = session.settle().await.unwrap();
            let process = match session_box.process(session.grant(&["sh", "-c", script]), ON_A_TERMINAL).await {
                // Some versions of gVisor do not support the interrupt key. That is detected and
                // reported before the command starts.
                Err(Error::NoTerminal) if maker == TestBackend::Gvisor => {
                    println!("this machine's gVisor has no terminals");
                    assert_eq!(session.say(&session_box, "echo fine").await.stdout, "fine\n");
                    return;
                }
                process => process.unwrap(),
            };
            let mut streams = process.streams;
            assert!(streams.stderr.is_none());
            let first = read_until(&mut streams.stdout, "ready").await;
            assert!(first.contains("24 80"), "{maker:?}: {first:?}");
            process.process.resize(WindowSize { rows: 40, columns: 100 });
            read_until(&mut streams.stdout, "40 100").await;
            let mut stdin = streams.stdin.take().unwrap();
            stdin.write(b"\x03").await.unwrap();
            let (outcome, last) = tokio::join!(process.running.wait(), read(&mut streams.stdout));
            assert_eq!(outcome.unwrap().ending, Ending::Exited(7), "{maker:?}");
            assert!(last.contains("caught"), "{maker:?}: {last:?}");
            // The command may end before or after its terminal is read; both must be noticed.
            for _ in 0..20 {
                let process = session_box.process(session.grant(&["true"]), ON_A_TERMINAL).await.unwrap();
                assert_eq!(process.into_running().wait().await.unwrap().ending, Ending::Exited(0), "{maker:?}");
            }
        });
    }
}

/// A process tries to read the environment, descriptors and memory of another session process of
/// the same user.
pub(crate) fn session_process_cannot_inspect_another(daemon: &Daemon) {
    let victim = "exec 7<>pipe; echo $$ > pid; echo up; read -r x";
    let look = "for p in $PIDS; do
            cat /proc/$p/environ | grep -q CANARY && echo environ
            (echo touched > /proc/$p/fd/7) 2>/dev/null && echo fd
            true 2>/dev/null 8</proc/$p/mem && echo mem
            kill -0 $p && echo signal
        done; true";
    for maker in [TestBackend::Native, TestBackend::Docker] {
        let session = Session::new(maker, daemon);
        std::fs::write(session.path("pipe"), "").unwrap();
        std::os::unix::fs::chown(session.path("pipe"), Some(super::project::UID), None).unwrap();
        block_on(async {
            let session_box = session.settle().await.unwrap();
            let apart = session_box.protections().iter().find(|one| one.name == ProtectionName::CommandsApart);
            assert_eq!(apart.unwrap().state, ProtectionState::Enforced, "{maker:?}");
            let env = vec![("CANARY", "in the mine".to_owned())];
            let grant = session.run_request(&RunRequest { env, ..RunRequest::default() }, &["sh", "-c", victim]);
            let process = session_box.process(grant, WITH_STDIN).await.unwrap();
            let mut streams = process.streams;
            read_until(&mut streams.stdout, "up").await;
            let attack = session.say(&session_box, &format!("PIDS=$(cat pid); {look}")).await;
            assert_eq!(attack.stdout, "signal\n", "{maker:?}: only signals may work: {}", attack.stderr);
            assert_eq!(std::fs::read_to_string(session.path("pipe")).unwrap(), "", "{maker:?}");
            // The control: all of it works on the attacker's own child.
            let own = format!(
                "export CANARY=x; (exec 7<>pipe; exec sleep 1000) & PIDS=$!; until grep -q CANARY /proc/$PIDS/environ; do :; done; {look}; kill $PIDS"
            );
            let own = session.say(&session_box, &own).await;
            assert_eq!(own.stdout, "environ\nfd\nmem\nsignal\n", "{maker:?}: {}", own.stderr);
            assert_eq!(std::fs::read_to_string(session.path("pipe")).unwrap(), "touched\n", "{maker:?}");
            // Renaming between directories still works.
            let moved = session.say(&session_box, "mkdir -p a b; echo x > a/x; mv a/x b/y && cat b/y").await;
            assert_eq!(moved.stdout, "x\n", "{maker:?}: {}", moved.stderr);
            drop(streams);
            assert_eq!(process.running.wait().await.unwrap().ending, Ending::Exited(1), "{maker:?}");
        });
    }
}

pub(crate) fn signal_reaches_process_group(daemon: &Daemon) {
    let script = "trap 'echo heard; exit 5' USR1; echo ready; while :; do sleep 0.05; done";
    for maker in TestBackend::ALL {
        let session = Session::new(maker, daemon);
        block_on(async {
            let session_box = session.settle().await.unwrap();
            let process =
                session_box.process(session.grant(&["sh", "-c", script]), ProcessOptions::default()).await.unwrap();
            let mut streams = process.streams;
            assert_eq!(read_some(&mut streams.stdout, 6).await, "ready\n");
            process.process.signal(Signal::USR1);
            let (outcome, last) = tokio::join!(process.running.wait(), read(&mut streams.stdout));
            assert_eq!((outcome.unwrap().ending, last.as_str()), (Ending::Exited(5), "heard\n"), "{maker:?}");
        });
    }
}

pub(crate) fn time_limit_ends_one_session_process(daemon: &Daemon) {
    for maker in TestBackend::ALL {
        let session = Session::new(maker, daemon);
        block_on(async {
            let session_box = session.settle().await.unwrap();
            let word = format!("{}.5", 100_000 + std::process::id());
            // Both processes ignore SIGTERM; `sleep` has a process group of its own.
            let script = format!("trap '' TERM; set -m; sleep {word} & while :; do sleep 1; done");
            let limited = session.limited(&[(Field::TimeoutMs, 300)], &["sh", "-c", &script]);
            let outcome = session_box
                .process(limited, ProcessOptions::default())
                .await
                .unwrap()
                .into_running()
                .wait()
                .await
                .unwrap();
            assert_eq!(outcome.ending, Ending::TimedOut, "{maker:?}");
            assert!(outcome.duration >= Duration::from_millis(300), "{maker:?}: {:?}", outcome.duration);
            let obedient = session.limited(&[(Field::TimeoutMs, 300)], &["sleep", &word]);
            let outcome = session_box
                .process(obedient, ProcessOptions::default())
                .await
                .unwrap()
                .into_running()
                .wait()
                .await
                .unwrap();
            assert_eq!(outcome.ending, Ending::TimedOut, "{maker:?}");
            // The host does not see the processes of gVisor's kernel.
            if maker != TestBackend::Gvisor {
                wait_until("the whole process session has ended", || processes_with(&word) == 0);
            }
            assert_eq!(session.say(&session_box, "echo fine").await.stdout, "fine\n", "{maker:?}: the box lives");
        });
    }
}

pub(crate) fn oom_kill_of_session_process_is_reported(daemon: &Daemon) {
    for maker in TestBackend::ALL {
        let session = Session::new(maker, daemon);
        block_on(async {
            let session_box = session.settle().await.unwrap();
            assert!(!session.say(&session_box, "true").await.outcome.out_of_memory);
            let hog = session.grant(&["dd", "if=/dev/zero", "of=/dev/null", "bs=200M", "count=1"]);
            let started = session_box.process(hog, ProcessOptions::default()).await;
            // The host may kill gVisor's kernel before the agent has reported the start.
            if maker == TestBackend::Gvisor && matches!(started, Err(Error::BoxDied { .. })) {
                assert_eq!(session_box.died().await, Death::OutOfMemory);
                return;
            }
            let outcome = started.unwrap().into_running().wait().await.unwrap();
            assert_eq!((outcome.ending, outcome.out_of_memory), (Ending::Signalled(9), true), "{maker:?}");
            // Out of memory, the host kills gVisor's kernel and with it the box.
            if maker == TestBackend::Gvisor {
                assert_eq!(session_box.died().await, Death::OutOfMemory);
            }
        });
    }
}

pub(crate) fn session_process_has_its_streams_and_no_privilege(daemon: &Daemon) {
    // The highest number is the descriptor with which `ls` reads the directory.
    let list = "ls /proc/self/fd";
    let agent = "cat /proc/$PPID/environ; ls /proc/$PPID/fd/; echo x > /run/ringwall/agent; true";
    for maker in [TestBackend::Native, TestBackend::Docker] {
        let session = Session::new(maker, daemon);
        block_on(async {
            let session_box = session.settle().await.unwrap();
            for (options, expected) in [
                (ProcessOptions::default(), "0\n1\n2\n3\n"),
                (WITH_STDIN, "0\n1\n2\n3\n"),
                (WITH_CHANNEL, "0\n1\n2\n3\n4\n"),
            ] {
                let process = session_box.process(session.grant(&["ls", "/proc/self/fd"]), options).await.unwrap();
                assert_eq!(session.follow(process).await.stdout, expected, "{maker:?} {options:?}");
            }
            let process = session_box.process(session.grant(&["sh", "-c", list]), ON_A_TERMINAL).await.unwrap();
            let listed = session.follow(process).await.stdout;
            let numbers: Vec<&str> = listed.split_ascii_whitespace().collect();
            assert_eq!(numbers, ["0", "1", "2", "3"], "{maker:?}");
            let status =
                session.say(&session_box, "(setsid cat /proc/self/status)& wait; cat /proc/self/status").await.stdout;
            for (line, times) in [("CapEff:\t0000000000000000", 2), ("NoNewPrivs:\t1", 2), ("Seccomp:\t2", 2)] {
                assert_eq!(status.matches(line).count(), times, "{maker:?}: {line} in {status}");
            }
            let agent = session.say(&session_box, agent).await;
            assert_eq!(agent.stdout, "", "{maker:?}: the agent was readable: {}", agent.stderr);
            assert_eq!(session.say(&session_box, "echo fine").await.stdout, "fine\n", "{maker:?}");
        });
    }
}

/// Prints the time per session process, without a limit.
pub(crate) fn start_costs_are_printed(daemon: &Daemon) {
    const PROCESSES: u32 = 200;
    for maker in TestBackend::ALL {
        let session = Session::new(maker, daemon);
        block_on(async {
            let session_box = session.settle().await.unwrap();
            let began = Instant::now();
            for _ in 0..PROCESSES {
                let process = session_box.process(session.grant(&["true"]), ProcessOptions::default()).await.unwrap();
                assert_eq!(process.into_running().wait().await.unwrap().ending, Ending::Exited(0));
            }
            println!("a process costs {:?} in a box of {maker:?}", began.elapsed() / PROCESSES);
            if maker == TestBackend::Docker {
                let name = session.containers(daemon);
                let began = Instant::now();
                for _ in 0..5 {
                    daemon.ask(&["exec", name.trim(), "true"]);
                }
                println!("docker exec costs {:?}", began.elapsed() / 5);
            }
        });
    }
}
