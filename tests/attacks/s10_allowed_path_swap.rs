//! Attack s10: while boxes of a session start, an allowed directory is swapped with a symbolic link
//! to a secret one and back. A box must show the real directory or nothing.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use serde_json::json;
use tests::support::canary::Canary;
use tests::support::payload::Payload;
use tests::support::server::Server;

use crate::a07_workspace_swap_race::{NAIVE, swap};
use crate::probe::{Context, Probe, Verdict, control, held, untouched};

pub(crate) const PROBE: Probe =
    Probe { id: "s10", title: "swap an allowed path with a symlink while a session's box starts", run };

fn run(context: &Context) -> Verdict {
    let server = context.server()?;
    let scratch = &context.scratch;
    let secret = scratch.directory("secret")?;
    let canary = Canary::plant(scratch, "secret/file")?;
    let allowed = scratch.directory("allowed")?;
    scratch.file("allowed/file", b"harmless", 0o666)?;
    for directory in [&secret, &allowed] {
        fs::set_permissions(directory, Permissions::from_mode(0o777))?;
    }
    let other = scratch.join("other");
    symlink(&secret, &other)?;
    server.ask("POST", "/api/sandbox/paths", Some(&json!({ "path": allowed }))).expect(200);
    server.ask("PUT", "/api/sandbox", Some(&json!({ "enabled": true }))).expect(200);
    let (stop, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
    let verdict = thread::scope(|scope| {
        scope.spawn(|| swap(&allowed, &other, &stop, &swaps));
        let verdict = race(context, server, &allowed, &canary, &swaps);
        stop.store(true, Ordering::Relaxed);
        verdict
    });
    server.ask("PUT", "/api/sandbox", Some(&json!({ "enabled": false }))).expect(200);
    verdict
}

fn race(context: &Context, server: &Server, allowed: &Path, canary: &Canary, swaps: &AtomicU64) -> Verdict {
    let naive = context.outside(&Payload::new(NAIVE).with(json!({ "path": allowed, "secret": canary.secret() })))?;
    control(naive["lost"] == 1, || format!("a naive look-then-open never lost the race: {naive}"))?;
    let place = allowed.display();
    // A box has its own /tmp, so these names need no approval.
    let command = format!("cat {place}/file; echo touched >> {place}/file; echo made > {place}/made-$$");
    let (mut real, mut nothing, mut shown) = (0_u64, 0_u64, 0_u64);
    let iterations = context.effort.choose(60, 5_000);
    for _ in 0..iterations {
        let body = json!({ "session_id": "swap", "command": command });
        let told = server.ask("POST", "/api/sandbox/execute", Some(&body)).expect(200).to_string();
        if told.contains(canary.secret()) {
            shown += 1;
        } else if told.contains("harmless") {
            real += 1;
        } else {
            nothing += 1;
        }
    }
    let figures = format!(
        "{iterations} boxes, {} swaps: the real one in {real}, nothing in {nothing}, the secret one in {shown}",
        swaps.load(Ordering::Relaxed),
    );
    held(shown == 0, || figures.clone())?;
    untouched(canary).map_err(|fault| crate::probe::Fault::Broken(format!("{fault}; {figures}")))?;
    control(real > 0, || format!("no box ever had it: {figures}"))?;
    held(fs::read_dir(context.scratch.join("secret"))?.count() == 1, || {
        "a file was made in the secret directory".into()
    })?;
    Ok(figures)
}
