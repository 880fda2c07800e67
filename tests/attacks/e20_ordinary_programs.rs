//! Ordinary programs work under the filter: Python with numpy and threads, node, git, gcc, java and
//! cargo run in a box repeatedly without a refused call that they notice. The control is the same
//! work outside.

use std::path::{Path, PathBuf};

use tests::support::actor::{Identity, Skip};
use tests::support::boxed::BoxRun;

use crate::probe::{Context, Fault, Probe, Verdict, bare_as, control, held};

pub(crate) const PROBE: Probe = Probe { id: "e20", title: "python, node, git, gcc, java, cargo work unharmed", run };

/// A program and a script that proves it by printing `works`; `$1` is a directory to work in.
const TOOLS: [(&str, &str); 6] = [
    (
        "python3",
        r#"/usr/bin/python3 - <<'END'
import numpy, threading, multiprocessing, subprocess, tempfile, sqlite3, ssl, asyncio, ctypes
totals = []
def work(seed):
    numbers = numpy.random.default_rng(seed).random((120, 120))
    totals.append(float(numpy.linalg.norm(numbers @ numpy.linalg.inv(numbers) - numpy.eye(120))))
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
lock = multiprocessing.Lock()
child = multiprocessing.Process(target=lock.acquire)
child.start(); child.join()
assert child.exitcode == 0
assert subprocess.check_output(['/bin/echo', 'x']) == b'x\n'
with tempfile.NamedTemporaryFile() as file: file.write(b'x')
sqlite3.connect(':memory:').execute('select 1')
async def both(): await asyncio.gather(asyncio.sleep(0), asyncio.create_subprocess_exec('/bin/true'))
asyncio.run(both())
assert len(totals) == 8 and max(totals) < 1e-3
print('works')
END"#,
    ),
    (
        "node",
        r#"node -e '
const {Worker} = require("worker_threads"), {execFileSync} = require("child_process");
const fs = require("fs"), crypto = require("crypto");
fs.writeFileSync(process.argv[1] + "/node.txt", crypto.randomBytes(16).toString("hex"));
execFileSync("/bin/true");
const program = "require(\"worker_threads\").parentPort.postMessage(1)";
new Worker(program, {eval: true}).on("message", () => console.log("works"));
' "$1""#,
    ),
    (
        "git",
        r#"cd "$1" && rm -rf repository && git init -q repository && cd repository && echo text >file && git add file &&
git -c user.name=n -c user.email=e@example.invalid commit -q -m first && git gc -q &&
git clone -q . ../copy-$$ && rm -rf ../copy-$$ &&
git log --oneline | grep -q first && echo works"#,
    ),
    (
        "gcc",
        r#"cd "$1" && cat >program.c <<'END'
#include <pthread.h>
#include <stdio.h>
static void *work(void *nothing) { return nothing; }
int main(void) {
    pthread_t thread;
    if (pthread_create(&thread, 0, work, 0) || pthread_join(thread, 0)) return 1;
    puts("works");
    return 0;
}
END
gcc -O2 -pthread -o program program.c && ./program"#,
    ),
    (
        "java",
        r#"cd "$1" && mkdir -p java && cat >java/Main.java <<'END'
public class Main { public static void main(String[] words) throws Exception {
    Thread thread = new Thread(() -> System.gc()); thread.start(); thread.join();
    new ProcessBuilder("/bin/true").start().waitFor();
    System.out.println("works"); } }
END
javac -d java java/Main.java && java -cp java Main"#,
    ),
    (
        "cargo",
        r#"cd "$1" && rm -rf crate && mkdir -p crate/src home && export CARGO_HOME="$1/home" && cd crate &&
printf '[package]\nname = "trial"\nversion = "0.1.0"\nedition = "2021"\n' >Cargo.toml &&
echo 'fn main() { println!("works"); }' >src/main.rs &&
cargo run --quiet --offline"#,
    ),
];

