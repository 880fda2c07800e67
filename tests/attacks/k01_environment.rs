//! Attack k01: a box reads the starter's environment. No variable of the starter may be in the
//! box's environment.

use serde_json::json;
use tests::support::boxed::BoxRun;
use tests::support::payload::Payload;
use tests::support::scratch::token;

use crate::probe::{Context, Probe, Verdict, control, held, parse};

pub(crate) const PROBE: Probe = Probe { id: "k01", title: "the starter's environment inside the box", run };

const SHOW: &str = r"
import subprocess
everywhere = {}
for name in os.listdir('/proc'):
    if name.isdigit():
        for file in ('environ', 'cmdline'):
            try:
                with open('/proc/%s/%s' % (name, file), 'rb') as source:
                    everywhere[name + ' ' + file] = source.read().decode('latin-1')
            except OSError:
                pass
child = subprocess.run(['/usr/bin/env'], capture_output=True, text=True).stdout
answer({'own': dict(os.environ), 'child': child, 'everywhere': everywhere})
";

/// Plain names, names of Ringwall and of tools, and one that programs treat specially.
const NAMES: [&str; 9] = [
    "PLAIN_SECRET",
    "RINGWALL_TOKEN",
    "RINGWALL_SECRET",
    "AWS_SECRET_ACCESS_KEY",
    "OPENAI_API_KEY",
    "SSH_AUTH_SOCK",
    "LC_ALL",
    "TERM",
    "PYTHONPATH",
];

fn run(context: &Context) -> Verdict {
    context.not_served("the suite's server has no environment to lose; k02 asks for what it has")?;
    let secret = format!("secret-{}", token()?);
    let marked = |run: BoxRun| NAMES.iter().fold(run, |run, name| run.host_variable(name, &secret));
    let mut command = context.mode.identity().command("/usr/bin/env");
    command.envs(NAMES.map(|name| (name, &secret)));
    command.args(Payload::new(SHOW).arguments());
    let outside = parse("outside", &tests::support::process::run(command, None)?)?;
    let leaks = |text: &str| text.matches(&secret).count();
    control(leaks(&outside["own"].to_string()) == NAMES.len(), || format!("not inherited outside: {outside}"))?;

    for run in [context.boxed(), context.boxed().option("--env", "GIVEN=value")] {
        let inside = context.inside(&marked(run), &Payload::new(SHOW))?;
        held(leaks(&inside.to_string()) == 0, || format!("the starter's values are inside: {inside}"))?;
        let names: Vec<&String> = inside["own"].as_object().into_iter().flatten().map(|(name, _)| name).collect();
        held(!names.iter().any(|name| name.starts_with("RINGWALL")), || format!("variables inside: {names:?}"))?;
    }
    let given = context.inside(&marked(context.boxed().option("--env", "GIVEN=value")), &Payload::new(SHOW))?;
    control(given["own"]["GIVEN"] == json!("value"), || format!("what was given did not arrive: {}", given["own"]))?;
    Ok(format!("inside: {}", given["own"]))
}
