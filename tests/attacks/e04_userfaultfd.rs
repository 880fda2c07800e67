//! In its user-mode-only form this call needs no privilege at all outside, and has held many a race open.

use crate::calls::{Call, refused};
use crate::probe::{Context, Probe, Verdict};

pub(crate) const PROBE: Probe = Probe { id: "e04", title: "userfaultfd, user mode only", run };

const CALLS: [Call; 3] = [
    Call { name: "userfaultfd", arguments: "1", kernel: "ok" },
    Call { name: "userfaultfd", arguments: "1 | 0o4000 | 0o2000000", kernel: "ok" },
    Call { name: "userfaultfd", arguments: "0", kernel: "EPERM|ok" },
];

fn run(context: &Context) -> Verdict {
    refused(context, &CALLS)
}
