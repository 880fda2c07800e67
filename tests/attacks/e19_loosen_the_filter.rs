//! Attack e19: a process tries to loosen the filter by adding others, and by changing its dumpable flag or tracer.
//!
//! In a box every further filter fails with EINVAL, by `seccomp` and by `prctl`; outside each of them is added.

use tests::support::actor::Identity;
use tests::support::payload::Payload;

use crate::probe::{Context, Probe, Verdict, control, held, outside_as};

pub(crate) const PROBE: Probe = Probe { id: "e19", title: "second filter, PR_SET_DUMPABLE, PR_SET_PTRACER", run };

const LOOSEN: &str = r"
steps = {}
def state():
    fields = status_fields()
    return {
        'unshare': isolated(lambda: call('unshare', 0x10000000)),
        'ptrace': isolated(lambda: call('ptrace', 0x4206, 999999, 0, 0)),
        'io_uring': isolated(lambda: call('io_uring_enter', 99, 0, 0, 0, None, 0)),
        'environ of 1': attempt(lambda: open('/proc/1/environ').read()),
        'seccomp': fields['Seccomp'], 'no_new_privs': fields['NoNewPrivs'],
    }
before = state()
steps['second filter'] = attempt(lambda: install_filter([], ALLOW))
allow = ctypes.create_string_buffer(struct.pack('HBBI', 0x06, 0, 0, ALLOW))
program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 1, ctypes.addressof(allow)))
for name, flags in (('seccomp(2)', 0), ('with tsync', 1), ('with log', 2), ('with spec allow', 4)):
    steps[name] = call('seccomp', 1, flags, program)
for value in (0, 1, 2):
    steps['dumpable %d' % value] = call('prctl', 4, value, 0, 0, 0)
steps['ptracer any'] = call('prctl', 0x59616d61, -1, 0, 0, 0)
steps['ptracer 1'] = call('prctl', 0x59616d61, 1, 0, 0, 0)
steps['seccomp off'] = call('prctl', 22, 0, 0, 0, 0)
steps['no_new_privs off'] = call('prctl', 38, 0, 0, 0, 0)
steps['subreaper'] = call('prctl', 36, 1, 0, 0, 0)
steps['speculation'] = call('prctl', 53, 0, 2, 0, 0)
steps['mm exe'] = call('prctl', 35, 13, 99, 0, 0)
answer({'before': before, 'after': state(), 'steps': steps})
";

fn run(context: &Context) -> Verdict {
    let payload = Payload::new(LOOSEN);
    let outside = outside_as(Identity::Unprivileged, &payload)?;
    let after = &outside["after"];
    control(after["unshare"] == "ok" && after["ptrace"] == "ESRCH" && after["io_uring"] == "EBADF", || {
        format!("the acts do not work outside: {outside}")
    })?;
    let filters = ["second filter", "seccomp(2)", "with tsync", "with log"];
    let added = filters.iter().all(|filter| outside["steps"][filter] == "ok");
    control(added, || format!("filters cannot be added outside: {}", outside["steps"]))?;
    let inside = context.inside(&context.boxed(), &payload)?;
    for filter in filters {
        held(inside["steps"][filter] == "EINVAL", || format!("{filter} → {}", inside["steps"][filter]))?;
    }
    for act in ["unshare", "ptrace", "io_uring"] {
        held(inside["after"][act] == "EPERM", || {
            format!("{act} → {} after {}", inside["after"][act], inside["steps"])
        })?;
    }
    held(inside["after"]["environ of 1"] != "ok", || "the init's environment opened up".into())?;
    held(inside["after"]["seccomp"] == "2" && inside["after"]["no_new_privs"] == "1", || inside["after"].to_string())?;
    held(inside["steps"]["seccomp off"] != "ok", || "the filter was switched off".into())?;
    held(inside["before"] == inside["after"], || format!("{} became {}", inside["before"], inside["after"]))?;
    Ok(format!("nothing is loosened by {}", inside["steps"]))
}
