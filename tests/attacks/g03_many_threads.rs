//! Attack g03: a box starts threads until it is refused. Threads count as processes, so it never
//! has more than its limit.

use serde_json::Value;
use tests::support::host;
use tests::support::payload::Payload;

use crate::probe::{Context, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "g03", title: "many threads", run };

const LIMIT: u64 = 40;

const THREADS: &str = r"
import threading
gate = threading.Event()
count, refusal = 0, 'none'
while count < 200:
    try:
        threading.Thread(target=gate.wait, daemon=True).start()
        count += 1
    except RuntimeError as error:
        refusal = str(error)
        break
answer({'count': count, 'refusal': refusal})
sys.stdin.read()
gate.set()
os._exit(0)
";

fn run(context: &Context) -> Verdict {
    let payload = Payload::new(THREADS);
    let outside = context.outside(&payload)?;
    control(outside["count"] == 200, || format!("the host refuses 200 threads too: {outside}"))?;
    let mut live = context.boxed().option("--pids", LIMIT.to_string()).start_payload(&payload)?;
    let answer: Value = serde_json::from_str(&live.line()?).unwrap_or_default();
    let most = host::descendants(context.above(&live))?
        .into_iter()
        .filter(|number| host::field(*number, "NSpid").is_some_and(|numbers| numbers.contains('\t')))
        .filter_map(|number| host::field(number, "Threads")?.parse::<u64>().ok())
        .max()
        .unwrap_or_default();
    live.finish()?;
    held(answer["refusal"] != "none", || format!("no limit was met: {answer}"))?;
    held(most <= LIMIT, || format!("{most} threads under a limit of {LIMIT}"))?;
    control(most > 5, || format!("the limit left no room to try: {answer}"))?;
    Ok(format!("{most} threads at most under {LIMIT}"))
}
