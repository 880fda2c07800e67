//! Attack e18: `int 0x80` with 32-bit call numbers, and x32 call numbers. A filter of 64-bit
//! numbers alone would misread both. No call may get through.

use tests::support::actor::{Identity, Skip};
use tests::support::scratch::Scratch;

use crate::probe::{Context, Fault, Probe, Verdict, bare_as, control, held};

pub(crate) const PROBE: Probe = Probe { id: "e18", title: "int 0x80 and x32 system calls", run };

/// Argument `i`: 32-bit getpid by `int 0x80`, then 32-bit `mkdir` of a path below 4 GiB. Argument `x`: x32 getpid and
/// x32 mkdir. `mkdir` shows from outside whether a call got through.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
static long old(long number, long first, long second) {
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(first), "c"(second) : "memory");
    return result;
}
int main(int count, char **words) {
    char *low = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    if (count < 3 || low == MAP_FAILED) return 3;
    strcpy(low, words[2]);
    printf("ready\n");
    fflush(stdout);
    if (words[1][0] == 'i') {
        printf("getpid %s\n", old(20, 0, 0) == getpid() ? "ok" : "other");
        fflush(stdout);
        printf("mkdir %ld\n", old(39, (long)low, 0755));
    } else {
        long result = syscall(0x40000000L + SYS_getpid);
        printf("getpid %s %d\n", result == getpid() ? "ok" : "other", errno);
        fflush(stdout);
        result = syscall(0x40000000L + SYS_mkdir, low, 0755);
        printf("mkdir %ld %d\n", result, errno);
        for (long number = 512; number < 548; number++) {
            errno = 0;
            result = syscall(0x40000000L + number, -1L, -1L, -1L, -1L, -1L, -1L);
            if (errno != ENOSYS) printf("x32 %ld %ld %d\n", number, result, errno);
        }
    }
    return 0;
}
"#;

fn run(context: &Context) -> Verdict {
    if !cfg!(target_arch = "x86_64") {
        return Err(Fault::Skipped(Skip::Impossible("only x86-64 has these two ways in".into())));
    }
    let build = Scratch::new(Identity::Tester)?;
    let source = build.file("program.c", PROGRAM.as_bytes(), 0o644)?;
    let work = context.workspace("work")?;
    let program = work.join("program");
    let gcc = bare_as(
        Identity::Tester,
        &["gcc".as_ref(), "-O1".as_ref(), "-o".as_ref(), program.as_os_str(), source.as_os_str()],
    )?;
    control(gcc.code() == Some(0), || gcc.describe())?;
    let mut notes = Vec::new();

    let made = context.scratch.join("by-old-call");
    let outside = context.bare(&[program.as_os_str(), "i".as_ref(), made.as_os_str()])?;
    control(outside.text().starts_with("ready"), || outside.describe())?;
    notes.push(if made.exists() { "int 0x80 works outside" } else { "this kernel has no int 0x80" });
    let run = context.boxed().workspace(&work);
    let at = |name: &str| format!("{}/{name}", context.place());
    let inside = run.run(&[at("program"), "i".into(), at("by-old-call")])?;
    control(inside.text().starts_with("ready"), || inside.describe())?;
    held(!work.join("by-old-call").exists(), || format!("int 0x80 made a directory: {}", inside.describe()))?;
    held(!inside.text().contains("getpid"), || format!("int 0x80 returned: {}", inside.describe()))?;
    held(inside.code() == Some(128 + 31), || format!("not killed by SIGSYS: {}", inside.describe()))?;

    let made = context.scratch.join("by-x32");
    let outside = context.bare(&[program.as_os_str(), "x".as_ref(), made.as_os_str()])?;
    control(outside.text().contains("mkdir"), || outside.describe())?;
    notes.push(if made.exists() {
        "x32 works outside"
    } else {
        "this kernel has no x32, so ENOSYS cannot be attributed"
    });
    let inside = run.run(&[at("program"), "x".into(), at("by-x32")])?;
    held(!work.join("by-x32").exists(), || format!("x32 made a directory: {}", inside.describe()))?;
    let text = inside.text();
    let refused = text.contains("getpid other 38") && text.contains("mkdir -1 38") && !text.contains("x32 ");
    held(refused, || format!("x32 did not give ENOSYS throughout: {}", inside.describe()))?;
    Ok(format!("killed by SIGSYS, ENOSYS; {}", notes.join("; ")))
}
