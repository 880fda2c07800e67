//! The report: all measurements as tables and as one JSON object.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::agent_files::AgentFiles;
use crate::bars::{self, Bar, Held};
use crate::contestant::{Contestant, Task};
use crate::docker::Docker;
use crate::interfaces::Interfaces;
use crate::kept::Kept;
use crate::latency::Latency;
use crate::machine::Machine;
use crate::memory::{Footprint, Memory};
use crate::pictures::Pictures;
use crate::records::Records;
use crate::samples::{Samples, milliseconds, ratio};
use crate::serving::{Endurance, Serving};
use crate::table::Table;
use crate::throughput::{CONCURRENCY, Throughput};
use crate::warm_boxes::{self, WarmBoxes};

/// A measurement, or the reason why there is none.
type Perhaps<T> = Result<T, String>;

/// All measurements, in the order of the report.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) machine: Machine,
    pub(crate) latency: Latency,
    pub(crate) throughput: Throughput,
    pub(crate) memory: Perhaps<Memory>,
    pub(crate) serving: Serving,
    pub(crate) interfaces: Interfaces,
    pub(crate) warm_boxes: Perhaps<WarmBoxes>,
    pub(crate) kept: Perhaps<Kept>,
    pub(crate) pictures: Perhaps<Pictures>,
    pub(crate) files: AgentFiles,
    pub(crate) records: Records,
    pub(crate) docker: Perhaps<Docker>,
    pub(crate) no_cgroups: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Report {
    measured: Measured,
    bars: Vec<Bar>,
}

impl Report {
    pub(crate) fn new(measured: Measured) -> Self {
        let bars = bars::check(&measured);
        Report { measured, bars }
    }

    pub(crate) fn has_missed(&self) -> bool {
        self.bars.iter().any(|bar| bar.held() == Held::Missed)
    }

    pub(crate) fn to_text(&self) -> String {
        let sections = [
            ("Machine", self.machine_text()),
            ("Bars", self.bars_text()),
            ("Latency", self.latency_text()),
            ("docker run --rm", self.docker_text()),
            ("Throughput", self.throughput_text()),
            ("Memory of a box", self.memory_text()),
            ("An exec over HTTP", self.serving_text()),
            ("Code in warm boxes", self.warm_text()),
            ("Session boxes", self.kept_text()),
            ("Screenshots", self.pictures_text()),
            ("Files and skills of an agent", self.files_text()),
            ("The record", self.records_text()),
            ("Steps of a native box (true)", self.steps_text()),
        ];
        sections.iter().map(|(title, text)| format!("\n## {title}\n\n{text}")).collect()
    }

    fn machine_text(&self) -> String {
        let Machine { kernel, processor, cores, memory_mb, user, busy, bubblewrap, docker } = &self.measured.machine;
        let mut text = format!(
            "{processor}, {cores} cores, {memory_mb} MB, Linux {kernel}, as {user}\n\
             {bubblewrap}; {docker}; others used {busy:.0} % of the processors just before\n",
            busy = busy * 100.0
        );
        if !self.measured.machine.is_quiet() {
            text.push_str("NOT QUIET: other programs were running; ratios and milliseconds are unreliable.\n");
        }
        if let Some(reason) = &self.measured.no_cgroups {
            let _ = writeln!(text, "No cgroups ({reason}): all boxes below run without them.");
        }
        text
    }

    fn bars_text(&self) -> String {
        let mut table = Table::new(["what", "measured", "bar", "held"]);
        for bar in &self.bars {
            let measured = bar.measured.map_or("-".to_owned(), |measured| format!("{measured:.2}"));
            table.add([bar.name.clone(), measured, bar.bound.to_string(), bar.held().word().to_owned()]);
        }
        table.to_text()
    }

