//! Attack g06: a box creates empty files, which use kernel memory but no space. Their number is
//! limited.

use serde_json::{Value, json};
use tests::support::payload::Payload;

use crate::probe::{Context, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "g06", title: "a million empty files in the private workspace", run };

const FILL: &str = r"
made, outcome = 0, 'no limit met'
flags = os.O_CREAT | os.O_WRONLY
for top in range(DATA['most'] // 1000):
    base = '%s/%d-' % (DATA['place'], top)
    try:
        for number in range(1000):
            os.close(os.open(base + str(number), flags))
            made += 1
    except OSError as error:
        outcome = name_of(error.errno)
        break
answer({'made': made, 'outcome': outcome})
";

fn run(context: &Context) -> Verdict {
    let fill = |place: &str, most: u64| Payload::new(FILL).with(json!({ "place": place, "most": most }));
    let outside = context.outside(&fill(&context.scratch.path().to_string_lossy(), 20_000))?;
    control(outside["made"] == 20_000, || format!("files cannot be made outside: {outside}"))?;
    let mut notes = Vec::new();
    // The workspace of a server's exec is on disk and has no size limit of its own.
    let private = if context.is_served() { "/var/tmp" } else { "/workspace" };
    for place in [private, "/tmp", "/dev/shm"] {
        let report = context.boxed().option("--timeout", "200").report_payload(&fill(place, 1_000_000))?;
        let answer: Value = serde_json::from_str(report.stdout().trim()).unwrap_or_default();
        let full = answer["outcome"] == "ENOSPC" || answer["outcome"] == "EDQUOT";
        // The kernel charges inodes to the box's memory, so the memory limit may end it first.
        held(full || report.is_set("oom_killed"), || format!("{place}: {answer}, {}", report.summary()))?;
        notes.push(if full {
            format!("{place} full at {} files", answer["made"])
        } else {
            format!("{place}: out of memory")
        });
    }
    Ok(notes.join(", "))
}
