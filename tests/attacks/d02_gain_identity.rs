//! Attack d02: calls that change user, groups or capabilities. None may have an effect.

use serde_json::{Value, json};
use tests::support::actor::{Identity, tester_is_root};
use tests::support::payload::Payload;

use crate::probe::{Context, Probe, Verdict, bare_as, control, held, outside_as, parse, surprises};

pub(crate) const PROBE: Probe = Probe { id: "d02", title: "setuid, setgroups, capset, ambient capabilities", run };

/// Each act runs in a new child, because a successful one would affect the next.
const GAIN: &str = r"
def wrapped(function, *arguments):
    if function(*arguments) != 0:
        raise OSError(ctypes.get_errno(), 'refused')
def capset(effective):
    header = ctypes.create_string_buffer(struct.pack('Ii', 0x20080522, 0))
    data = ctypes.create_string_buffer(struct.pack('6I', effective, effective, effective, 0, 0, 0))
    if call('capset', header, data) != 'ok':
        raise OSError(ctypes.get_errno(), 'capset')
acts = {
    'setuid': lambda: os.setuid(0), 'setgid': lambda: os.setgid(0), 'setreuid': lambda: os.setreuid(0, 0),
    'setresuid': lambda: os.setresuid(0, 0, 0), 'setresgid': lambda: os.setresgid(0, 0, 0),
    'setgroups none': lambda: os.setgroups([]), 'setgroups 0': lambda: os.setgroups([0]),
    'capset': lambda: capset(1 << 21),
    'ambient': lambda: (capset((1 << 21)), wrapped(libc.prctl, 47, 2, 21, 0, 0)),
    'ambient alone': lambda: wrapped(libc.prctl, 47, 2, 21, 0, 0),
    'securebits': lambda: wrapped(libc.prctl, 28, 1, 0, 0, 0),
    'no_new_privs off': lambda: wrapped(libc.prctl, 38, 0, 0, 0, 0),
}
def ids():
    fields = status_fields()
    return [fields[name] for name in ('Uid', 'Gid', 'CapEff', 'CapPrm', 'CapAmb', 'NoNewPrivs')]
def tried(act):
    outcome = attempt(act)
    return json.dumps([outcome, ids()])
answer({'acts': {name: json.loads(isolated(lambda: tried(act))) for name, act in acts.items()}, 'before': ids()})
";

fn run(context: &Context) -> Verdict {
    let payload = Payload::new(GAIN);
    // As root, or as root of a new user namespace if the tests do not run as root.
    let outside = if tester_is_root() {
        outside_as(Identity::Tester, &payload)?
    } else {
        let mut words = vec!["unshare".into(), "--user".into(), "--map-root-user".into()];
        words.extend(payload.arguments());
        parse("in a scratch namespace", &bare_as(Identity::Tester, &words)?)?
    };
    for act in ["setuid", "setgid", "setresuid", "capset", "ambient", "securebits"] {
        control(outside["acts"][act][0] == "ok", || format!("{act} fails outside too: {}", outside["acts"]))?;
    }
    let inside = context.inside(&context.boxed(), &payload)?;
    let mut outcomes = serde_json::Map::new();
    for (act, result) in inside["acts"].as_object().into_iter().flatten() {
        held(result[1] == inside["before"], || format!("{act} changed the credentials to {}", result[1]))?;
        outcomes.insert(act.clone(), result[0].clone());
    }
    // The kernel returns EINVAL for an id that the box's user namespace does not map.
    let faults = surprises(&Value::Object(outcomes.clone()), &["EPERM", "EINVAL"]);
    held(faults.is_empty(), || faults.join("; "))?;
    held(inside["before"][2] == json!("0000000000000000"), || inside["before"].to_string())?;
    Ok(format!("{} acts refused, credentials unchanged", outcomes.len()))
}