fn run(context: &Context) -> Verdict {
    let rounds = context.effort.choose(5, 1000);
    let work = context.workspace("work")?;
    let free = context.scratch.directory("free")?;
    let mut notes = Vec::new();
    let mut faults = Vec::new();
    for (name, script) in TOOLS {
        let mut run = context
            .boxed()
            .workspace(&work)
            .option("--memory-mb", "2048")
            .option("--pids", "512")
            .option("--timeout", "300");
        let mut prefix = String::new();
        if name == "cargo" {
            if context.is_served() {
                notes.push("cargo not asked, because a server shows no toolchain of a home".into());
                continue;
            }
            let Some(toolchain) = toolchain(context)? else {
                return Err(Fault::Skipped(Skip::Missing("no Rust toolchain that this user can read".into())));
            };
            run = toolchain.shown.iter().fold(run, |run, directory| run.read_only(directory));
            prefix = toolchain.prefix;
        }
        let script = format!("{prefix}{script}");
        let outside = context.bare(&["/bin/sh", "-c", &script, "sh", &free.to_string_lossy()])?;
        if outside.code() == Some(127) {
            return Err(Fault::Skipped(Skip::Missing(format!("{name} is not installed"))));
        }
        control(outside.text().trim_end().ends_with("works"), || format!("{name} outside: {}", outside.describe()))?;
        match repeat(&run, &script, context.place(), rounds) {
            Ok(()) => notes.push(format!("{name} ×{rounds}")),
            Err(what) => faults.push(format!("{name}: {what}")),
        }
    }
    held(faults.is_empty(), || faults.join(" ‖ "))?;
    Ok(notes.join(", "))
}

fn repeat(run: &BoxRun, script: &str, place: &str, rounds: u32) -> Result<(), String> {
    for round in 1..=rounds {
        let inside = run.run(&["/bin/sh", "-c", script, "sh", place]).map_err(|error| error.to_string())?;
        let errors = inside.errors();
        let felt = ["not permitted", "Bad system call", "not implemented"].iter().any(|words| errors.contains(words));
        if inside.code() != Some(0) || !inside.text().trim_end().ends_with("works") || felt {
            return Err(format!("round {round}: {}", inside.describe()));
        }
    }
    Ok(())
}

/// The directories of a Rust toolchain to mount, and the shell line that adds it to PATH.
struct Toolchain {
    shown: Vec<PathBuf>,
    prefix: String,
}

/// The homes of rustup and cargo if the user of this mode can read them; otherwise hard links to the toolchain that runs
/// this test.
fn toolchain(context: &Context) -> Result<Option<Toolchain>, Fault> {
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    let place = |variable: &str, name: &str| std::env::var_os(variable).map_or_else(|| home.join(name), PathBuf::from);
    let (cargo, rustup) = (place("CARGO_HOME", ".cargo"), place("RUSTUP_HOME", ".rustup"));
    let test = "test -x \"$1/bin/cargo\" && test -d \"$2\"";
    let words =
        ["/bin/sh".as_ref(), "-c".as_ref(), test.as_ref(), "sh".as_ref(), cargo.as_os_str(), rustup.as_os_str()];
    if context.bare(&words)?.code() == Some(0) {
        let prefix = format!("export PATH={}/bin:$PATH RUSTUP_HOME={}; ", cargo.display(), rustup.display());
        return Ok(Some(Toolchain { shown: vec![cargo, rustup], prefix }));
    }
    let running = std::env::var_os("CARGO").map(PathBuf::from);
    let Some(top) = running.as_deref().and_then(Path::parent).and_then(Path::parent) else {
        return Ok(None);
    };
    let links = context.scratch.directory("toolchain")?;
    let copy = "cp -al \"$1/bin\" \"$1/lib\" \"$2\" || cp -a \"$1/bin\" \"$1/lib\" \"$2\"";
    let words = ["/bin/sh".as_ref(), "-c".as_ref(), copy.as_ref(), "sh".as_ref(), top.as_os_str(), links.as_os_str()];
    let copied = bare_as(Identity::Tester, &words)?;
    control(copied.code() == Some(0), || copied.describe())?;
    let prefix = format!("export PATH={}/bin:$PATH; ", links.display());
    Ok(Some(Toolchain { shown: vec![links], prefix }))
}
