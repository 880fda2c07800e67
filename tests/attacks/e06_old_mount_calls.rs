//! Attack e06: the old mount calls. The kernel checks pointers and flags before capabilities,
//! except in `pivot_root`, where only the oracle can tell the filter's EPERM.

use crate::calls::{Call, refused};
use crate::probe::{Context, Probe, Verdict};

pub(crate) const PROBE: Probe = Probe { id: "e06", title: "mount, umount2, pivot_root, chroot", run };

const CALLS: [Call; 5] = [
    Call { name: "mount", arguments: "1, 1, 1, 0, None", kernel: "EFAULT" },
    Call { name: "umount2", arguments: "1, 0", kernel: "EFAULT" },
    Call { name: "umount2", arguments: "b'/', 1 << 20", kernel: "EINVAL" },
    Call { name: "pivot_root", arguments: "1, 1", kernel: "EPERM" },
    Call { name: "chroot", arguments: "b'/nonexistent'", kernel: "ENOENT" },
];

fn run(context: &Context) -> Verdict {
    refused(context, &CALLS)
}
