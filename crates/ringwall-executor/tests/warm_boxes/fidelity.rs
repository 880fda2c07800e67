//! A warm box gives the same output and exit code as a cold box.

use ringwall_executor::warm::WarmKind;
use ringwall_policy::{Field, Grant};

use super::fixture::{CommandOutput, Fixture, UIDS};

/// Programs whose output is compared byte by byte. Both boxes leave the same files in the
/// workspace.
const PROGRAMS: &[&str] = &[
    "print(1)",
    "import json,re,os; print(json.dumps(re.findall('a', 'aba')), os.getcwd())",
    "1/0",
    "def f():\n    raise ValueError('x')\ntry:\n    f()\nexcept ValueError as error:\n    raise KeyError('y') from error",
    "x =",
    "def f(:\n  pass",
    "  print(1)",
    "print(0 is 0); '\\d'",
    "raise SystemExit('bye')",
    "raise SystemExit(3)",
    "raise SystemExit",
    "import sys; sys.exit([1, 2])",
    "exit(4)",
    "import os; print('lost', end=''); os._exit(5)",
    "import atexit; atexit.register(print, 'after'); print('before')",
    "import atexit\ndef f(): 1/0\natexit.register(f)",
    "import threading, time\ndef f(): time.sleep(0.05); print('thread')\nthreading.Thread(target=f).start(); print('main')",
    "import subprocess; print(subprocess.run(['echo', 'child'], capture_output=True, text=True).stdout)",
    "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'print(2)'], capture_output=True).stdout)",
    "import multiprocessing as m\ndef double(x): return 2 * x\nif __name__ == '__main__':\n    with m.Pool(2) as pool: print(pool.map(double, [1, 2]))",
    "import pickle\nclass A: pass\nprint(pickle.dumps(A()), A.__module__, type(pickle.loads(pickle.dumps(A()))) is A)",
    "file = open('unflushed', 'w'); file.write('written'); print(open('unflushed').read())",
    "print(open('unflushed').read())",
    "class A:\n    def __del__(self): print('gone')\na = A(); b = [a]; b.append(b)",
    "import sys; print(sys.argv, sys.path, sys.flags, sys.executable, sys.prefix, sys.orig_argv, sys.stdin.isatty())",
    "print(sorted(vars()), __name__, __doc__, __package__, __spec__, __loader__, __builtins__)",
    "from __future__ import annotations\nx: int = 1\nprint(__annotations__)",
    "print('h\u{e9}llo \u{1f600} \u{4f60}\u{597d}')",
    "# -*- coding: latin-1 -*-\nprint('\u{e9}')",
    "print('\\udcff')",
    "import sys; sys.stdout.buffer.write(b'\\xff\\x00\\n'); print(sys.stdout.encoding, sys.getfilesystemencoding())",
    "import warnings; warnings.warn('careful'); warnings.warn('old', DeprecationWarning)",
    "def f(n): return f(n + 1)\nf(0)",
    "n = 0\ndef f():\n    global n\n    n += 1\n    f()\ntry: f()\nexcept RecursionError: print(n)",
    "raise KeyboardInterrupt",
    "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "import os; os.abort()",
    "import sys\ndef hook(*_): raise ValueError(1)\nsys.excepthook = hook\n1/0",
    "import sys\nsys.excepthook = lambda kind, *_: print('seen', kind)\n1/0",
    "import sys; sys.stdout.close()",
    "import os; os.close(1); print(1)",
    "import asyncio\nasync def f(): return await asyncio.sleep(0, 'slept')\nprint(asyncio.run(f()))",
    "import os, signal; print(os.umask(0), os.getuid(), os.getgid(), os.getgroups(), os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid(), signal.getsignal(signal.SIGPIPE), signal.pthread_sigmask(signal.SIG_BLOCK, []))",
    "import os; print(sorted(os.listdir('/proc/self/fd'))); print(dict(os.environ)); print(sorted(os.listdir('/')))",
    "import resource; print([resource.getrlimit(n) for n in range(16)])",
    "import platform, locale, time; print(platform.node(), locale.getlocale(), time.tzname)",
    "import gc; print(gc.isenabled(), gc.get_threshold()); import decimal, random, uuid, socket; print(decimal.Decimal(1))",
    "print(input())",
    "raise ExceptionGroup('group', [ValueError(1), TypeError(2)])",
    "await 1",
    "import os; print(os.stat('.').st_uid, open('/proc/self/mountinfo').read().count('workspace'))",
    "print(1)\r\nprint(2)\r\n",
    "",
];

pub(crate) fn warm_interpreter_output_equals_cold_box() {
    let fixture = Fixture::new();
    for program in PROGRAMS {
        let cold = without_addresses(fixture.cold(fixture.python(program)));
        assert_eq!(without_addresses(fixture.warm(WarmKind::Python, fixture.python(program))), cold, "{program}");
    }
    let long = format!("x = '{}'; print(len(x))", "a".repeat(110_000));
    assert_eq!(fixture.warm(WarmKind::Python, fixture.python(&long)).stdout, "110000\n");
}

/// Removes memory addresses, which differ in every run.
fn without_addresses(mut output: CommandOutput) -> CommandOutput {
    for text in [&mut output.stdout, &mut output.stderr] {
        let mut parts = text.split(" at 0x");
        let first = parts.next().unwrap_or_default().to_owned();
        *text = parts.fold(first, |before, part| before + part.trim_start_matches(|c: char| c.is_ascii_hexdigit()));
    }
    output
}