    fn latency_text(&self) -> String {
        let mut text = String::new();
        for task in Task::ALL {
            let heading = format!("`{}`", task.command().join(" "));
            let mut table = Table::new([heading.as_str(), "median ms", "p95 ms", "÷ fork+exec", "÷ bwrap"]);
            for entry in self.measured.latency.entries.iter().filter(|entry| entry.task == task) {
                let median = entry.samples.median();
                let to = |other| format!("{:.2}", ratio(median, self.measured.latency.of(other, task)));
                let [half, most] = figures(&entry.samples);
                let name = entry.contestant.name().to_owned();
                table.add([name, half, most, to(Contestant::Bare), to(Contestant::Bubblewrap)]);
            }
            let _ = writeln!(text, "{}", table.to_text());
        }
        let rounds = self.measured.latency.entries.first().map_or(0, |entry| entry.samples.count());
        let _ = writeln!(text, "{rounds} rounds, in shuffled order.");
        text
    }

    fn docker_text(&self) -> String {
        let entries = match &self.measured.docker {
            Ok(docker) => &docker.entries,
            Err(reason) => return format!("Not measured: {reason}.\n"),
        };
        let mut table = Table::new(["", "median ms", "p95 ms", "÷ ringwall run", "÷ native box"]);
        for entry in entries {
            let [half, most] = figures(&entry.docker);
            let to = |other: &Samples| format!("{:.1}", ratio(entry.docker.median(), other.median()));
            let name = format!("`{}`", entry.task.command().join(" "));
            table.add([name, half, most, to(&entry.ringwall_run), to(&entry.box_alone)]);
        }
        let rounds = entries.first().map_or(0, |entry| entry.docker.count());
        format!("{}\n{rounds} rounds, all three in each.\n", table.to_text())
    }

    fn throughput_text(&self) -> String {
        let heading = format!("`true`, {CONCURRENCY} at a time");
        let mut table = Table::new([heading.as_str(), "runs per second", "÷ bwrap"]);
        for (contestant, rate) in &self.measured.throughput.entries {
            let to_bubblewrap = rate / self.measured.throughput.of(Contestant::Bubblewrap);
            table.add([contestant.name().to_owned(), format!("{rate:.0}"), format!("{to_bubblewrap:.2}")]);
        }
        table.to_text()
    }

    fn memory_text(&self) -> String {
        let memory = match &self.measured.memory {
            Ok(memory) => memory,
            Err(reason) => return format!("Not measured: {reason}.\n"),
        };
        let mut table = Table::new(["kB", "peak resident", "peak, shared pages once", "private"]);
        let rows = [
            ("ringwall run: jail and init, one process", memory.of_a_run),
            ("server: the jail of all boxes", memory.jail),
            ("server: init of one box", memory.init),
            ("server: both", memory.together),
        ];
        for (name, footprint) in rows {
            let Footprint { peak_resident, peak, private } = footprint;
            table.add([name.to_owned(), peak_resident.to_string(), peak.to_string(), private.to_string()]);
        }
        table.to_text()
    }

    fn serving_text(&self) -> String {
        let serving = &self.measured.serving;
        let mut table = Table::new(["", "median ms", "p95 ms", "÷ bwrap"]);
        let mut rows = vec![
            ("exec over HTTP, `bash -lc true`", &serving.exec),
            ("code by POST /api/run, `echo 1`", &self.measured.interfaces.http),
            ("code by MCP tool run_code, `echo 1`", &self.measured.interfaces.mcp),
            ("bwrap true", &serving.bwrap),
            ("bwrap true, started by a shell", &serving.shell_bwrap),
            ("bwrap bash -lc true", &serving.bwrap_shell),
        ];
        if let Ok(docker) = &self.measured.docker {
            rows.push(("exec over HTTP on native, alternating with docker", &docker.native_exec));
            rows.push(("exec over HTTP on docker", &docker.docker_exec));
        }
        for (name, samples) in rows {
            let [half, most] = figures(samples);
            let to_bubblewrap = ratio(samples.median(), serving.bwrap.median());
            table.add([name.to_owned(), half, most, format!("{to_bubblewrap:.2}")]);
        }
        let heading = format!("{CONCURRENCY} at a time");
        let mut rates = Table::new([heading.as_str(), "runs per second", "÷ bwrap"]);
        for (name, rate) in [
            ("exec over HTTP, `bash -lc true`", serving.rate),
            ("bwrap true, started by shells", serving.shell_bwrap_rate),
            ("bwrap true", serving.bwrap_rate),
            ("bwrap bash -lc true", serving.bwrap_shell_rate),
        ] {
            rates.add([name.to_owned(), format!("{rate:.0}"), format!("{:.2}", rate / serving.bwrap_rate)]);
        }
        let Endurance { execs, first, last, before, after } = &serving.endurance;
        let mut growth = Table::new([format!("{execs} execs").as_str(), "earlier", "at the end"]);
        let [first, last] = [first, last].map(|samples| format!("{:.2}", milliseconds(samples.median())));
        growth.add(["median ms, first tenth and last".to_owned(), first, last]);
        let [memory, descriptors] = [
            [before.resident_kb.to_string(), after.resident_kb.to_string()],
            [before.descriptors.to_string(), after.descriptors.to_string()],
        ];
        growth.add(["resident kB, in the middle and at the end".to_owned(), memory[0].clone(), memory[1].clone()]);
        growth.add([
            "descriptors, in the middle and at the end".to_owned(),
            descriptors[0].clone(),
            descriptors[1].clone(),
        ]);
        format!("{}\n{}\n{}", table.to_text(), rates.to_text(), growth.to_text())
    }

