//! Attack e03: `perf_event_open`. The kernel checks the pointer before `perf_event_paranoid`, so
//! EPERM comes from the filter.

use crate::calls::{Call, refused};
use crate::probe::{Context, Probe, Verdict};

pub(crate) const PROBE: Probe = Probe { id: "e03", title: "perf_event_open", run };

const CALLS: [Call; 2] = [
    Call { name: "perf_event_open", arguments: "1, 0, -1, -1, 0", kernel: "EFAULT" },
    Call { name: "perf_event_open", arguments: "None, 0, -1, -1, 1 << 20", kernel: "EINVAL|EFAULT" },
];

fn run(context: &Context) -> Verdict {
    refused(context, &CALLS)
}
