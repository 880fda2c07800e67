//! Attack e15: rare calls with past vulnerabilities. Of the personalities only those that weaken
//! the process are tried.

use crate::calls::{Call, refused};
use crate::probe::{Context, Probe, Verdict};

pub(crate) const PROBE: Probe =
    Probe { id: "e15", title: "fanotify_init, personality, modify_ldt, uselib, ustat", run };

const CALLS: [Call; 8] = [
    Call { name: "fanotify_init", arguments: "1 << 30, 0", kernel: "EPERM|EINVAL|ENOSYS" },
    Call { name: "fanotify_mark", arguments: "99, 0, 0, -100, None", kernel: "EINVAL|EBADF|ENOSYS" },
    Call { name: "personality", arguments: "0x0400000", kernel: "ok" },
    Call { name: "personality", arguments: "0x0040000", kernel: "ok" },
    Call { name: "personality", arguments: "6", kernel: "ok" },
    Call { name: "modify_ldt", arguments: "99, None, 0", kernel: "ok|ENOSYS" },
    Call { name: "uselib", arguments: "1", kernel: "ENOSYS|EFAULT" },
    Call { name: "ustat", arguments: "0xffffff, 1", kernel: "EINVAL" },
];

fn run(context: &Context) -> Verdict {
    refused(context, &CALLS)
}