    fn warm_text(&self) -> String {
        let WarmBoxes { run, bare, runs, rate, bare_rate, init, interpreter } = match &self.measured.warm_boxes {
            Ok(warm_boxes) => warm_boxes,
            Err(reason) => return format!("Not measured: {reason}.\n"),
        };
        let heading = format!("`{}`", warm_boxes::CODE);
        let mut table = Table::new([heading.as_str(), "median ms", "p95 ms", "÷ python3 -c"]);
        for (name, samples) in [("POST, warm boxes ready", run), ("/usr/bin/python3 -c", bare)] {
            let [half, most] = figures(samples);
            table.add([name.to_owned(), half, most, format!("{:.2}", ratio(samples.median(), bare.median()))]);
        }
        let heading = format!("{runs} runs, {} at a time", warm_boxes::CONCURRENCY);
        let mut rates = Table::new([heading.as_str(), "runs per second", "÷ python3 -c"]);
        for (name, rate) in [("POST", rate), ("/usr/bin/python3 -c", bare_rate)] {
            rates.add([name.to_owned(), format!("{rate:.0}"), format!("{:.2}", rate / bare_rate)]);
        }
        let mut memory = Table::new(["private kB of a warm box", "init", "interpreter"]);
        memory.add(["Python".to_owned(), init.to_string(), interpreter.to_string()]);
        format!("{}\n{}\n{}", table.to_text(), rates.to_text(), memory.to_text())
    }

    fn kept_text(&self) -> String {
        let mut table = Table::new(["in a session box", "median ms", "p95 ms", "÷ the next row"]);
        let mut add = |names: [&str; 2], ours: &Samples, theirs: &Samples| {
            for (name, samples) in names.into_iter().zip([ours, theirs]) {
                let [half, most] = figures(samples);
                table.add([name.to_owned(), half, most, format!("{:.3}", ratio(samples.median(), theirs.median()))]);
            }
        };
        let mut rest = String::new();
        match &self.measured.kept {
            Ok(Kept { context, jupyter, home, interpreter }) => {
                match jupyter {
                    Ok(jupyter) => add(["`1+1` in a context, POST", "`1+1` in a Jupyter kernel"], context, jupyter),
                    Err(reason) => drop(writeln!(rest, "No Jupyter kernel: {reason}.")),
                }
                let mut memory = Table::new(["private kB of an idle session box", "init and agent", "interpreter"]);
                memory.add(["Python".to_owned(), home.to_string(), interpreter.to_string()]);
                rest.push_str(&memory.to_text());
            }
            Err(reason) => drop(writeln!(rest, "Contexts were not measured: {reason}.")),
        }
        match &self.measured.docker {
            Ok(docker) => {
                let names = ["`true` in a session's docker box, POST", "docker exec, `true`"];
                add(names, &docker.sessions.session, &docker.sessions.docker_exec);
            }
            Err(reason) => drop(writeln!(rest, "No docker: {reason}.")),
        }
        format!("{}\n{rest}", table.to_text())
    }

