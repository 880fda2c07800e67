//! Attack e10: `open_by_handle_at`, which bypasses mounts. The call that makes handles must be
//! refused too.

use crate::calls::{Call, refused};
use crate::probe::{Context, Probe, Verdict};

pub(crate) const PROBE: Probe = Probe { id: "e10", title: "open_by_handle_at, name_to_handle_at", run };

const CALLS: [Call; 2] = [
    Call { name: "open_by_handle_at", arguments: "99, 1, 0", kernel: "EFAULT|EPERM" },
    Call { name: "name_to_handle_at", arguments: "99, b'x', 1, 1, 0", kernel: "EBADF|EFAULT" },
];

fn run(context: &Context) -> Verdict {
    refused(context, &CALLS)
}
