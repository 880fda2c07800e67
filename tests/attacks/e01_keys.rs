//! Attack e01: keys and keyrings, which outlive processes and cross namespaces. All their calls
//! must be refused.

use crate::calls::{Call, refused};
use crate::probe::{Context, Probe, Verdict};

pub(crate) const PROBE: Probe = Probe { id: "e01", title: "keyctl, add_key, request_key", run };

const CALLS: [Call; 3] = [
    Call { name: "keyctl", arguments: "9999", kernel: "EOPNOTSUPP|ENOTSUP" },
    Call { name: "add_key", arguments: "1, 1, 1, 1, 1", kernel: "EFAULT" },
    Call { name: "request_key", arguments: "1, 1, None, 0", kernel: "EFAULT" },
];

fn run(context: &Context) -> Verdict {
    refused(context, &CALLS)
}
