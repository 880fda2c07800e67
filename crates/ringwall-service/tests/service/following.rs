//! Streams of exec events: a client that reconnects at any point gets every byte exactly once.

use futures::StreamExt;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use ringwall_service::{EventCursor, EventKind, ExecId, Status, Stream};

use crate::fixture::{Fixture, HELD, block_on, in_fixture, shell};

/// The output that a client receives which disconnects after the given numbers of events.
async fn follow(fixture: &Fixture, id: &ExecId, stays: &[usize]) -> (Vec<u8>, Vec<u8>) {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut cursor: Option<EventCursor> = None;
    let mut stays = stays.iter().copied();
    loop {
        let mut left = stays.next().unwrap_or(usize::MAX);
        let events = fixture.service.events(&fixture.owner, id, cursor).await.unwrap();
        let mut events = std::pin::pin!(events);
        while left > 0
            && let Some(event) = events.next().await
        {
            left -= 1;
            let event = event.unwrap();
            // Cursors are sent as text.
            cursor = Some(event.cursor.to_string().parse().unwrap());
            match event.kind {
                EventKind::Status(_) => {}
                EventKind::Output { stream, offset, bytes } => {
                    let have = match stream {
                        Stream::Stdout => &mut stdout,
                        Stream::Stderr => &mut stderr,
                    };
                    assert_eq!(offset, have.len() as u64);
                    have.extend(bytes);
                }
                EventKind::End(view) => {
                    assert_eq!(view.summary.status, Status::Succeeded);
                    assert!(events.next().await.is_none());
                    return (stdout, stderr);
                }
            }
        }
    }
}

pub fn reconnecting_client_gets_each_byte_once() {
    let script = "for i in $(seq 3000); do echo out $i; [ $((i % 7)) = 0 ] && echo err $i >&2; done; true";
    let out: String = (1..=3000).map(|i| format!("out {i}\n")).collect();
    let err: String = (1..=3000).filter(|i| i % 7 == 0).map(|i| format!("err {i}\n")).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let fixture = runtime.block_on(Fixture::open());
    let mut runner = TestRunner::new(Config { cases: 12, failure_persistence: None, ..Config::default() });
    let schedules = proptest::collection::vec(0..4_usize, 0..12);
    let result = runner.run(&schedules, |stays| {
        runtime.block_on(async {
            let submitted = fixture.service.submit(&fixture.owner, shell(script)).await.unwrap();
            // First during the exec, then after its end.
            for _ in 0..2 {
                let (stdout, stderr) = follow(&fixture, &submitted.exec_id, &stays).await;
                prop_assert!(stdout == out.as_bytes() && stderr == err.as_bytes(), "{stays:?}");
                fixture.service.finished(&fixture.owner, &submitted.exec_id).await.unwrap();
            }
            Ok(())
        })
    });
    result.unwrap();
    block_on(async move { drop(fixture) });
}

pub fn client_gets_output_of_running_exec() {
    in_fixture(async |fixture| {
        let submitted = fixture.service.submit(&fixture.owner, shell(HELD)).await.unwrap();
        let events = fixture.service.events(&fixture.owner, &submitted.exec_id, None).await.unwrap();
        let mut events = std::pin::pin!(events);
        let mut text = String::new();
        while let Some(event) = events.next().await {
            match event.unwrap().kind {
                EventKind::Status(status) => assert_eq!(status, Status::Running),
                EventKind::Output { bytes, .. } => {
                    text.push_str(&String::from_utf8(bytes).unwrap());
                    // The exec cannot end before this release.
                    fixture.release("default");
                }
                EventKind::End(view) => assert_eq!(view.summary.status, Status::Succeeded),
            }
        }
        assert_eq!(text, "held\nreleased\n");
    });
}