    fn pictures_text(&self) -> String {
        let Pictures { session, protocol, characters } = match &self.measured.pictures {
            Ok(pictures) => pictures,
            Err(reason) => return format!("Not measured: {reason}.\n"),
        };
        let heading = format!("PNG of {} kB in base64", characters / 1000);
        let mut table = Table::new([heading.as_str(), "median ms", "p95 ms", "÷ the next row"]);
        for (name, samples) in [("screenshot in a session, POST", session), ("Page.captureScreenshot", protocol)] {
            let [half, most] = figures(samples);
            let to_protocol = ratio(samples.median(), protocol.median());
            table.add([name.to_owned(), half, most, format!("{to_protocol:.2}")]);
        }
        table.to_text()
    }

    fn files_text(&self) -> String {
        let AgentFiles { reads, static_reads, pairs } = &self.measured.files;
        let heading = format!("4 KiB file, {CONCURRENCY} at a time");
        let mut rates = Table::new([heading.as_str(), "reads per second", "÷ axum"]);
        for (name, rate) in [("over HTTP", reads), ("axum file server", static_reads)] {
            rates.add([name.to_owned(), format!("{rate:.0}"), format!("{:.2}", rate / static_reads)]);
        }
        let mut table = Table::new(["", "median ms", "p95 ms", "÷ the next row"]);
        for pair in pairs {
            for (name, samples) in [(pair.name, &pair.server_samples), (pair.tool, &pair.tool_samples)] {
                let [half, most] = figures(samples);
                let to_tool = ratio(samples.median(), pair.tool_samples.median());
                table.add([name.to_owned(), half, most, format!("{to_tool:.2}")]);
            }
        }
        format!("{}\n{}", rates.to_text(), table.to_text())
    }

    fn records_text(&self) -> String {
        let Records { execs, filled_per_second, questions } = &self.measured.records;
        let mut table = Table::new([format!("query of {execs} records").as_str(), "median ms", "p95 ms"]);
        for (name, samples) in questions {
            let [half, most] = figures(samples);
            table.add([(*name).to_owned(), half, most]);
        }
        format!(
            "{}\nWritten at {filled_per_second:.0} execs per second, each with intent, outcome and two audit entries.\n",
            table.to_text()
        )
    }

    fn steps_text(&self) -> String {
        let mut table = Table::new(["µs, median", "with cgroups", "without"]);
        let (with, without) = (&self.measured.latency.steps, &self.measured.latency.steps_without_cgroups);
        let figure = |samples: &Samples| samples.median().as_micros().to_string();
        for (part, samples) in with.parts() {
            let without = without.of(*part).map_or("-".to_owned(), figure);
            table.add([part.name(), figure(samples), without]);
        }
        table.add(["all (not the sum of the medians above)".to_owned(), figure(with.total()), figure(without.total())]);
        table.to_text()
    }

