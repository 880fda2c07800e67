//! Attack a16: the starter leaves `/` open, runs from a host directory, and names the open
//! directory as workspace through `/proc/self/fd`. The box must not reach the host's root through
//! them.

use serde_json::json;
use tests::support::canary::Canary;
use tests::support::payload::{PYTHON, Payload, WITH_OPEN_DESCRIPTORS};

use crate::probe::{Context, Probe, Verdict, bare_as, control, held, parse, untouched};

pub(crate) const PROBE: Probe = Probe { id: "a16", title: "climb out through an inherited directory or cwd", run };

const CLIMB: &str = r"
seen = {'cwd': os.getcwd(), 'reached': []}
starts = ['.'] + ['/proc/%s/fd/%d' % (who, number) for who in ('self', '1') for number in range(256)]
starts += ['/proc/1/cwd', '/proc/self/cwd', '/proc/1/root', '/proc/self/task/1/cwd']
for start in starts:
    for up in ('', '/..', '/../../../..', '/../../../../../../../../..'):
        path = start + up + DATA['path']
        try:
            with open(path) as file:
                if file.read() == DATA['secret']:
                    seen['reached'].append(path)
        except OSError:
            pass
    try:
        os.chdir(start)
        if os.getcwd().startswith('(unreachable)'):
            seen['reached'].append('unreachable cwd at ' + start)
        os.chdir('../../../../../../../..')
        with open('.' + DATA['path']) as file:
            if file.read() == DATA['secret']:
                seen['reached'].append('cwd at ' + start)
    except OSError:
        pass
answer(seen)
";

fn run(context: &Context) -> Verdict {
    let scratch = &context.scratch;
    scratch.directory("host")?;
    let canary = Canary::plant(scratch, "host/file")?;
    let payload = Payload::new(CLIMB).with(json!({ "path": canary.path(), "secret": canary.secret() }));
    let mut words = vec![PYTHON.into(), "-I".into(), "-c".into(), WITH_OPEN_DESCRIPTORS.into(), canary.path().into()];
    words.extend(payload.arguments());
    let outside = parse("outside", &bare_as(context.mode.identity(), &words)?)?;
    let reached = outside["reached"].as_array().map_or(0, Vec::len);
    control(outside["reached"].to_string().contains("/proc/self/fd/7"), || {
        format!("nothing reached outside: {outside}")
    })?;

    // A server itself has its record, directories and sockets open.
    let plain = match context.is_served() {
        true => context.boxed(),
        false => context.boxed().through(WITH_OPEN_DESCRIPTORS, &[canary.path().as_os_str()]),
    };
    let inside = context.inside(&plain, &payload)?;
    held(inside["reached"] == json!([]), || format!("reached the host by {}", inside["reached"]))?;
    held(inside["cwd"] == context.place(), || format!("cwd is {}", inside["cwd"]))?;

    untouched(&canary)?;
    if context.is_served() {
        return Ok(format!("{reached} ways outside, none inside"));
    }
    let mut answers = Vec::new();
    for named in ["/proc/self/fd/7", "/proc/self/fd/8/../../../../..", "/dev/fd/7", "/proc/self/cwd", "/proc/1/root"] {
        let outcome = plain.clone().option("--workspace", named).run_payload(&payload)?;
        // Refusing such a workspace is fine; otherwise the box must see only the named directory.
        let refused = outcome.code() == Some(2);
        let answer = outcome.text();
        let only_named = !answer.contains("unreachable") && answer.contains("\"cwd\": \"/workspace\"");
        held(refused || only_named, || format!("--workspace {named}: {}", outcome.describe()))?;
        answers.push(format!("{named} {}", if refused { "refused" } else { "taken as a workspace" }));
    }
    untouched(&canary)?;
    Ok(format!("{reached} ways outside, none inside; {}", answers.join(", ")))
}
