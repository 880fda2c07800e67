//! State of a reused cgroup (memory peak, kill counters, processes, limits) does not affect the
//! next box.

use std::path::Path;

use ringwall_service::{ExecView, Status};
use serde_json::json;

use crate::fixture::{Fixture, block_on, in_fixture, limited, reason};

const SMALL: u64 = 64 << 20;

fn peak(view: &ExecView) -> u64 {
    view.usage.max_rss_bytes.unwrap()
}

async fn with_memory(fixture: &Fixture, script: &str, memory_mb: u64) -> ExecView {
    fixture.run(limited(script, json!({"memory_mb": memory_mb}))).await
}

async fn ends_well(fixture: &Fixture, memory_mb: u64) {
    let view = with_memory(fixture, "true", memory_mb).await;
    assert_eq!((view.summary.status, view.error_reason.as_ref()), (Status::Succeeded, None), "{view:?}");
    assert!(peak(&view) < SMALL, "{view:?}");
}

fn using(megabytes: u32) -> String {
    format!("/usr/bin/python3 -c 'x = bytearray({megabytes} << 20)'")
}

pub fn memory_peak_does_not_carry_over() {
    in_fixture(async |fixture| {
        for _ in 0..3 {
            let large = with_memory(fixture, &using(200), 512).await;
            assert_eq!(large.summary.status, Status::Succeeded, "{large:?}");
            assert!(peak(&large) >= 200 << 20, "{large:?}");
            ends_well(fixture, 512).await;
        }
    });
}

pub fn out_of_memory_does_not_carry_over() {
    in_fixture(async |fixture| {
        for _ in 0..3 {
            let greedy = with_memory(fixture, &using(300), 64).await;
            assert_eq!(greedy.summary.status, Status::Failed);
            // Without root there is usually no cgroup; then Python gets a memory error.
            if rustix::process::geteuid().is_root() {
                assert_eq!(reason(&greedy), "OOM", "{greedy:?}");
            }
            ends_well(fixture, 64).await;
            // An exec that fails for another reason is not reported as out of memory.
            let failed = with_memory(fixture, "exit 3", 64).await;
            assert_eq!((failed.summary.exit_code, failed.error_reason.as_ref()), (Some(3), None), "{failed:?}");
        }
    });
}

/// Forks as many processes as possible and keeps them. In Python, because a shell retries a failed
/// fork for about 15 s.
const BOMB: &str = "
import os, signal
try:
    while True:
        if os.fork() == 0:
            signal.pause()
except BlockingIOError:
    print(\"full\")
";

pub fn process_count_does_not_carry_over() {
    in_fixture(async |fixture| {
        let limits = || json!({"pids": 32, "timeout_ms": 20_000});
        for _ in 0..3 {
            let bomb = fixture.run(limited(&format!("/usr/bin/python3 -c '{BOMB}'"), limits())).await;
            assert_eq!(fixture.text(&bomb, ringwall_service::Stream::Stdout).await, "full\n", "{bomb:?}");
            let normal = "for i in {1..20}; do sleep 1000 & done; jobs -p | wc -l";
            let view = fixture.run(limited(normal, limits())).await;
            assert_eq!(view.summary.status, Status::Succeeded, "{view:?}");
            assert_eq!(fixture.text(&view, ringwall_service::Stream::Stdout).await.trim(), "20");
        }
    });
}

pub fn limits_do_not_carry_over() {
    in_fixture(async |fixture| {
        for _ in 0..3 {
            ends_well(fixture, 512).await;
            let greedy = with_memory(fixture, &using(300), 64).await;
            assert_eq!(greedy.summary.status, Status::Failed, "more than the limit of 64 MB was available: {greedy:?}");
            let fits = with_memory(fixture, &using(300), 512).await;
            assert_eq!(fits.summary.status, Status::Succeeded, "less than the limit of 512 MB was available: {fits:?}");
        }
    });
}

/// Finds the cgroups of this process's boxes in all hierarchies.
fn groups(directory: &Path, prefix: &str, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        // Cgroups may disappear during the scan.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(prefix) {
                found.push(name);
            } else {
                groups(&entry.path(), prefix, found);
            }
        }
    }
}

pub fn drained_service_leaves_no_cgroup() {
    let find = || {
        let mut found = Vec::new();
        groups(Path::new("/sys/fs/cgroup"), &format!("ringwall-{}-", std::process::id()), &mut found);
        found
    };
    block_on(async {
        let fixture = Fixture::open().await;
        for memory_mb in [64, 128, 64] {
            ends_well(&fixture, memory_mb).await;
        }
        with_memory(&fixture, &using(300), 64).await;
        if rustix::process::geteuid().is_root() {
            assert!(!find().is_empty(), "control: the cgroups of a running service are found");
        }
        fixture.service.drain(std::time::Duration::from_secs(5)).await;
    });
    assert_eq!(find(), Vec::<String>::new());
}
