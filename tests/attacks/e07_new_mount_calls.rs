//! Attack e07: the new mount calls. Some check a capability first; for these only the oracle can
//! tell the filter's EPERM.

use crate::calls::{Call, refused};
use crate::probe::{Context, Probe, Verdict};

pub(crate) const PROBE: Probe = Probe { id: "e07", title: "fsopen … mount_setattr, open_tree_attr", run };

const CALLS: [Call; 9] = [
    Call { name: "fsopen", arguments: "b'tmpfs', 99", kernel: "EPERM" },
    Call { name: "fsconfig", arguments: "99, 0, None, None, 0", kernel: "EINVAL|EBADF" },
    Call { name: "fsmount", arguments: "99, 0, 0", kernel: "EPERM" },
    Call { name: "fspick", arguments: "99, b'x', 0", kernel: "EPERM" },
    Call { name: "open_tree", arguments: "99, b'x', 0", kernel: "EBADF" },
    Call { name: "open_tree", arguments: "-100, b'/', 1 << 20", kernel: "EINVAL" },
    Call { name: "open_tree_attr", arguments: "99, b'x', 0, None, 0", kernel: "EBADF|ENOSYS" },
    Call { name: "move_mount", arguments: "99, b'x', 99, b'y', 0", kernel: "EPERM" },
    Call { name: "mount_setattr", arguments: "99, b'x', 0, None, 0", kernel: "EINVAL|EBADF" },
];

fn run(context: &Context) -> Verdict {
    refused(context, &CALLS)
}
