//! Attack e02: `bpf`. Command and pointer are invalid, so without the filter the kernel reports the
//! pointer, or the missing privilege if it checks that first.

use crate::calls::{Call, refused};
use crate::probe::{Context, Probe, Verdict};

pub(crate) const PROBE: Probe = Probe { id: "e02", title: "bpf", run };

const CALLS: [Call; 3] = [
    Call { name: "bpf", arguments: "9999, 1, 1", kernel: "EFAULT|EINVAL|EPERM" },
    Call { name: "bpf", arguments: "5, None, 0", kernel: "EINVAL|EPERM|EFAULT" },
    Call { name: "bpf", arguments: "0, 1, 8", kernel: "EFAULT|EINVAL|EPERM" },
];

fn run(context: &Context) -> Verdict {
    refused(context, &CALLS)
}
