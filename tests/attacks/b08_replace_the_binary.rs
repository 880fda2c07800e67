//! Attack b08: a box writes to our binary, which runs as its PID 1, through `/proc/1/exe` and other
//! handles. The copy belongs to the user who starts the box, so permissions alone would allow it. A
//! second run must be the same program.

use std::fs;

use serde_json::json;
use tests::support::boxed::BoxRun;
use tests::support::payload::Payload;

use crate::probe::{Context, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "b08", title: "overwrite the product's binary through /proc/1/exe", run };

const OVERWRITE: &str = r"
seen = {}
for path in DATA['paths']:
    for way, flags in (('write', os.O_WRONLY), ('read and write', os.O_RDWR), ('append', os.O_WRONLY | os.O_APPEND),
                       ('truncate', os.O_RDONLY | os.O_TRUNC)):
        seen[path + ' ' + way] = attempt(lambda: os.write(os.open(path, flags), b'#!/bin/sh\n'))
    def through_handle():
        handle = os.open(path, os.O_PATH)
        os.write(os.open('/proc/self/fd/%d' % handle, os.O_WRONLY), b'#!/bin/sh\n')
    if DATA['handles']:
        seen[path + ' by handle'] = attempt(through_handle)
answer(seen)
";

fn run(context: &Context) -> Verdict {
    let scratch = &context.scratch;
    let bytes = fs::read(&context.binary)?;
    let warm_box = scratch.file("spare", &bytes, 0o755)?;
    let outside = context.outside(&Payload::new(OVERWRITE).with(json!({ "paths": [warm_box], "handles": true })))?;
    control(fs::read(&warm_box)? != bytes, || format!("the copy could not be overwritten outside: {outside}"))?;

    let own = scratch.file("ringwall", &bytes, 0o755)?;
    let run = BoxRun::new(context.mode, &own);
    let inside = context.inside(
        &run,
        &Payload::new(OVERWRITE).with(json!({
            "paths": ["/proc/1/exe", "/proc/1/root/proc/1/exe", "/proc/1/task/1/exe", own], "handles": true,
        })),
    )?;
    // The payload's program is the host's interpreter on a read-only mount.
    let interpreter =
        context.inside(&run, &Payload::new(OVERWRITE).with(json!({ "paths": ["/proc/self/exe"], "handles": true })))?;
    held(fs::read(&own)? == bytes, || "the binary changed".into())?;
    for (act, outcome) in inside.as_object().into_iter().flatten().chain(interpreter.as_object().into_iter().flatten())
    {
        let refused = ["EACCES", "EPERM", "ENOENT", "EROFS", "ETXTBSY"].iter().any(|errno| outcome == errno);
        held(refused, || format!("{act} → {outcome}"))?;
    }
    let again = run.run(&["/bin/echo", "still here"])?;
    held(again.text() == "still here\n", || again.describe())?;
    Ok("refused on every way; the binary is the same".into())
}
