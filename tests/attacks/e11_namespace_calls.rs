//! Attack e11: `unshare` and `setns` with invalid flags and descriptors: EINVAL and EBADF on the
//! host, the filter's EPERM in a box.

use crate::calls::{Call, refused};
use crate::probe::{Context, Probe, Verdict};

pub(crate) const PROBE: Probe = Probe { id: "e11", title: "unshare, setns", run };

const CALLS: [Call; 5] = [
    Call { name: "unshare", arguments: "1", kernel: "EINVAL" },
    Call { name: "unshare", arguments: "0x1000", kernel: "EINVAL" },
    Call { name: "unshare", arguments: "0x10000000", kernel: "ok" },
    Call { name: "setns", arguments: "99, 0", kernel: "EBADF" },
    Call { name: "setns", arguments: "-1, 0x20000", kernel: "EBADF" },
];

fn run(context: &Context) -> Verdict {
    refused(context, &CALLS)
}
