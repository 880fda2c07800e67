//! Attack e05: `io_uring`, whose operations no filter sees. The descriptor is invalid, so EBADF
//! comes from the kernel and EPERM from the filter.

use crate::calls::{Call, refused};
use crate::probe::{Context, Probe, Verdict};

pub(crate) const PROBE: Probe = Probe { id: "e05", title: "io_uring_setup, io_uring_enter, io_uring_register", run };

const CALLS: [Call; 3] = [
    Call { name: "io_uring_setup", arguments: "8, 1", kernel: "EFAULT|EPERM" },
    Call { name: "io_uring_enter", arguments: "99, 0, 0, 0, None, 0", kernel: "EBADF|EPERM" },
    Call { name: "io_uring_register", arguments: "99, 0, None, 0", kernel: "EBADF|EPERM" },
];

fn run(context: &Context) -> Verdict {
    refused(context, &CALLS)
}
