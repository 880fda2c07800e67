//! Attack b02: a box opens the files below `/proc/sys` and other kernel switches for writing.
//! Opening decides; neither the box nor the control writes.

use serde_json::{Value, json};
use tests::support::actor::Identity;
use tests::support::payload::Payload;

use crate::probe::{Context, Probe, Verdict, control, held, need_root, outside_as};

pub(crate) const PROBE: Probe =
    Probe { id: "b02", title: "write core_pattern, sysrq-trigger and other kernel settings", run };

const OPEN: &str = r"
named = ['/proc/' + name for name in (
    'sys/kernel/core_pattern', 'sysrq-trigger', 'sys/kernel/modprobe', 'sys/fs/binfmt_misc/register',
    'sys/kernel/hostname', 'sys/vm/overcommit_memory', 'sys/net/ipv4/ip_forward', 'sys/kernel/ns_last_pid',
    'sys/user/max_user_namespaces', 'irq/default_smp_affinity', 'mtrr', 'fb', 'acpi/wakeup', '1/oom_score_adj',
    'self/oom_score_adj', 'self/uid_map', 'self/gid_map', 'self/setgroups', 'self/loginuid', 'self/clear_refs', 'self/mem', 'self/comm')]
named += ['/sys/kernel/uevent_helper', '/sys/power/state', '/sys/kernel/mm/transparent_hugepage/enabled']
walked = opened = 0
found = []
for top, _, files in os.walk('/proc/sys'):
    for name in files:
        walked += 1
        path = os.path.join(top, name)
        if attempt(lambda: os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))) == 'ok':
            opened += 1
            found.append(path)
answer({'named': {path: attempt(lambda: os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))) for path in named},
        'walked': walked, 'opened': opened, 'examples': found[:10]})
";

fn run(context: &Context) -> Verdict {
    need_root("only root can open kernel settings for writing")?;
    let payload = Payload::new(OPEN);
    let outside = outside_as(Identity::Tester, &payload)?;
    for path in ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname"] {
        control(outside["named"][path] == "ok", || format!("{path} cannot be opened outside either: {outside}"))?;
    }
    control(outside["opened"].as_u64() > Some(100), || format!("only {} settings open outside", outside["opened"]))?;

    let inside = context.inside(&context.boxed(), &payload)?;
    held(inside["opened"] == json!(0), || {
        format!("{} settings open for writing: {}", inside["opened"], inside["examples"])
    })?;
    let mut own = Vec::new();
    for (path, outcome) in inside["named"].as_object().into_iter().flatten() {
        // A process may write its own memory and name.
        if outcome == "ok" && ["/proc/self/mem", "/proc/self/comm", "/proc/self/clear_refs"].contains(&path.as_str()) {
            own.push(path.clone());
            continue;
        }
        let refused = ["EROFS", "EACCES", "ENOENT", "EPERM"].iter().any(|errno| outcome == errno);
        held(refused, || format!("{path} → {outcome}"))?;
    }
    let walked = inside["walked"].as_u64().map_or_else(|| "?".into(), |count| count.to_string());
    let total = outside["opened"].as_u64().unwrap_or_default();
    Ok(format!("0 of {walked} settings open inside ({total} outside); own files open: {}", Value::from(own)))
}
