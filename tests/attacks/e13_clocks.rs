//! Attack e13: setting and slewing clocks. The pointers are bad, so no clock changes in any case; a
//! setting mode of `adjtimex` needs a capability first, so the filter itself is asked.

use crate::calls::{Call, refused};
use crate::probe::{Context, Probe, Verdict};

pub(crate) const PROBE: Probe = Probe { id: "e13", title: "settimeofday, clock_settime, adjtimex, clock_adjtime", run };

const CALLS: [Call; 5] = [
    Call { name: "settimeofday", arguments: "1, None", kernel: "EFAULT" },
    Call { name: "clock_settime", arguments: "0, 1", kernel: "EFAULT" },
    Call { name: "clock_settime", arguments: "99, 1", kernel: "EINVAL" },
    Call { name: "adjtimex", arguments: "1", kernel: "EFAULT" },
    Call { name: "clock_adjtime", arguments: "0, 1", kernel: "EFAULT" },
];

fn run(context: &Context) -> Verdict {
    refused(context, &CALLS)
}
