//! Attack e08: calls that access another process, aimed at PID 1 and at processes that do not
//! exist.

use crate::calls::{Call, refused};
use crate::probe::{Context, Probe, Verdict};

pub(crate) const PROBE: Probe =
    Probe { id: "e08", title: "ptrace, process_vm_*, pidfd_getfd, kcmp, process_madvise", run };

const CALLS: [Call; 8] = [
    Call { name: "ptrace", arguments: "0x4206, 999999, 0, 0", kernel: "ESRCH" },
    Call { name: "ptrace", arguments: "9999, 999999, 0, 0", kernel: "ESRCH" },
    Call { name: "process_vm_readv", arguments: "1, None, 0, None, 0, 1", kernel: "EINVAL" },
    Call { name: "process_vm_writev", arguments: "1, None, 0, None, 0, 1", kernel: "EINVAL" },
    Call { name: "pidfd_getfd", arguments: "99, 0, 0", kernel: "EBADF" },
    Call { name: "kcmp", arguments: "999999, 999999, 0, 0, 0", kernel: "ESRCH|ENOSYS" },
    Call { name: "process_madvise", arguments: "99, None, 0, 4, 0", kernel: "EBADF|EINVAL" },
    Call { name: "move_pages", arguments: "999999, 0, None, None, None, 0", kernel: "ESRCH|ENOSYS" },
];

fn run(context: &Context) -> Verdict {
    refused(context, &CALLS)
}
