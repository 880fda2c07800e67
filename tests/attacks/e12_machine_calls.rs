//! Attack e12: calls for swap, accounting, quotas, the kernel log and ports, and calls that newer
//! kernels dropped.

use crate::calls::{Call, refused};
use crate::probe::{Context, Probe, Verdict};

pub(crate) const PROBE: Probe = Probe { id: "e12", title: "swapon … vhangup", run };

const CALLS: [Call; 13] = [
    Call { name: "swapon", arguments: "1, 1 << 30", kernel: "EINVAL|EPERM" },
    Call { name: "swapoff", arguments: "1", kernel: "EPERM|EFAULT" },
    Call { name: "acct", arguments: "1", kernel: "EPERM|EFAULT|ENOSYS" },
    Call { name: "quotactl", arguments: "(0x800001 << 8) | 99, 1, 0, None", kernel: "EINVAL|ENOSYS" },
    Call { name: "quotactl_fd", arguments: "99, 0, 0, None", kernel: "EBADF|ENOSYS" },
    Call { name: "syslog", arguments: "9999, None, 0", kernel: "EPERM|EINVAL" },
    Call { name: "iopl", arguments: "9", kernel: "ENOSYS|EINVAL" },
    Call { name: "ioperm", arguments: "1 << 20, 1, 1", kernel: "ENOSYS|EINVAL" },
    Call { name: "nfsservctl", arguments: "0", kernel: "ENOSYS" },
    Call { name: "lookup_dcookie", arguments: "0, None, 0", kernel: "ENOSYS|EPERM" },
    Call { name: "vhangup", arguments: "", kernel: "EPERM" },
    Call { name: "sysfs", arguments: "9", kernel: "EINVAL|ENOSYS" },
    Call { name: "_sysctl", arguments: "None", kernel: "ENOSYS|EFAULT" },
];

fn run(context: &Context) -> Verdict {
    refused(context, &CALLS)
}
