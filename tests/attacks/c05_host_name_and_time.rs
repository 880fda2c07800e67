//! Attack c05: a box sets the host's name and clock. The control sets a name in a new namespace.

use std::time::{SystemTime, UNIX_EPOCH};

use tests::support::actor::Identity;
use tests::support::payload::{PYTHON, Payload};

use crate::calls::{Call, refused};
use crate::probe::{Context, Probe, Verdict, bare_as, control, held, parse};

pub(crate) const PROBE: Probe =
    Probe { id: "c05", title: "sethostname, setdomainname, settimeofday, clock_settime", run };

const SET: &str = r"answer([call('sethostname', b'renamed', 7), os.uname().nodename])";

const CALLS: [Call; 4] = [
    Call { name: "sethostname", arguments: "b'renamed', 7", kernel: "EPERM" },
    Call { name: "setdomainname", arguments: "b'renamed', 7", kernel: "EPERM" },
    // Invalid pointers, so that no clock changes: the kernel reads the new time before it checks the caller.
    Call { name: "settimeofday", arguments: "1, None", kernel: "EFAULT" },
    Call { name: "clock_settime", arguments: "0, 1", kernel: "EFAULT" },
];

fn run(context: &Context) -> Verdict {
    let mut words = vec!["unshare".into(), "--user".into(), "--map-root-user".into(), "--uts".into()];
    words.extend(Payload::new(SET).arguments());
    let scratch = parse("in a scratch namespace", &bare_as(Identity::Unprivileged, &words)?)?;
    control(scratch[0] == "ok" && scratch[1] == "renamed", || format!("{PYTHON} could not rename it: {scratch}"))?;

    let name = || rustix::system::uname().nodename().to_owned();
    // Wall clock minus time since boot: constant unless the clock is set.
    let drift = || -> Result<f64, crate::probe::Fault> {
        let text = std::fs::read_to_string("/proc/uptime")?;
        let boot: f64 = text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or_default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(now.as_secs_f64() - boot)
    };
    let (name_before, drift_before) = (name(), drift()?);
    let note = refused(context, &CALLS)?;
    held(name() == name_before, || "the host was renamed".into())?;
    held((drift()? - drift_before).abs() < 60.0, || "the host's clock was set".into())?;
    Ok(note)
}
