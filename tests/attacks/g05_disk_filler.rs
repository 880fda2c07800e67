//! Attack g05: a box without a workspace fills every directory it can write to. Each must report
//! "no space", and the program must survive.

use serde_json::{Value, json};
use tests::support::payload::Payload;

use crate::probe::{Context, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "g05", title: "fill the private workspace", run };

/// Stops at 6 GiB, which counts as unlimited.
const FILL: &str = r"
piece = b'x' * (1 << 20)
written, outcome = 0, 'no limit met'
with open(DATA['place'] + '/filler', 'wb', buffering=0) as file:
    try:
        while written < DATA['most']:
            written += file.write(piece)
    except OSError as error:
        outcome = name_of(error.errno)
os.unlink(DATA['place'] + '/filler')
answer({'written_mb': written >> 20, 'outcome': outcome})
";

fn run(context: &Context) -> Verdict {
    let fill = |place: &str, most: u64| Payload::new(FILL).with(json!({ "place": place, "most": most }));
    let outside = context.outside(&fill(&context.scratch.path().to_string_lossy(), 1536 << 20))?;
    control(outside["outcome"] == "no limit met", || format!("the host is full: {outside}"))?;
    let mut notes = Vec::new();
    // The workspace of a server's exec is on disk and has no size limit of its own.
    let private = if context.is_served() { "/var/tmp" } else { "/workspace" };
    for place in [private, "/tmp", "/dev/shm", "/home/sandbox"] {
        let report = context.boxed().option("--timeout", "120").report_payload(&fill(place, 6 << 30))?;
        let answer: Value = serde_json::from_str(report.stdout().trim()).unwrap_or_default();
        let full = answer["outcome"] == "ENOSPC" || answer["outcome"] == "EDQUOT";
        held(full && report.outcome.code() == Some(0), || format!("{place}: {answer}, {}", report.summary()))?;
        notes.push(format!("{place} full at {} MB", answer["written_mb"]));
    }
    Ok(notes.join(", "))
}
