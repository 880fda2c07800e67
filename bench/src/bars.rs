//! The promised bars: a figure, its bound, and whether this run met it.
//!
//! Bounds are ratios within one run, except for memory, which does not depend on the machine's
//! speed, and for queries of the record, which are in milliseconds.

use std::fmt;

use crate::contestant::{Contestant, Task};
use crate::report::Measured;
use crate::samples::{milliseconds, ratio};
use crate::throughput::CONCURRENCY;
use crate::warm_boxes;

const MEMORY_MB: f64 = 3.0;
/// Allowed growth; a leak of one descriptor or kilobyte per exec would exceed it by far.
const GROWTH: f64 = 1.15;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl fmt::Display for Bound {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::AtMost(bound) => write!(formatter, "≤ {bound}"),
            Bound::AtLeast(bound) => write!(formatter, "≥ {bound}"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    Ok,
    Missed,
    NotMeasured,
}

impl Held {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Held::Ok => "ok",
            Held::Missed => "MISSED",
            Held::NotMeasured => "not measured",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) measured: Option<f64>,
    pub(crate) bound: Bound,
}

impl Bar {
    pub(crate) fn held(&self) -> Held {
        let held = match (self.measured, self.bound) {
            (None, _) => return Held::NotMeasured,
            (Some(measured), Bound::AtMost(bound)) => measured <= bound,
            (Some(measured), Bound::AtLeast(bound)) => measured >= bound,
        };
        if held { Held::Ok } else { Held::Missed }
    }
}

