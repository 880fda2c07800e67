//! Attack c04: `setns` on every namespace descriptor that a box can get. The filter must refuse it
//! before the kernel looks at the descriptor.

use serde_json::Value;
use tests::support::actor::Identity;
use tests::support::payload::Payload;

use crate::probe::{Context, Probe, Verdict, control, held, outside_as};

pub(crate) const PROBE: Probe = Probe { id: "c04", title: "setns on a namespace descriptor", run };

const ENTER: &str = r"
seen = {'no descriptor': isolated(lambda: call('setns', 99, 0)), 'filter': judged('setns', 99, 0)}
for who in ('self', '1'):
    for kind in ('user', 'mnt', 'pid', 'net', 'ipc', 'uts', 'cgroup', 'pid_for_children', 'time'):
        try:
            descriptor = os.open('/proc/%s/ns/%s' % (who, kind), os.O_RDONLY)
        except OSError:
            continue
        seen[who + ' ' + kind] = isolated(lambda: call('setns', descriptor, 0))
handle = getattr(os, 'pidfd_open', None)
try:
    descriptor = os.pidfd_open(os.getpid())
    seen['pidfd'] = isolated(lambda: call('setns', descriptor, 0x20000))
except OSError as error:
    pass
answer(seen)
";

fn run(context: &Context) -> Verdict {
    let payload = Payload::new(ENTER);
    let outside = outside_as(Identity::Unprivileged, &payload)?;
    control(outside["no descriptor"] == "EBADF", || format!("unexpected outside: {outside}"))?;
    control(outside["self user"] == "EINVAL", || format!("unexpected outside: {outside}"))?;
    let inside = context.inside(&context.boxed(), &payload)?;
    let table = inside.as_object().cloned().unwrap_or_default();
    for (act, outcome) in &table {
        let oracle_missing = act == "filter" && outcome.as_str().is_some_and(|text| text.starts_with("no oracle"));
        held(outcome == "EPERM" || oracle_missing, || format!("{act} → {outcome}"))?;
    }
    control(table.contains_key("self net"), || {
        format!("no descriptor was had inside: {}", Value::from(table.clone()))
    })?;
    Ok(format!("{} ways refused, EBADF outside became EPERM", table.len()))
}
