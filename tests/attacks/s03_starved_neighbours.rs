//! Attack s03: one user takes all its processes and repeatedly runs out of memory. Another user's
//! execs must start, fork and end normally.

use serde_json::{Value, json};
use tests::support::payload::Payload;

use crate::g01_fork_bomb::FORK;
use crate::g02_memory_hog::TAKE;
use crate::probe::{Context, Fault, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "s03", title: "one user's exhaustion fails another's exec", run };

const ROUNDS: usize = 3;

fn run(context: &Context) -> Verdict {
    let (greedy, modest) = (context.tenant("greedy")?, context.tenant("modest")?);
    let mut bombs = Vec::new();
    for _ in 0..2 {
        let mut live = greedy.run.clone().option("--pids", "60").start_payload(&Payload::new(FORK))?;
        let answer: Value = serde_json::from_str(&live.line()?).unwrap_or_default();
        control(answer["refusal"] == "EAGAIN", || format!("the first user met no limit: {answer}"))?;
        bombs.push(live);
    }
    let take = Payload::new(TAKE).with(json!({ "kind": "anonymous", "pieces": 256 }));
    for round in 0..ROUNDS {
        let hog = greedy.run.clone().option("--memory-mb", "64").report_payload(&take)?;
        control(hog.is_set("oom_killed"), || format!("the first user had memory enough: {}", hog.summary()))?;
        // As many processes as the first user has, below the limit.
        let neighbour = modest.run.clone().option("--pids", "256").start_payload(&Payload::new(FORK));
        let mut neighbour = neighbour?;
        let answer: Value = serde_json::from_str(&neighbour.line()?).unwrap_or_default();
        let ended = neighbour.finish()?;
        held(answer["count"] == 200 && ended.code() == Some(0), || {
            format!("round {round}: the other user could start {answer}: {}", ended.describe())
        })?;
    }
    for live in bombs {
        let ended = live.finish()?;
        control(ended.code() == Some(0), || ended.describe())?;
    }
    let after = modest.run.run(&["/bin/echo", "well"])?;
    if after.text() != "well\n" {
        return Err(Fault::Broken(after.describe()));
    }
    Ok(format!("{ROUNDS} rounds beside two boxes without a process left and one without memory"))
}
