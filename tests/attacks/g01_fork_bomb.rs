//! Attack g01: fork bombs. A box that forks until it is refused never has more processes than its
//! limit, a box that forks endlessly ends at its timeout, and the host can start processes
//! meanwhile.

use serde_json::Value;
use tests::support::host;
use tests::support::payload::Payload;
use tests::support::scratch::token;

use crate::probe::{Context, Probe, Verdict, control, held, parse};

pub(crate) const PROBE: Probe = Probe { id: "g01", title: "fork bomb", run };

const LIMIT: usize = 40;

/// Children wait on a pipe that closes with their parent. At most 200, which is enough to see whether there is a limit.
pub(crate) const FORK: &str = r"
reader, writer = os.pipe()
count, refusal = 0, 'none'
while count < 200:
    try:
        if os.fork() == 0:
            os.close(writer)
            os.read(reader, 1)
            os._exit(0)
        count += 1
    except OSError as error:
        refusal = name_of(error.errno)
        break
answer({'count': count, 'refusal': refusal})
sys.stdin.read()
";

fn run(context: &Context) -> Verdict {
    let payload = Payload::new(FORK);
    let outside = context.outside(&payload)?;
    control(outside["count"] == 200, || format!("the host refuses 200 processes too: {outside}"))?;

    let mut live = context.boxed().option("--pids", LIMIT.to_string()).start_payload(&payload)?;
    let line = live.line()?;
    let own = host::thread_namespaces("self")?[0]["pid"].clone();
    let inside_now = host::descendants(context.above(&live))?
        .into_iter()
        .filter(|number| {
            host::thread_namespaces(&number.to_string()).is_ok_and(|ids| ids.iter().all(|one| one["pid"] != own))
        })
        .count();
    let answer: Value = serde_json::from_str(&line).unwrap_or_default();
    parse("in the box", &live.finish()?)?;
    held(answer["refusal"] == "EAGAIN", || format!("no limit was met: {answer}"))?;
    // Init may or may not count.
    held(inside_now <= LIMIT + 1, || format!("{inside_now} processes under a limit of {LIMIT}"))?;
    control(answer["count"].as_u64() > Some(5), || format!("the limit left no room to try: {answer}"))?;

    let mark = format!("mark-{}", token()?);
    let bomb = "bomb() { bomb | bomb & }; echo lit; bomb; while :; do :; done";
    let mut live = context.boxed().option("--pids", LIMIT.to_string()).option("--timeout", "3").start(&[
        "/bin/bash",
        "-c",
        bomb,
        &mark,
    ])?;
    live.line()?;
    let responsive = context.bare(&["/bin/true"])?;
    let ended = live.finish()?;
    held(responsive.code() == Some(0), || "the host could not start a process meanwhile".into())?;
    held(ended.code() == Some(124), || format!("the bomb: {}", ended.describe()))?;
    let left = host::marked(&mark)?;
    held(left.is_empty(), || format!("left of the bomb: {left:?}"))?;
    Ok(format!("{inside_now} processes at most under {LIMIT}; the bomb ended after {} ms", ended.elapsed.as_millis()))
}