/// Every bar, in the order of docs/promises.md.
pub(crate) fn check(measured: &Measured) -> Vec<Bar> {
    let Measured {
        latency,
        throughput,
        memory,
        serving,
        interfaces,
        warm_boxes,
        kept,
        pictures,
        files,
        records,
        docker,
        ..
    } = measured;
    let docker = docker.as_ref().ok();
    use Contestant::{Bare, BoxAlone, Bubblewrap, RingwallRun};
    use Task::{Python, True};
    let compare = |one, other, task| Some(ratio(latency.of(one, task), latency.of(other, task)));
    let bar = |name: &str, measured, bound| Bar { name: name.to_owned(), measured, bound };
    let docker_run = docker.and_then(|docker| {
        let entry = docker.entries.iter().find(|entry| entry.task == True)?;
        Some(ratio(entry.docker.median(), entry.ringwall_run.median()))
    });
    let docker_exec = docker.map(|docker| ratio(docker.docker_exec.median(), docker.native_exec.median()));
    let session = docker.map(|docker| ratio(docker.sessions.session.median(), docker.sessions.docker_exec.median()));
    let kept = kept.as_ref().ok();
    let jupyter = kept.and_then(|kept| Some(ratio(kept.context.median(), kept.jupyter.as_ref().ok()?.median())));
    let warm_boxes = warm_boxes.as_ref().ok();
    let pictures = pictures.as_ref().ok();
    let warm_memory = |kilobytes: u64| kilobytes as f64 / 1024.0;
    let endurance = &serving.endurance;
    let slowest = records.questions.iter().map(|(_, samples)| milliseconds(samples.p95())).fold(0.0, f64::max);
    let rate = throughput.of(BoxAlone) / throughput.of(Bubblewrap);
    let mut bars = vec![
        bar("true: native box ÷ bwrap", compare(BoxAlone, Bubblewrap, True), Bound::AtMost(0.7)),
        bar("true: native box ÷ fork+exec", compare(BoxAlone, Bare, True), Bound::AtMost(3.0)),
        bar("python3 -c 1: native box ÷ fork+exec", compare(BoxAlone, Bare, Python), Bound::AtMost(1.25)),
        bar("true: ringwall run ÷ bwrap", compare(RingwallRun, Bubblewrap, True), Bound::AtMost(1.0)),
        bar("true: docker run ÷ ringwall run", docker_run, Bound::AtLeast(50.0)),
        bar(&format!("native boxes per second at concurrency {CONCURRENCY} ÷ bwrap"), Some(rate), Bound::AtLeast(1.5)),
        bar(
            "peak memory of jail and init of ringwall run, MB",
            memory.as_ref().ok().map(|memory| memory.of_a_run.peak_resident as f64 / 1024.0),
            Bound::AtMost(MEMORY_MB),
        ),
        bar(
            "exec over HTTP ÷ bwrap started by a shell",
            Some(ratio(serving.exec.median(), serving.shell_bwrap.median())),
            Bound::AtMost(1.2),
        ),
        bar(
            "code by MCP tool run_code ÷ by POST /api/run",
            Some(ratio(interfaces.mcp.median(), interfaces.http.median())),
            Bound::AtMost(1.2),
        ),
        bar("exec over HTTP: docker ÷ native", docker_exec, Bound::AtLeast(40.0)),
        bar(
            &format!("execs over HTTP per second at concurrency {CONCURRENCY} ÷ bwrap started by shells"),
            Some(serving.rate / serving.shell_bwrap_rate),
            Bound::AtLeast(1.0),
        ),
        bar(
            &format!("{} execs: latency of the last tenth ÷ of the first tenth", endurance.execs),
            Some(ratio(endurance.last.median(), endurance.first.median())),
            Bound::AtMost(GROWTH),
        ),
        bar(
            &format!("{} execs: memory at the end ÷ in the middle", endurance.execs),
            Some(endurance.after.resident_kb as f64 / endurance.before.resident_kb as f64),
            Bound::AtMost(GROWTH),
        ),
        bar(
            &format!("{} execs: descriptors at the end ÷ in the middle", endurance.execs),
            Some(endurance.after.descriptors as f64 / endurance.before.descriptors as f64),
            Bound::AtMost(GROWTH),
        ),
        bar(
            "Python in a warm box over HTTP ÷ python3 -c, median",
            warm_boxes.map(|warm_boxes| ratio(warm_boxes.run.median(), warm_boxes.bare.median())),
            Bound::AtMost(0.25),
        ),
        bar(
            "Python in a warm box over HTTP ÷ python3 -c, p95",
            warm_boxes.map(|warm_boxes| ratio(warm_boxes.run.p95(), warm_boxes.bare.p95())),
            Bound::AtMost(0.5),
        ),
        bar(
            &format!("Python over HTTP per second at concurrency {} ÷ python3 -c", warm_boxes::CONCURRENCY),
            warm_boxes.map(|warm_boxes| warm_boxes.rate / warm_boxes.bare_rate),
            Bound::AtLeast(0.7),
        ),
        bar(
            "private memory of a warm box without interpreter, MB",
            warm_boxes.map(|warm_boxes| warm_memory(warm_boxes.init)),
            Bound::AtMost(1.0),
        ),
        bar(
            "private memory of a warm box with Python, MB",
            warm_boxes.map(|warm_boxes| warm_memory(warm_boxes.init + warm_boxes.interpreter)),
            Bound::AtMost(6.0),
        ),
        bar("1+1 in a context over HTTP ÷ in a Jupyter kernel", jupyter, Bound::AtMost(0.25)),
        bar("true in a session's docker box over HTTP ÷ docker exec", session, Bound::AtMost(0.06)),
        bar("private memory of an idle session box, MB", kept.map(|kept| warm_memory(kept.home)), Bound::AtMost(1.0)),
        bar(
            "private memory of an idle session box with a context, MB",
            kept.map(|kept| warm_memory(kept.home + kept.interpreter)),
            Bound::AtMost(6.0),
        ),
        bar(
            "screenshot in a session over HTTP ÷ Page.captureScreenshot",
            pictures.map(|pictures| ratio(pictures.session.median(), pictures.protocol.median())),
            Bound::AtMost(1.5),
        ),
        bar(&format!("slowest query of {} records, p95 ms", records.execs), Some(slowest), Bound::AtMost(5.0)),
        bar(
            "reads of a 4 KiB file per second ÷ axum file server",
            Some(files.reads / files.static_reads),
            Bound::AtLeast(0.5),
        ),
    ];
    bars.extend(files.pairs.iter().map(|pair| {
        let measured = ratio(pair.server_samples.median(), pair.tool_samples.median());
        bar(&format!("{} ÷ {}", pair.name, pair.tool), Some(measured), Bound::AtMost(2.0))
    }));
    bars
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bound_value_itself_is_allowed() {
        let held = |measured, bound| Bar { name: String::new(), measured, bound }.held();
        assert_eq!(held(Some(0.7), Bound::AtMost(0.7)), Held::Ok);
        assert_eq!(held(Some(0.71), Bound::AtMost(0.7)), Held::Missed);
        assert_eq!(held(Some(50.0), Bound::AtLeast(50.0)), Held::Ok);
        assert_eq!(held(Some(49.9), Bound::AtLeast(50.0)), Held::Missed);
        assert_eq!(held(Some(f64::NAN), Bound::AtMost(1.0)), Held::Missed);
        assert_eq!(held(None, Bound::AtMost(1.0)), Held::NotMeasured);
    }
}