pub(crate) fn command_reads_its_own_standard_input() {
    let fixture = Fixture::new();
    let grant = || fixture.python("import sys; print(sys.stdin.read().upper(), input.__name__)");
    let running = fixture
        .runtime
        .block_on(fixture.executor.start_warm_box(fixture.warm_box(WarmKind::Python, &grant()), grant()));
    assert_eq!(fixture.follow(running.unwrap(), b"given\n").0.stdout, "GIVEN\n input\n");
}

pub(crate) fn environment_and_directory_equal_cold_box() {
    let fixture = Fixture::new();
    let code = "import os, subprocess; print(dict(os.environ)); print(subprocess.run('env; pwd', shell=True, capture_output=True, text=True).stdout)";
    let grant =
        || fixture.grant_of(UIDS[0], &["python3", "-c", code], &[("KEY", "a=b"), ("USER", "me"), ("EMPTY", "")], &[]);
    let kind = |grant: &Grant| fixture.executor.warm_spec_for(grant).expect("a warm box can serve the grant").kind;
    assert_eq!(kind(&grant()), WarmKind::Python);
    let sorted = |text: String| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(fixture.warm(WarmKind::Python, grant()).stdout), sorted(fixture.cold(grant()).stdout));
    for (key, value) in [("PYTHONHASHSEED", "0"), ("LC_ALL", "C"), ("PATH", "/bin"), ("TZ", "UTC"), ("HOME", "/tmp")] {
        let grant = fixture.grant_of(UIDS[0], &["python3", "-c", "1"], &[(key, value)], &[]);
        assert_eq!(kind(&grant), WarmKind::Plain, "{key}");
    }
}

/// A module in the working directory shadows a module of the library, even if the interpreter has
/// loaded that already.
pub(crate) fn workspace_module_shadows_loaded_module() {
    let fixture = Fixture::new();
    for (name, code) in [
        ("json.py", "import json; print(json.mine)"),
        ("collections/__init__.py", "import collections, json; print(collections.mine)"),
    ] {
        let path = fixture.workspace(UIDS[0]).join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "mine = 'own'\n").unwrap();
        let cold = fixture.cold(fixture.python(code));
        assert_eq!(fixture.warm(WarmKind::Python, fixture.python(code)), cold, "{name}");
        std::fs::remove_file(path).unwrap();
    }
}

pub(crate) fn plain_warm_box_output_equals_cold_box() {
    let fixture = Fixture::new();
    let commands: [&[&str]; 6] = [
        &["true"],
        &["sh", "-c", "echo out; echo err >&2; exit 3"],
        &["sh", "-c", "pwd; id; umask; env | sort; stat -c '%A %u %g %t %n' / /* /dev/* /workspace; ls /proc/self/fd"],
        &["sh", "-c", "kill -9 $$"],
        &["python3", "-c", "import sys; print(sys.argv, sys.path)"],
        &["bash", "-lc", "cat /proc/self/status | grep -E 'Cap|NoNew|Seccomp:|Uid|Groups'"],
    ];
    for argv in commands {
        let cold = fixture.cold(fixture.grant(argv));
        assert_eq!(fixture.warm(WarmKind::Plain, fixture.grant(argv)), cold, "{argv:?}");
    }
    let missing = fixture.grant(&["/usr/bin/not-there"]);
    let warm_box = fixture.warm_box(WarmKind::Plain, &missing);
    let running = fixture.runtime.block_on(fixture.executor.start_warm_box(warm_box, missing)).unwrap();
    let error = fixture.runtime.block_on(running.wait()).unwrap_err();
    assert!(matches!(error, ringwall_executor::Error::CommandNotFound { .. }), "{error}");
}

/// Files get the workspace's owner, independent of the warm box's host uid.
pub(crate) fn new_files_belong_to_workspace_owner() {
    use std::os::unix::fs::MetadataExt;
    let fixture = Fixture::new();
    for (kind, uid) in [(WarmKind::Python, UIDS[0]), (WarmKind::Plain, UIDS[1])] {
        let private = fixture.workspace(uid).join("private");
        std::fs::write(&private, "mine").unwrap();
        std::os::unix::fs::chown(&private, Some(uid), Some(uid)).unwrap();
        std::fs::set_permissions(&private, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let code = "import os; print(open('private').read()); os.mkdir('made'); open('made/file', 'w').write('x'); print(os.stat('made').st_uid)";
        let output = fixture.warm(kind, fixture.grant_of(uid, &["python3", "-c", code], &[], &[]));
        assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("mine\n1000\n", ""));
        let made = std::fs::metadata(fixture.workspace(uid).join("made/file")).unwrap();
        assert_eq!((made.uid(), made.gid()), (uid, uid));
    }
}

/// Without a prepared base rootfs, as on kernels that cannot clone mounts of a detached tree.
pub(crate) fn warm_box_without_base_rootfs_equals_cold_box() {
    let fixture = Fixture::without_base_rootfs();
    let code = "import os; print(sorted(os.listdir('/'))); open('own', 'w').write('1'); open('/tmp/x', 'w'); open('/usr/x', 'w')";
    let grant = || fixture.grant_of(UIDS[0], &["python3", "-c", code], &[], &[(Field::ScratchMb, 8)]);
    let cold = fixture.cold(grant());
    assert!(cold.stderr.contains("Read-only file system"), "{cold:?}");
    for kind in [WarmKind::Python, WarmKind::Plain] {
        assert_eq!(fixture.warm(kind, grant()), cold);
    }
}
