//! Shell commands of contract 000: which are allowed, and what a command finds in its box.

use serde_json::json;
use tests::support::host::marked;
use tests::support::scratch::token;
use tests::support::server::Server;

use crate::fixture::Fixture;
use crate::workspace::CommandResult;

const RESERVED: &str = "Security Error: 'SKILL.md' is a system reserved file. You can only create/edit it at the root \
                        of a skill (e.g., skills/my_skill/SKILL.md).";

/// Exit code of curl if the connection fails.
const CURL_CONNECTED_NOT: i64 = 7;

pub(crate) fn command_is_run_by_shell(fixture: &Fixture) {
    let agent = fixture.workspace();
    let response = agent.execute("echo out; echo err >&2; exit 7");
    assert_eq!(response.success(), json!({ "stdout": "out\n", "stderror": "err\n", "exit_code": 7 }));
    for (line, stdout) in [
        ("echo $(pwd)", "/workspace\n"),
        ("echo hello > files/x && cat files/x", "hello\n"),
        ("echo a > files/l; echo b >> files/l; cat files/l | sort -r | head -n 1", "b\n"),
        ("cat files/none || echo missing", "missing\n"),
        ("ls -d files; cd files; pwd; ls", "files\n/workspace/files\nl\nx\n"),
        ("x=1; echo; export y=2; echo $x$y $((x + 3))", "\n12 4\n"),
        ("for i in 1 2; do echo $i; done | tr '\\n' ,", "1,2,"),
        ("echo; if test -f files/x; then echo yes; else echo no; fi", "\nyes\n"),
        ("cat <<'END'\n$HOME `x` rm -rf /\nEND", "$HOME `x` rm -rf /\n"),
        ("echo $(cat files/x)", "hello\n"),
        ("find files -name x -exec cat {} \\;", "hello\n"),
        ("echo files/x | xargs cat", "hello\n"),
        ("bash -c 'echo nested | wc -l'", "1\n"),
        ("echo | awk '{ print 1 + 1 }'", "2\n"),
        ("[[ a == a ]] && echo same", "same\n"),
        ("ls files/none || true", ""),
    ] {
        let result = agent.run(line);
        assert_eq!((result.stdout.as_str(), result.code), (stdout, 0), "{line}: {result:?}");
    }
    assert_eq!(agent.text("files/x"), "hello\n");
}

pub(crate) fn ordinary_commands_are_allowed(fixture: &Fixture) {
    let agent = fixture.workspace();
    agent.put("files/x", "a\n");
    agent.put("skills/s/SKILL.md", "name: s\n");
    agent.put("skills/s/main.py", "import sys; print('main', sys.argv[1:])");
    for (line, stdout) in [
        ("sed -i s/a/b/ files/x; cat files/x", "b\n"),
        ("echo \"hello.\"", "hello.\n"),
        ("python3 -c \"print(1.5)\"", "1.5\n"),
        ("echo 'rm; sudo reboot | nc'", "rm; sudo reboot | nc\n"),
        ("echo ..", "..\n"),
        ("python3 skills/s/main.py --a=1 b", "main ['--a=1', 'b']\n"),
        ("python skills/s/main.py", "main []\n"),
        ("cat skills/s/SKILL.md", "name: s\n"),
        ("cat ./skills/s/SKILL.md /workspace/skills/s/SKILL.md", "name: s\nname: s\n"),
        ("echo 'description: d' >> skills/s/SKILL.md; tail -n 1 skills/s/SKILL.md", "description: d\n"),
        ("echo SKILL.markdown", "SKILL.markdown\n"),
        ("touch files/SKILL.md; ls files/SKILL.md", "files/SKILL.md\n"),
        ("echo {1..3}", "1 2 3\n"),
        ("echo -n; printf '%s\\n' a b | sort | uniq | wc -l", "2\n"),
        ("mkdir -p files/d; cp files/x files/d/y; mv files/d/y files/d/z; ls files/d; rm -r files/d", "z\n"),
        ("grep -c b files/x", "1\n"),
        ("chmod 600 files/x; stat -c %a files/x", "600\n"),
        ("echo 3 | tee files/t | tail -n 1", "3\n"),
        ("PAGER=x cat files/x", "b\n"),
        ("echo a # rm is only a comment; reboot", "a\n"),
    ] {
        let result = agent.run(line);
        assert_eq!((result.stdout.as_str(), result.code), (stdout, 0), "{line}: {result:?}");
    }
}

