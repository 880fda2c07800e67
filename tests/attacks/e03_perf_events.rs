//! A bad pointer is found by the kernel before it looks at `perf_event_paranoid`, so EPERM is the filter's.

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
