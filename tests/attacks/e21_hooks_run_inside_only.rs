//! Attack e21: code that a caller starts early through a preloaded library, a shell's start-up file
//! or a search path. It runs inside the box or not at all: each time it ran, it was filtered and
//! saw no file of the host.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tests::support::actor::Identity;
use tests::support::scratch::Scratch;

use crate::probe::{Context, Probe, Verdict, bare_as, control, held};

pub(crate) const PROBE: Probe = Probe { id: "e21", title: "LD_PRELOAD, BASH_ENV, PATH take effect inside only", run };

/// Appends its credentials to a log in the workspace, and tries to leave a mark on the host.
const LIBRARY: &str = r#"
#include <stdio.h>
#include <string.h>
__attribute__((constructor)) static void early(void) {
    char line[256], whole[512] = "";
    FILE *status = fopen("/proc/self/status", "r"), *log;
    while (status && fgets(line, sizeof line, status))
        if (!strncmp(line, "CapBnd:", 7) || !strncmp(line, "NoNewPrivs:", 11) || !strncmp(line, "Seccomp:", 8)) {
            line[strcspn(line, "\n")] = ' ';
            strcat(whole, line);
        }
    if (status) fclose(status);
    if ((log = fopen(LOG, "a"))) { fprintf(log, "library %s\n", whole); fclose(log); }
    if ((log = fopen(MARK, "a"))) { fprintf(log, "library\n"); fclose(log); }
}
"#;

/// The same in shell, without starting a program.
const SCRIPT: &str = r#"
while read -r name value; do
    case $name in CapBnd:|NoNewPrivs:|Seccomp:) words="$words$name $value ";; esac
done </proc/self/status
echo "script $words" >>/workspace/log
{ echo script >>MARK; } 2>/dev/null || :
"#;

fn run(context: &Context) -> Verdict {
    let scratch = &context.scratch;
    let work = context.workspace("work")?;
    let mark = scratch.join("mark");
    let build = Scratch::new(Identity::Tester)?;
    let source = build.file("early.c", LIBRARY.as_bytes(), 0o644)?;
    let mut outside_notes = 0;
    for (place, log) in [("outside.so", work.join("outside.log")), ("early.so", Path::new(context.place()).join("log"))]
    {
        let defines = [format!("-DLOG=\"{}\"", log.display()), format!("-DMARK=\"{}\"", mark.display())];
        let library = work.join(place);
        let gcc = bare_as(
            Identity::Tester,
            &[
                "gcc".as_ref(),
                "-shared".as_ref(),
                "-fPIC".as_ref(),
                defines[0].as_ref(),
                defines[1].as_ref(),
                "-o".as_ref(),
                library.as_os_str(),
                source.as_os_str(),
            ],
        )?;
        control(gcc.code() == Some(0), || gcc.describe())?;
    }
    let script = SCRIPT.replace("MARK", &mark.to_string_lossy()).replace("/workspace", context.place());
    for (name, text) in [("start.sh", script.clone()), ("true", format!("#!/bin/sh\n{script}"))] {
        fs::write(work.join(name), text)?;
        fs::set_permissions(work.join(name), fs::Permissions::from_mode(0o755))?;
    }
    let preload = format!("LD_PRELOAD={}", work.join("outside.so").display());
    context.bare(&["env", &preload, "/bin/true"])?;
    if mark.exists() {
        outside_notes += 1;
        fs::remove_file(&mark)?;
    }
    control(outside_notes == 1, || "the library leaves no mark outside".into())?;

    let ways: [(&str, &[&str]); 6] = [
        ("LD_PRELOAD=/workspace/early.so", &["/bin/true"]),
        ("LD_AUDIT=/workspace/early.so", &["/bin/true"]),
        ("LD_LIBRARY_PATH=/workspace", &["/bin/true"]),
        ("BASH_ENV=/workspace/start.sh", &["/bin/bash", "-c", ":"]),
        ("ENV=/workspace/start.sh", &["/bin/sh", "-c", ":"]),
        ("PATH=/workspace:/usr/bin:/bin", &["true"]),
    ];
    for (variable, words) in ways {
        // In the starter's environment the variable must not affect our own processes either.
        let variable = &variable.replace("/workspace", context.place());
        let (name, value) = variable.split_once('=').unwrap_or((variable, ""));
        let run = context.boxed().workspace(&work).option("--env", variable);
        let run = if name == "PATH" || context.is_served() { run } else { run.host_variable(name, value) };
        let outcome = run.run(words)?;
        control(outcome.code() == Some(0), || format!("{variable}: {}", outcome.describe()))?;
    }
    held(!mark.exists(), || {
        format!("planted code ran on the host: {}", fs::read_to_string(&mark).unwrap_or_default())
    })?;
    let log = fs::read_to_string(work.join("log")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    control(
        lines.iter().any(|line| line.starts_with("library")) && lines.iter().any(|line| line.starts_with("script")),
        || format!("the planted code never ran inside: {log:?}"),
    )?;
    for line in &lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        let value = |name: &str| words.iter().position(|word| *word == name).and_then(|at| words.get(at + 1).copied());
        let confined = value("Seccomp:") == Some("2")
            && value("NoNewPrivs:") == Some("1")
            && value("CapBnd:") == Some("0000000000000000");
        held(confined, || format!("planted code ran before the box was closed: {line}"))?;
    }
    Ok(format!("{} runs of planted code, all inside and confined", lines.len()))
}
