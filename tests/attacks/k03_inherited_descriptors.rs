//! Attack k03: the starter leaves files, pipes and directories open. The box must have descriptors
//! 0, 1 and 2 only, also if many boxes start at once.

use std::thread;

use serde_json::{Value, json};
use tests::support::canary::Canary;
use tests::support::payload::{ON_A_TERMINAL, PYTHON, Payload, WITH_OPEN_DESCRIPTORS};

use crate::probe::{Context, Fault, Probe, Verdict, bare_as, control, held, parse, untouched};

pub(crate) const PROBE: Probe =
    Probe { id: "k03", title: "descriptors beyond 0, 1, 2, also with many starts at once", run };

const LIST: &str = r"
open_now = []
for number in range(4096):
    try:
        os.fstat(number)
        open_now.append(number)
    except OSError:
        pass
listed = sorted(int(name) for name in os.listdir('/proc/self/fd'))
links = {number: os.readlink('/proc/self/fd/%d' % number) for number in open_now}
answer({'open': open_now, 'links': links, 'listed': len(listed)})
";

fn run(context: &Context) -> Verdict {
    let canary = {
        context.scratch.directory("host")?;
        Canary::plant(&context.scratch, "host/file")?
    };
    let payload = Payload::new(LIST);
    let mut words = vec![PYTHON.into(), "-I".into(), "-c".into(), WITH_OPEN_DESCRIPTORS.into(), canary.path().into()];
    words.extend(payload.arguments());
    let outside = parse("outside", &bare_as(context.mode.identity(), &words)?)?;
    control(outside["open"].as_array().map_or(0, Vec::len) >= 10, || format!("not inherited outside: {outside}"))?;

    // A server itself has its record, directories, sockets and the pipes of other boxes open.
    let plain = match context.is_served() {
        true => context.boxed(),
        false => context.boxed().through(WITH_OPEN_DESCRIPTORS, &[canary.path().as_os_str()]),
    };
    let work = context.workspace("work")?;
    let mut ways = vec![("plain", plain.clone()), ("with a workspace", plain.clone().workspace(&work))];
    if !context.is_served() {
        ways.push(("on a terminal", context.boxed().flag("--tty").through(ON_A_TERMINAL, &[])));
    }
    let tried = ways.len();
    for (name, run) in ways {
        check(name, &parse(name, &run.run_payload(&payload)?)?)?;
    }
    let reported = plain.clone().report_payload(&payload)?;
    let captured: Value = serde_json::from_str(reported.stdout().trim()).unwrap_or_default();
    check("with --json", &captured)?;

    let together = context.effort.choose(20, 100);
    let answers: Vec<Result<Value, Fault>> = thread::scope(|scope| {
        let started: Vec<_> =
            (0..together).map(|_| scope.spawn(|| parse("in parallel", &plain.run_payload(&payload)?))).collect();
        started
            .into_iter()
            .map(|one| one.join().unwrap_or_else(|_| Err(Fault::Inconclusive("a starter panicked".into()))))
            .collect()
    });
    for answer in answers {
        check("in parallel", &answer?)?;
    }
    untouched(&canary)?;
    Ok(format!("0, 1, 2 only, in {} ways and {together} at once", tried + 1))
}

fn check(way: &str, answer: &Value) -> Result<(), Fault> {
    held(answer["open"] == json!([0, 1, 2]), || format!("{way}: {answer}"))?;
    // One more for the listing itself.
    held(answer["listed"] == json!(4), || format!("{way}: {} descriptors are listed", answer["listed"]))
}
