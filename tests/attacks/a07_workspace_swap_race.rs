//! Attack a07: while `ringwall run --workspace` starts, the directory is swapped with a symbolic
//! link to a secret directory and back. The box must get the real directory or be refused.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;
use tests::support::canary::Canary;
use tests::support::payload::Payload;

use crate::probe::{Context, Probe, Verdict, control, held, untouched};

pub(crate) const PROBE: Probe = Probe { id: "a07", title: "swap the workspace with a symlink while a box starts", run };

/// The control: checks the path, then opens it by name. It must lose this race, or the test proves
/// nothing.
pub(crate) const NAIVE: &str = r"
lost = 0
for turn in range(200000):
    if not os.path.islink(DATA['path']):
        try:
            with open(DATA['path'] + '/file') as file:
                lost += file.read() == DATA['secret']
        except OSError:
            pass
    if lost:
        break
answer({'turns': turn + 1, 'lost': lost})
";

const SHOW: &str = "cat /workspace/file; echo touched >>/workspace/file; echo made >/workspace/made-$$";

fn run(context: &Context) -> Verdict {
    context.not_served("the directories of a server's projects are in nobody else's reach to be swapped")?;
    let scratch = &context.scratch;
    scratch.directory("secret")?;
    let canary = Canary::plant(scratch, "secret/file")?;
    let workspace = scratch.directory("workspace")?;
    scratch.file("workspace/file", b"harmless", 0o644)?;
    let other = scratch.join("other");
    symlink(scratch.join("secret"), &other)?;

    let iterations = context.effort.choose(200, 20_000);
    let stop = AtomicBool::new(false);
    let swaps = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| swap(&workspace, &other, &stop, &swaps));
        let verdict = race(context, &workspace, &canary, iterations, &swaps);
        stop.store(true, Ordering::Relaxed);
        verdict
    })
}

pub(crate) fn swap(one: &Path, two: &Path, stop: &AtomicBool, swaps: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        if renameat_with(CWD, one, CWD, two, RenameFlags::EXCHANGE).is_ok() {
            swaps.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn race(context: &Context, workspace: &Path, canary: &Canary, iterations: u64, swaps: &AtomicU64) -> Verdict {
    let naive = context.outside(&Payload::new(NAIVE).with(json!({ "path": workspace, "secret": canary.secret() })))?;
    control(naive["lost"] == 1, || format!("a naive look-then-open never lost the race: {naive}"))?;
    let (mut started, mut refused, mut shown) = (0_u64, 0_u64, 0_u64);
    for _ in 0..iterations {
        let outcome = context.boxed().workspace(workspace).run(&["/bin/sh", "-c", SHOW])?;
        let text = outcome.text();
        if text.contains(canary.secret()) {
            shown += 1;
        } else if text.contains("harmless") {
            started += 1;
        } else {
            refused += 1;
        }
    }
    let figures = format!(
        "{iterations} iterations, {} swaps, boxes on the real one {started}, refused {refused}, on the secret one {shown}",
        swaps.load(Ordering::Relaxed),
    );
    held(shown == 0, || figures.clone())?;
    untouched(canary).map_err(|fault| crate::probe::Fault::Broken(format!("{fault}; {figures}")))?;
    control(started > 0, || format!("no box ever started: {figures}"))?;
    held(fs::read_dir(context.scratch.join("secret"))?.count() == 1, || {
        "a file was made in the secret directory".into()
    })?;
    Ok(figures)
}
