//! Attack e04: `userfaultfd` in its user-mode-only form, which needs no privilege on the host.
//! Exploits use it to hold races open.

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
