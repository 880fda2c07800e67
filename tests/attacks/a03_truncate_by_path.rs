//! Attack a03: `truncate(2)` by path on a read-only file and on a file outside of the box. The call
//! needs no open file, and Landlock covers it only from ABI 3.

use serde_json::json;
use tests::support::canary::Canary;
use tests::support::payload::Payload;

use crate::probe::{Context, Guarded, Probe, Verdict, control, held, surprises, untouched};

pub(crate) const PROBE: Probe = Probe { id: "a03", title: "truncate(2) by path on read-only and hidden files", run };

const TRUNCATE: &str = r"
answer({path: call('truncate', os.fsencode(path), 0) for path in DATA})
";

fn run(context: &Context) -> Verdict {
    let scratch = &context.scratch;
    let victim = Canary::plant(scratch, "victim")?;
    let outside = context.outside(&Payload::new(TRUNCATE).with(json!([victim.path()])))?;
    control(outside[victim.text()] == "ok" && victim.changed().is_some(), || outside.to_string())?;

    let Guarded { canary, inside, run } = context.guarded()?;
    let hidden = Canary::plant(scratch, "hidden")?;
    let shown = context.inside(&run, &Payload::new(TRUNCATE).with(json!([inside, "/usr/bin/env", "/etc/passwd"])))?;
    let unseen = context.inside(&run, &Payload::new(TRUNCATE).with(json!([hidden.path()])))?;
    untouched(&canary)?;
    untouched(&hidden)?;
    let mut faults = surprises(&shown, &["EROFS", "EACCES", "EPERM"]);
    faults.extend(surprises(&unseen, &["ENOENT", "EACCES", "EROFS", "EPERM"]));
    held(faults.is_empty(), || faults.join("; "))?;
    Ok(format!("refused: {shown}"))
}
