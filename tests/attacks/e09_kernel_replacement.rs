//! Attack e09: calls that replace or extend the running kernel. Kernels check the capability first
//! or lack the call, so the oracle decides. Invalid arguments and the oracle prevent any effect.

use crate::calls::{Call, refused};
use crate::probe::{Context, Probe, Verdict};

pub(crate) const PROBE: Probe = Probe { id: "e09", title: "kexec, modules, reboot", run };

const CALLS: [Call; 9] = [
    Call { name: "kexec_load", arguments: "0, 0, None, 1 << 20", kernel: "ENOSYS|EPERM|EINVAL" },
    Call { name: "kexec_file_load", arguments: "-1, -1, 0, None, 1 << 20", kernel: "ENOSYS|EPERM|EINVAL" },
    Call { name: "init_module", arguments: "1, 1, 1", kernel: "ENOSYS|EPERM|EFAULT" },
    Call { name: "finit_module", arguments: "99, b'', 1 << 20", kernel: "ENOSYS|EPERM|EINVAL" },
    Call { name: "delete_module", arguments: "1, 0", kernel: "ENOSYS|EPERM|EFAULT" },
    Call { name: "reboot", arguments: "0, 0, 0, None", kernel: "EPERM|EINVAL" },
    Call { name: "create_module", arguments: "0", kernel: "ENOSYS" },
    Call { name: "query_module", arguments: "0", kernel: "ENOSYS" },
    Call { name: "get_kernel_syms", arguments: "0", kernel: "ENOSYS" },
];

fn run(context: &Context) -> Verdict {
    refused(context, &CALLS)
}