pub(crate) fn forbidden_command_is_rejected_by_name(fixture: &Fixture) {
    let agent = fixture.workspace();
    for (line, name) in [
        ("wget x", "wget"),
        ("nc -l 1", "nc"),
        ("/usr/bin/perl -e 1", "/usr/bin/perl"),
        ("echo a; reboot", "reboot"),
        ("echo a | nc b 1", "nc"),
        ("echo a && sudo b", "sudo"),
        ("echo $(perl -e 1)", "perl"),
        ("echo `perl -e 1`", "perl"),
        ("(perl -e 1)", "perl"),
        ("cat <(perl -e 1)", "perl"),
        ("bash -c 'perl -e 1'", "perl"),
        ("sh -c 'echo a; perl -e 1'", "perl"),
        ("bash -c \"bash -c 'perl -e 1'\"", "perl"),
        ("echo a | xargs perl", "perl"),
        ("find . -exec perl {} \\;", "perl"),
        ("if ls; then perl; fi", "perl"),
        // Filters and builtins are not allowed as the first command.
        ("cd files && ls", "cd"),
        ("wc -l files/x", "wc"),
        ("if test -f x; then ls; fi", "test"),
        ("export A=1; ls", "export"),
        ("X=$(date); ls", "date"),
        ("while perl; do echo; done", "perl"),
        ("f() { perl; }; f", "perl"),
        ("X=1 perl", "perl"),
        ("echo a & perl", "perl"),
        ("! perl", "perl"),
        ("\"perl\" -e 1", "perl"),
        ("p''erl -e 1", "perl"),
    ] {
        let message = agent.execute(line).expect_error(403);
        assert_eq!(message, format!("Security Error: Command '{name}' is not allowed."), "{line}");
    }
    for line in ["$X", "X=perl; $X -e 1", "\"$(echo perl)\" x", "echo a | $SHELL", "${X:-perl}"] {
        let message = agent.execute(line).expect_error(403);
        assert!(message.starts_with("Security Error: Command '"), "{line}: {message}");
    }
    for line in ["", "   ", "\n", "\t\n"] {
        assert_eq!(agent.execute(line).expect_error(400), "Command cannot be empty.", "{line:?}");
    }
    for line in ["echo 'open", "if true", "echo a |", "(", "echo a && ", ")"] {
        agent.execute(line).expect_error_of(&[400, 403]);
    }
    agent.execute(&"(".repeat(200_000)).expect_error_of(&[400, 403, 413]);
    agent.execute("echo a\0b").expect_error(400);
    assert_eq!(agent.listed("files"), [""; 0]);
}

pub(crate) fn reserved_name_in_command_is_rejected(fixture: &Fixture) {
    let agent = fixture.workspace();
    agent.put("skills/s/SKILL.md", "name: s\n");
    for line in [
        "echo x > skills/SKILL.md",
        "echo x > skills/s/sub/SKILL.md",
        "touch skills/s/sub/skill.md",
        "touch skills/s/skill.md",
        "cp skills/s/SKILL.md skills/s/sub/SKILL.md",
        "cat SKILL.md",
        "echo && cd skills/s && echo x >> SKILL.md",
        "tee skills/a/b/Skill.Md",
    ] {
        assert_eq!(agent.execute(line).expect_error(403), RESERVED, "{line}");
    }
    assert_eq!(agent.listed("skills"), ["skills/s/SKILL.md"]);
    // Files written by a script are healed afterwards.
    agent.script("mkdir -p skills/new/deep; echo 'name: new' > skills/new/deep/SKILL.md");
    assert_eq!(agent.skill_names(), ["new", "s"]);
    assert_eq!(agent.listed("skills/new"), ["skills/new/SKILL.md"]);
    agent.script("echo x > skills/SKILL.md");
    assert_eq!(agent.listed("skills")[0], "skills/SKILL.md.misplaced");
}

pub(crate) fn environment_contains_only_defaults(fixture: &Fixture) {
    let agent = fixture.workspace();
    let result = agent.run("python3 -c \"import os; print(sorted(os.environ)); print(os.environ['PATH'])\"");
    let lines: Vec<&str> = result.stdout.lines().collect();
    assert_eq!(lines[1], "/usr/local/bin:/usr/bin:/bin", "{result:?}");
    let allowed = ["HOME", "LANG", "PATH", "PWD", "USER", "SHLVL", "_", "OLDPWD", "LC_CTYPE"];
    let keys: Vec<String> = serde_json::from_str(&lines[0].replace('\'', "\"")).unwrap();
    assert!(keys.iter().all(|key| allowed.contains(&key.as_str())), "{keys:?}");
    for key in ["HOME", "LANG", "PATH", "PWD", "USER"] {
        assert!(keys.iter().any(|one| one == key), "{key} is missing: {keys:?}");
    }
    assert_eq!(agent.run("echo $PWD").stdout, "/workspace\n");
}

