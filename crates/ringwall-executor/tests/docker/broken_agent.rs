//! Stand-ins for the agent that break the protocol. Each ends its own box and no other.

use std::io::{Read, Write};
use std::process::ExitCode;
use std::time::Duration;

use ringwall_executor::session_box::{Death, ProcessOptions};
use ringwall_executor::{Ending, Error};
use ringwall_jail::agent::frame::{Enabled, FromAgent, InputStream, OUTPUT_WINDOW, OutputStream, ProcessId, append};
use ringwall_jail::report::Ending as JailEnding;

use super::daemon::Daemon;
use super::project::block_on;
use super::session::{Session, TestBackend};

/// The file in the session's directory that names the fault; the stand-in reads it.
pub(crate) const FAULT: &str = "fault";
/// Printed by a stand-in that exits instead of sending the proxy socket.
pub(crate) const LEAVING: &str = "leaving";

/// Faults before the first command is requested, and after.
const EARLY: [&str; 3] = ["garbage", "length", "early"];
const LATE: [&str; 13] = [
    "unknown",
    "output-first",
    "overflow",
    "empty",
    "taken",
    "twice",
    "ended-first",
    "ready-again",
    "channel",
    "memory",
    "signal",
    "exit-code",
    "no-path",
];

pub(crate) fn requested_fault() -> Option<String> {
    std::fs::read_to_string(format!("/workspace/{FAULT}")).ok()
}

/// Runs the stand-in.
pub(crate) fn run_stand_in(fault: &str) -> ExitCode {
    let mut out = std::io::stdout();
    let mut say = |message: &FromAgent<'_>| {
        let mut frame = Vec::new();
        append(message, &mut frame).unwrap();
        out.write_all(&frame).and_then(|()| out.flush())
    };
    let process = ProcessId(1);
    let output = |from, bytes| FromAgent::Output { process, from, bytes };
    let exit =
        |ending, peak_memory_bytes| FromAgent::Exited { process, ending, cpu_microseconds: 0, peak_memory_bytes };
    let exited = exit(JailEnding::Exited(0), 0);
    let ready = FromAgent::Ready { isolated: Enabled::Yes };
    let hang = || loop {
        std::thread::sleep(Duration::from_secs(1000));
    };
    match fault {
        "garbage" => {
            let noise: Vec<u8> =
                (0..100_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            let _ = std::io::stdout().write_all(&noise);
            hang()
        }
        "length" => {
            let _ = std::io::stdout().write_all(&u32::MAX.to_le_bytes());
            let _ = std::io::stdout().flush();
            hang()
        }
        "early" => {
            let _ = say(&FromAgent::Started { process });
            hang()
        }
        LEAVING => {
            let _ = std::io::stderr().write_all(LEAVING.as_bytes());
            return ExitCode::FAILURE;
        }
        _ => {}
    }
    let _ = say(&ready);
    // Waits for the first byte of the first request.
    let _ = std::io::stdin().read(&mut [0; 1]);
    let started = FromAgent::Started { process };
    let chunk = vec![b'x'; 32 * 1024];
    let words: Vec<FromAgent<'_>> = match fault {
        "unknown" => {
            vec![started, FromAgent::Output { process: ProcessId(7), from: OutputStream::Stdout, bytes: b"x" }]
        }
        "output-first" => vec![output(OutputStream::Stdout, b"x")],
        "overflow" => {
            let mut words = vec![started];
            words.extend((0..=OUTPUT_WINDOW / chunk.len()).map(|_| output(OutputStream::Stdout, &chunk)));
            words
        }
        "empty" => vec![started, output(OutputStream::Stdout, b"")],
        "taken" => vec![started, FromAgent::InputConsumed { process, to: InputStream::Stdin, bytes: 1 }],
        "twice" => vec![started, FromAgent::Started { process }],
        "ended-first" => vec![started, FromAgent::Ended { process }],
        "ready-again" => vec![started, ready],
        "channel" => vec![started, output(OutputStream::Channel, b"x")],
        // Values that cannot be stored in the record, or that no process can end with.
        "memory" => vec![started, exit(JailEnding::Exited(0), 1 << 63)],
        "signal" => vec![started, exit(JailEnding::Signalled(i32::MAX), 0)],
        "exit-code" => vec![started, exit(JailEnding::Exited(-1), 0)],
        "no-path" => vec![FromAgent::NotStarted { process, errno: 2, tried: "a\0b" }],
        "withheld" => vec![started, exited],
        "honest" => vec![started, exited, FromAgent::Ended { process }],
        other => panic!("no such fault: {other}"),
    };
    for word in &words {
        let _ = say(word);
    }
    hang();
    ExitCode::FAILURE
}

pub(crate) fn agent_that_breaks_protocol_loses_its_box_only(_: &Daemon) {
    let neighbour = Session::without_docker(TestBackend::Native);
    block_on(async {
        let next_door = neighbour.settle().await.unwrap();
        for fault in EARLY {
            let session = Session::without_docker(TestBackend::Native);
            std::fs::write(session.path(FAULT), fault).unwrap();
            let refused = session.settle().await;
            assert!(matches!(refused, Err(Error::BoxDied { .. })), "{fault}: {refused:?}");
        }
        for fault in LATE {
            let session = Session::without_docker(TestBackend::Native);
            std::fs::write(session.path(FAULT), fault).unwrap();
            let session_box = session.settle().await.unwrap();
            match session_box.process(session.grant(&["true"]), ProcessOptions::default()).await {
                Err(Error::BoxDied { .. }) => {}
                // The streams are held and not read, so that output is not consumed.
                Ok(process) => {
                    let _streams = process.streams;
                    let lost = process.running.wait().await;
                    assert!(matches!(lost, Err(Error::BoxDied { .. })), "{fault}: {lost:?}");
                }
                Err(other) => panic!("{fault}: {other}"),
            }
            let death = session_box.died().await;
            assert_eq!(death, Death::Failed("its agent broke the protocol".to_owned()), "{fault}");
        }
        // An agent that withholds the end of a command loses its box, although every message was
        // valid.
        let session = Session::without_docker(TestBackend::Native);
        std::fs::write(session.path(FAULT), "withheld").unwrap();
        let session_box = session.settle().await.unwrap();
        let process = session_box.process(session.grant(&["true"]), ProcessOptions::default()).await.unwrap();
        assert_eq!(
            process.into_running().wait().await.unwrap().ending,
            Ending::Exited(0),
            "the command itself succeeded"
        );
        assert!(matches!(session_box.died().await, Death::Failed(_)));
        // The control: a stand-in that follows the protocol is accepted.
        let session = Session::without_docker(TestBackend::Native);
        std::fs::write(session.path(FAULT), "honest").unwrap();
        let session_box = session.settle().await.unwrap();
        let process = session_box.process(session.grant(&["true"]), ProcessOptions::default()).await.unwrap();
        assert_eq!(process.into_running().wait().await.unwrap().ending, Ending::Exited(0));
        assert_eq!(neighbour.say(&next_door, "echo fine").await.stdout, "fine\n");
    });
}