    pub(crate) fn to_json(&self) -> Value {
        let machine = &self.measured.machine;
        let steps = |steps: &crate::steps::Steps| -> Value {
            let part = |(part, samples): &(crate::steps::Part, Samples)| json!({ "part": part.name(), "time": sampled(samples) });
            steps.parts().iter().map(part).collect()
        };
        json!({
            "machine": {
                "kernel": machine.kernel, "processor": machine.processor, "cores": machine.cores,
                "memory_mb": machine.memory_mb, "user": machine.user, "busy": machine.busy,
                "quiet": machine.is_quiet(), "bwrap": machine.bubblewrap, "docker": machine.docker,
                "no_cgroups": self.measured.no_cgroups,
            },
            "bars": self.bars.iter().map(|bar| json!({
                "name": bar.name, "measured": bar.measured, "bound": bar.bound.to_string(), "held": bar.held().word(),
            })).collect::<Value>(),
            "latency": self.measured.latency.entries.iter().map(|entry| json!({
                "contestant": entry.contestant.key(), "command": entry.task.command(), "time": sampled(&entry.samples),
            })).collect::<Value>(),
            "docker": match &self.measured.docker {
                Ok(docker) => docker.entries.iter().map(|entry| json!({
                    "command": entry.task.command(), "docker_run": sampled(&entry.docker),
                    "ringwall_run": sampled(&entry.ringwall_run), "box_alone": sampled(&entry.box_alone),
                })).collect::<Value>(),
                Err(reason) => json!({ "not_measured": reason }),
            },
            "throughput": self.measured.throughput.entries.iter().map(|(contestant, rate)| json!({
                "contestant": contestant.key(), "runs_per_second": rate, "concurrency": CONCURRENCY,
            })).collect::<Value>(),
            "memory": match &self.measured.memory {
                Ok(memory) => json!({ "of_a_run": sized(memory.of_a_run), "jail": sized(memory.jail), "init": sized(memory.init), "together": sized(memory.together) }),
                Err(reason) => json!({ "not_measured": reason }),
            },
            "serving": {
                "exec": sampled(&self.measured.serving.exec), "bwrap": sampled(&self.measured.serving.bwrap),
                "bwrap_from_a_shell": sampled(&self.measured.serving.shell_bwrap),
                "bwrap_with_a_shell": sampled(&self.measured.serving.bwrap_shell),
                "code": sampled(&self.measured.interfaces.http), "code_by_mcp": sampled(&self.measured.interfaces.mcp),
                "execs_per_second": self.measured.serving.rate, "bwrap_per_second": self.measured.serving.bwrap_rate,
            },
            "spares": match &self.measured.warm_boxes {
                Ok(warm_boxes) => json!({
                    "run": sampled(&warm_boxes.run), "bare": sampled(&warm_boxes.bare), "runs": warm_boxes.runs,
                    "runs_per_second": warm_boxes.rate, "bare_per_second": warm_boxes.bare_rate,
                    "init_private_kb": warm_boxes.init, "interpreter_private_kb": warm_boxes.interpreter,
                }),
                Err(reason) => json!({ "not_measured": reason }),
            },
            "kept": match &self.measured.kept {
                Ok(kept) => json!({
                    "context": sampled(&kept.context), "jupyter": kept.jupyter.as_ref().ok().map(sampled),
                    "home_private_kb": kept.home, "interpreter_private_kb": kept.interpreter,
                    "docker_session": self.measured.docker.as_ref().ok().map(|docker| json!({
                        "session": sampled(&docker.sessions.session), "docker_exec": sampled(&docker.sessions.docker_exec),
                    })),
                }),
                Err(reason) => json!({ "not_measured": reason }),
            },
            "pictures": match &self.measured.pictures {
                Ok(pictures) => json!({
                    "session": sampled(&pictures.session), "protocol": sampled(&pictures.protocol),
                    "base64_characters": pictures.characters,
                }),
                Err(reason) => json!({ "not_measured": reason }),
            },
            "files": {
                "reads_per_second": self.measured.files.reads,
                "static_reads_per_second": self.measured.files.static_reads,
                "pairs": self.measured.files.pairs.iter().map(|pair| json!({
                    "name": pair.name,
                    "tool": pair.tool,
                    "server_median_ms": milliseconds(pair.server_samples.median()),
                    "tool_median_ms": milliseconds(pair.tool_samples.median()),
                })).collect::<Vec<_>>(),
            },
            "records": self.measured.records.questions.iter().map(|(name, samples)| json!({
                "question": name, "time": sampled(samples),
            })).collect::<Value>(),
            "steps": { "with_cgroups": steps(&self.measured.latency.steps), "without_cgroups": steps(&self.measured.latency.steps_without_cgroups) },
        })
    }
}

fn figures(samples: &Samples) -> [String; 2] {
    [samples.median(), samples.p95()].map(|duration| format!("{:.2}", milliseconds(duration)))
}

fn sampled(samples: &Samples) -> Value {
    json!({
        "median_ms": milliseconds(samples.median()), "p95_ms": milliseconds(samples.p95()), "count": samples.count(),
    })
}

fn sized(footprint: Footprint) -> Value {
    json!({
        "peak_resident_kb": footprint.peak_resident, "peak_each_page_once_kb": footprint.peak,
        "private_kb": footprint.private,
    })
}