/// The secret is neither in the command's environment nor in that of any visible process, PID 1
/// included.
pub(crate) fn server_environment_is_not_visible(fixture: &Fixture) {
    let secret = token().unwrap();
    let data = tempfile::TempDir::with_prefix("rw-agents-").unwrap();
    let server = Server::start_as_under(&fixture.starter(), data, &[], &[("PROVIDER_TOKEN", &secret)]);
    // The process may be protected from reads by its own user.
    match std::fs::read(format!("/proc/{}/environ", server.id())) {
        Ok(bytes) => assert!(String::from_utf8_lossy(&bytes).contains(&secret), "control: the server has it"),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied),
    }
    let agent = crate::fixture::workspace_on(&server);
    agent.put(
        "files/look.py",
        "import os\nfor number in filter(str.isdigit, os.listdir('/proc')):\n    try:\n        \
         print(number, open('/proc/%s/environ' % number).read())\n    except OSError as error:\n        \
         print(number, error)\nprint('own', dict(os.environ))\n",
    );
    agent.push(&crate::zips::skill("s", "")).success();
    let program = |route: &str, path: &str| CommandResult::read(&agent.argv(route, "python3", &[path]).success());
    for result in [
        agent.run("python3 files/look.py"),
        program(&agent.sandbox(), "look.py"),
        program(&agent.skill_route("s"), "/workspace/files/look.py"),
    ] {
        assert_eq!(result.code, 0, "{result:?}");
        assert!(result.stdout.lines().any(|line| line.starts_with("1 ")), "control: PID 1 was examined: {result:?}");
        assert!(result.stdout.contains("PATH="), "control: readable environments are shown: {result:?}");
        assert!(!result.stdout.contains(&secret) && !result.stdout.contains("PROVIDER_TOKEN"), "{result:?}");
    }
}

