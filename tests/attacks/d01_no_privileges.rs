//! Check d01: every process of a box has no capability in any set, cannot gain one, is filtered,
//! and has only its own group: in the background, on a terminal, on another thread, and if the
//! starter has supplementary groups.

use serde_json::Value;
use tests::support::actor::{Identity, Mode};
use tests::support::boxed::BoxRun;
use tests::support::payload::{ON_A_TERMINAL, Payload};

use crate::probe::{Context, Fault, Probe, Verdict, control, held, outside_as, parse};

pub(crate) const PROBE: Probe =
    Probe { id: "d01", title: "capabilities, no_new_privs, seccomp, groups of every process", run };

const STATUS: &str = r"
import threading
def here():
    fields = status_fields('/proc/thread-self/status')
    sets = ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb')
    return {name: fields[name] for name in sets + ('NoNewPrivs', 'Seccomp', 'Groups', 'Uid', 'Gid')}
if DATA == 'background':
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        sys.exit(0)
    os.setsid()
if DATA == 'thread':
    kept = []
    thread = threading.Thread(target=lambda: kept.append(here()))
    thread.start()
    thread.join()
    answer(kept[0])
else:
    answer(here())
";

fn run(context: &Context) -> Verdict {
    let outside = outside_as(Identity::Unprivileged, &Payload::new(STATUS))?;
    control(outside["NoNewPrivs"] == "0" && outside["Seccomp"] == "0", || {
        format!("already restricted outside: {outside}")
    })?;
    if context.mode == Mode::Root {
        let root = outside_as(Identity::Tester, &Payload::new(STATUS))?;
        control(!is_zero(&root["CapEff"]), || format!("root has no capabilities here: {root}"))?;
    }

    let mut ways = vec![
        ("plain", context.boxed(), Value::Null),
        ("background", context.boxed(), "background".into()),
        ("thread", context.boxed(), "thread".into()),
        ("with a workspace", context.boxed().workspace(&context.workspace("work")?), Value::Null),
    ];
    if !context.is_served() {
        ways.push(("terminal", context.boxed().flag("--tty").through(ON_A_TERMINAL, &[]), Value::Null));
    }
    if context.mode == Mode::Root && !context.is_served() {
        let run = context.boxed().through_program(&["setpriv", "--groups=4,24,27", "--"]);
        ways.push(("starter with groups", run, Value::Null));
        let run = context.boxed().through_program(&[
            "setpriv",
            "--inh-caps=+net_raw,+sys_admin",
            "--ambient-caps=+net_raw,+sys_admin",
            "--",
        ]);
        ways.push(("starter with ambient capabilities", run, Value::Null));
    }
    let mut names = Vec::new();
    for (name, run, data) in ways {
        check(name, &run, &Payload::new(STATUS).with(data))?;
        names.push(name);
    }
    Ok(format!("nothing held by: {}", names.join(", ")))
}

fn check(name: &str, run: &BoxRun, payload: &Payload) -> Result<(), Fault> {
    let fields = parse(name, &run.run_payload(payload)?)?;
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        held(is_zero(&fields[set]), || format!("{name}: {set} is {}", fields[set]))?;
    }
    held(fields["NoNewPrivs"] == "1", || format!("{name}: NoNewPrivs is {}", fields["NoNewPrivs"]))?;
    held(fields["Seccomp"] == "2", || format!("{name}: Seccomp is {}", fields["Seccomp"]))?;
    let groups = fields["Groups"].as_str().unwrap_or("none given");
    held(groups.is_empty() || groups == "1000", || format!("{name}: groups {groups}"))?;
    for ids in ["Uid", "Gid"] {
        held(fields[ids] == "1000\t1000\t1000\t1000", || format!("{name}: {ids} {}", fields[ids]))?;
    }
    Ok(())
}

fn is_zero(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty() && text.bytes().all(|byte| byte == b'0'))
}