/// If the host has only `python3`, `python` runs that; nothing else in the box changes.
pub(crate) fn python_runs_by_either_name(fixture: &Fixture) {
    let agent = fixture.workspace();
    let version = agent.run("python3 -V").stdout;
    for line in [
        "python -V",
        "bash -c 'python -V'",
        "ls -d files | xargs python -V",
        "find files -maxdepth 0 -exec python -V {} +",
        "sh -c 'exec python -V'",
    ] {
        let result = agent.run(line);
        assert_eq!((result.code, result.stdout.as_str()), (0, version.as_str()), "{line}: {result:?}");
    }
    let names = |line: &str| {
        let result = agent.run(line);
        result.stdout.lines().filter(|name| *name != "python").map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(names("ls /usr/local/bin # python"), names("ls /usr/local/bin"), "other entries stay");
    let result = agent.run("python -c \"import os; print(sorted(os.environ)); open('/usr/local/bin/x', 'w')\"");
    assert!(result.stderr.contains("Read-only file system"), "{result:?}");
    assert!(!result.stdout.contains("BASH_FUNC"), "{result:?}");
    let response = agent.argv(&agent.sandbox(), "xargs", &["python", "-V"]).success();
    assert_eq!(response["stdout"], version.as_str(), "{response}");
}

pub(crate) fn box_sees_only_its_workspace(fixture: &Fixture) {
    let agent = fixture.workspace();
    let other = fixture.workspace();
    other.put("files/secret", "secret of another");
    agent.put("files/x", "x");
    agent.push(&crate::zips::skill("s", "1")).success();
    assert_eq!(agent.run("ls -A").stdout, "files\nskills\n");
    let result = agent.run("touch x; mkdir y; rm -rf files; rm -rf skills; ls -A");
    assert_eq!(result.stdout, "files\nskills\n", "the box must not change the root: {result:?}");
    agent.put("files/x", "x");
    for line in [
        format!("cat {}", other.on_disk("files/secret").display()),
        format!("ls {}", agent.client.data().display()),
        "cat /etc/shadow".to_owned(),
        "grep -rs 'secret of another' / --exclude-dir=proc --include=secret".to_owned(),
    ] {
        let result = agent.run(&line);
        assert!(result.code != 0 && !result.stdout.contains("secret of another"), "{line}: {result:?}");
    }
    // Control: on the host the same request succeeds.
    let address = format!("http://{}/healthz", fixture.server().address);
    let words = ["-s", "-m", "20", &address];
    let outside = std::process::Command::new("curl").args(words).output().unwrap();
    assert!(outside.status.success(), "{outside:?}");
    let result = agent.run(&format!("curl {}", words.join(" ")));
    assert_eq!((result.code, result.stdout.as_str()), (CURL_CONNECTED_NOT, ""), "there is no network: {result:?}");
}

pub(crate) fn execs_are_recorded(fixture: &Fixture) {
    let server = fixture.server();
    let agent = fixture.workspace();
    agent.run("echo recorded");
    agent.execute("perl -e 1").expect_error(403);
    // Execs of this kind are listed by the general routes, too.
    let (status, _, bytes) = agent.client.raw("GET", "/sandbox/execs?limit=10");
    assert_eq!(status, 200);
    let own: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let statuses: Vec<&str> = own.as_array().unwrap().iter().map(|exec| exec["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["POLICY_DENIED", "SUCCEEDED"], "{own}");
    let id = own[1]["exec_id"].as_str().unwrap();
    let view = server.exec(id);
    assert_eq!(view["policy_snapshot"]["limits"]["timeout_ms"], 300_000, "{view}");
    assert!(view["protections"].as_array().is_some_and(|all| all.len() > 3), "{view}");
}

pub(crate) fn long_output_is_truncated_and_flagged(fixture: &Fixture) {
    let agent = fixture.workspace();
    let limit = 10 << 20;
    let result = agent.run("python3 -c \"import sys; sys.stdout.write('ü' * 8000000)\"");
    assert_eq!(result.code, 0);
    assert!(result.stdout.len() <= limit && result.stdout.len() > limit - 4, "{}", result.stdout.len());
    assert!(result.stdout.chars().all(|letter| letter == 'ü'), "truncated within a character");
    let (_, _, bytes) = agent.client.raw("GET", "/sandbox/execs?limit=1");
    let own: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let view = fixture.server().exec(own[0]["exec_id"].as_str().unwrap());
    assert_eq!((&view["stdout_truncated"], &view["stderr_truncated"]), (&json!(true), &json!(false)), "{view}");
    let result = agent.run("echo -n; printf '\\xff\\xfea'");
    assert!(result.stdout.ends_with('a'), "{result:?}");
}

pub(crate) fn exec_ends_with_main_process(fixture: &Fixture) {
    let agent = fixture.workspace();
    let mark = token().unwrap();
    agent.put("files/daemon.py", "import os, sys, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\n");
    let began = std::time::Instant::now();
    let result = agent.run(&format!("python3 files/daemon.py {mark}; echo done"));
    assert_eq!((result.stdout.as_str(), result.code), ("done\n", 0));
    assert!(began.elapsed().as_secs() < 60, "waited for the child that holds stdout open");
    assert!(marked(&mark).unwrap().is_empty(), "a child outlived its box");
}

/// Takes five minutes, for the routes of both contracts at the same time.
pub(crate) fn commands_time_out_after_five_minutes(fixture: &Fixture) {
    let agent = fixture.workspace();
    let mark = token().unwrap();
    let line = format!("python3 -c 'import time; time.sleep(900)' {mark}");
    let words = ["-c", "import time; time.sleep(900)", &mark];
    agent.push(&crate::zips::skill("s", "")).success();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| agent.execute(&line).expect_error(408));
        let second = scope.spawn(|| agent.argv(&agent.sandbox(), "python3", &words).expect_error(408));
        let third = scope.spawn(|| agent.argv(&agent.skill_route("s"), "python3", &words).expect_error(408));
        assert_eq!(first.join().unwrap(), "Execution Timeout: Process killed after 300 seconds.");
        assert_eq!(third.join().unwrap(), "Execution timed out after 5 minutes.");
        assert_eq!(second.join().unwrap(), "Execution timed out after 5 minutes.");
    });
    assert!(marked(&mark).unwrap().is_empty(), "a process survived the timeout");
}

/// The command lists are settings.
pub(crate) fn command_lists_are_settings(fixture: &Fixture) {
    let server = fixture.start();
    let agent = crate::fixture::workspace_on(&server);
    let refusal = |name: &str| format!("Security Error: Command '{name}' is not allowed.");
    assert_eq!(agent.execute("perl -e 'print 1'").expect_error(403), refusal("perl"));
    let mut commands = server.ask("GET", "/settings", None).expect(200)["commands"].clone();
    for list in ["allowed", "allowed_argv"] {
        commands[list].as_array_mut().unwrap().push("perl".into());
        commands[list].as_array_mut().unwrap().retain(|word| word != "rm");
    }
    crate::fixture::set(&server, &json!({ "commands": commands }));
    assert_eq!(agent.run("perl -e 'print 1'"), CommandResult { stdout: "1".into(), stderr: String::new(), code: 0 });
    assert_eq!(agent.execute("rm files/x").expect_error(403), refusal("rm"));
    let route = agent.sandbox();
    assert_eq!(CommandResult::read(&agent.argv(&route, "perl", &["-e", "print 1"]).success()).stdout, "1");
    assert_eq!(agent.argv(&route, "rm", &["x"]).expect_error(403), refusal("rm"));
    crate::fixture::set(&server, &json!({ "commands": { "allowed": [], "allowed_argv": [] } }));
    assert_eq!(agent.execute("echo 1").expect_error(403), refusal("echo"), "an empty list allows nothing");
    assert_eq!(agent.argv(&route, "echo", &[]).expect_error(403), refusal("echo"));
}
