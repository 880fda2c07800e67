//! The commands `ringwall files` and `ringwall skills`, as the user who runs the server.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tests::support::scratch::{Scratch, give};
use tests::support::server::Server;

use crate::fixture::{Fixture, new_name, workspace_of};
use crate::zips::{self, Entry, zip};

/// Exit code, stdout, stderr.
type CliOutput = (Option<i32>, String, String);

/// Runs a command with this stdin.
fn run_cli(server: &Server, url: &str, arguments: &[&str], input: &[u8]) -> CliOutput {
    let mut command = server.command();
    // `--url` belongs after the subcommand.
    command.args(&arguments[..2]).args(["--url", url]).args(&arguments[2..]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that does not read stdin may have ended.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn expect_success(output: CliOutput) -> String {
    let (code, stdout, stderr) = output;
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
    stdout
}

pub(crate) fn files_are_uploaded_and_downloaded(fixture: &Fixture) {
    let server = fixture.server();
    let url = format!("http://{}", server.address);
    let scratch = Scratch::new(fixture.mode().identity()).unwrap();
    let (user, agent) = (new_name("user"), new_name("agent"));
    let token = server.make_token(&["--role", "user", "--user", &user]);
    let run = |arguments: &[&str], input: &[u8]| {
        let arguments = [&arguments[..2], &["--agent", &agent, "--token", &token], &arguments[2..]].concat();
        run_cli(&server, &url, &arguments, input)
    };
    let workspace = workspace_of(&server, &user, &agent);
    let bytes: Vec<u8> = (0..=255).cycle().take(5_000_000).collect();
    let local = scratch.file("raw.bin", &bytes, 0o644).unwrap();
    let local = local.to_str().unwrap();
    assert_eq!(expect_success(run(&["files", "put", local], b"")), "File uploaded successfully: files/raw.bin\n");
    assert_eq!(fs::read(workspace.on_disk("files/raw.bin")).unwrap(), bytes);
    assert_eq!(
        expect_success(run(&["files", "put", "-", "files/notes.txt"], b"one\ntwo\nthree\n")),
        "File uploaded successfully: files/notes.txt\n"
    );
    assert_eq!(
        expect_success(run(&["files", "put", "-", "files/d/deep.txt"], b"deep\n")),
        "Successfully created or overwritten file: files/d/deep.txt\n"
    );
    // Larger than one message, with characters that are not ASCII.
    let text = scratch.file("long.txt", "zeile ü\n\"\\\n".repeat(500_000).as_bytes(), 0o644).unwrap();
    let long = text.to_str().unwrap();
    expect_success(run(&["files", "put", long, "files/e/long.txt"], b""));
    assert_eq!(fs::read(workspace.on_disk("files/e/long.txt")).unwrap(), fs::read(&text).unwrap());
    let wrong = run(&["files", "put", local, "files/e/raw.bin"], b"");
    assert!(wrong.0 == Some(2) && wrong.2.contains("not UTF-8") && wrong.2.contains("hint"), "{wrong:?}");
    let wrong = run(&["files", "put", "-", "files/e/raw.bin"], b"good \xff");
    assert!(wrong.0 == Some(2) && wrong.2.contains("not UTF-8"), "{wrong:?}");
    workspace.delete("files/e").success();
    fs::remove_file(&text).unwrap();
    assert_eq!(expect_success(run(&["files", "ls"], b"")), "files/d/deep.txt\nfiles/notes.txt\nfiles/raw.bin\n");
    assert_eq!(expect_success(run(&["files", "ls", "files/d"], b"")), "files/d/deep.txt\n");
    assert_eq!(expect_success(run(&["files", "ls", "--json", "files/d"], b"")), "[\"files/d/deep.txt\"]\n");
    assert_eq!(expect_success(run(&["files", "ls", "skills"], b"")), "");
    assert_eq!(expect_success(run(&["files", "cat", "files/notes.txt"], b"")), "one\ntwo\nthree\n");
    assert_eq!(
        expect_success(run(&["files", "cat", "files/notes.txt", "--offset", "2", "--limit", "1"], b"")),
        "two\n"
    );
    assert_eq!(
        expect_success(run(&["files", "edit", "files/notes.txt", "two", "2"], b"")),
        "Successfully edited file: files/notes.txt\n"
    );
    assert_eq!(expect_success(run(&["files", "cat", "files/notes.txt"], b"")), "one\n2\nthree\n");
    let target = scratch.join("back.bin");
    let target = target.to_str().unwrap();
    assert_eq!(
        expect_success(run(&["files", "get", "files/raw.bin", target], b"")),
        format!("files/raw.bin -> {target}\n")
    );
    assert_eq!(fs::read(target).unwrap(), bytes);
    let folder = scratch.join("folder");
    let text = expect_success(run(&["files", "get", "--json", "files", folder.to_str().unwrap()], b""));
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["files"], 3);
    assert_eq!(fs::read(folder.join("d/deep.txt")).unwrap(), b"deep\n");
    assert_eq!(fs::read(folder.join("raw.bin")).unwrap(), bytes);
    let again = run(&["files", "get", "files", folder.to_str().unwrap()], b"");
    assert!(again.0 == Some(2) && again.2.contains("already exists") && again.2.contains("hint"), "{again:?}");
    assert_eq!(expect_success(run(&["files", "get", "files/notes.txt", "-"], b"")), "one\n2\nthree\n");
    assert_eq!(expect_success(run(&["files", "rm", "files/d"], b"")), "Successfully deleted path: files/d\n");
    assert_eq!(workspace.listed("files"), ["files/notes.txt", "files/raw.bin"]);
    // The owner's token is found automatically, and `--user` selects the workspace.
    let arguments = ["files", "ls", "--agent", &agent, "--user", &user];
    assert_eq!(expect_success(run_cli(&server, &url, &arguments, b"")), "files/notes.txt\nfiles/raw.bin\n");
    assert_eq!(expect_success(run_cli(&server, &url, &["files", "ls", "--agent", &agent], b"")), "");
    // Control characters in a name are escaped.
    workspace.put("files/\u{1b}[2Jx", "");
    assert!(expect_success(run(&["files", "ls"], b"")).contains("files/\\u{1b}[2Jx"));
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 3, "a temporary file was left");
}

pub(crate) fn skills_are_pushed_and_pulled(fixture: &Fixture) {
    let server = fixture.server();
    let url = format!("http://{}", server.address);
    let scratch = Scratch::new(fixture.mode().identity()).unwrap();
    let (user, agent) = (new_name("user"), new_name("agent"));
    let run = |arguments: &[&str]| {
        let arguments = [&arguments[..2], &["--agent", &agent, "--user", &user], &arguments[2..]].concat();
        run_cli(&server, &url, &arguments, b"")
    };
    let folder = scratch.directory("weather").unwrap();
    let head = "---\nname: weather\ndescription: Tells the weather.\n---\n";
    scratch.file("weather/SKILL.md", head.as_bytes(), 0o644).unwrap();
    scratch.directory("weather/lib").unwrap();
    scratch.file("weather/lib/run.sh", b"#!/bin/sh\necho sunny\n", 0o755).unwrap();
    // Names that equal those of their parent directories.
    scratch.directory("weather/weather").unwrap();
    scratch.file("weather/weather/main.py", b"inner", 0o644).unwrap();
    scratch.file("weather/main.py", b"outer", 0o644).unwrap();
    scratch.file("weather/lib/lib", b"of the same name", 0o644).unwrap();
    scratch.directory("weather/none yet").unwrap();
    // More than all buffers on the path hold.
    let noise: Vec<u8> = (0..3_000_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    scratch.file("weather/lib/noise", &noise, 0o644).unwrap();
    let text = expect_success(run(&["skills", "push", folder.to_str().unwrap()]));
    let line = "- Skill [weather] uploaded to [skills/weather], Status: [Success]\n";
    assert_eq!(text, format!("Upload successful. Details:\n{line}"));
    let archive = scratch.file("two.zip", &zips::skill("two", "1"), 0o644).unwrap();
    expect_success(run(&["skills", "push", archive.to_str().unwrap()]));
    let listed = expect_success(run(&["skills", "ls"]));
    assert_eq!(listed, "NAME     DESCRIPTION\ntwo      about two\nweather  Tells the weather.\n");
    let listed: Value = serde_json::from_str(&expect_success(run(&["skills", "ls", "--json"]))).unwrap();
    assert_eq!(listed[1], json!({ "name": "weather", "description": "Tells the weather." }));
    let workspace = workspace_of(&server, &user, &agent);
    let result = workspace.run("bash -c 'test -x skills/weather/lib/run.sh && sh skills/weather/lib/run.sh'");
    assert_eq!(result.stdout, "sunny\n");
    let target = scratch.join("pulled");
    assert_eq!(
        expect_success(run(&["skills", "pull", "weather", target.to_str().unwrap()])),
        format!("skills/weather -> {}\n", target.display())
    );
    assert_eq!(fs::read(target.join("lib/noise")).unwrap(), noise);
    assert_eq!(fs::read(target.join("SKILL.md")).unwrap(), head.as_bytes());
    assert_eq!(fs::read(target.join("weather/main.py")).unwrap(), b"inner");
    assert_eq!(fs::read(target.join("main.py")).unwrap(), b"outer");
    assert!(target.join("none yet").is_dir(), "empty directories are included");
    let target = scratch.join("fetched");
    expect_success(run(&["files", "get", "skills/weather/lib", target.to_str().unwrap()]));
    assert_eq!(fs::read(target.join("lib")).unwrap(), b"of the same name");
    assert_eq!(expect_success(run(&["skills", "rm", "two"])), "Successfully deleted skill: two\n");
    assert_eq!(workspace.skill_names(), ["weather"]);
    let text = expect_success(run(&["skills", "push", "--baseline", archive.to_str().unwrap()]));
    assert_eq!(text, format!("Upload successful: skill 'two' to 'skill/baseline/{agent}/two'\n"));
    let other = workspace_of(&server, &new_name("other"), &agent);
    assert_eq!(other.skill_names(), ["two"]);
    // A file that cannot be uploaded is named in the error, and nothing changes.
    std::os::unix::fs::symlink("/etc/passwd", folder.join("link")).unwrap();
    let rejected = run(&["skills", "push", folder.to_str().unwrap()]);
    assert!(rejected.0 == Some(2) && rejected.2.contains("link") && rejected.2.contains("symbolic"), "{rejected:?}");
    let nothing = scratch.directory("empty").unwrap();
    let rejected = run(&["skills", "push", nothing.to_str().unwrap()]);
    let text = "ringwall: Validation Error: Skill [empty] is missing required 'SKILL.md' at its root.\n";
    let none = "ringwall: Validation Error: No valid skill directory found in ZIP.\n";
    assert!(rejected.0 == Some(2) && [text, none].contains(&rejected.2.as_str()), "{rejected:?}");
    assert_eq!(workspace.skill_names(), ["two", "weather"]);
}

/// On a terminal every transfer shows a progress bar, which is removed at the end.
pub(crate) fn transfers_show_progress_bar(fixture: &Fixture) {
    const ON_A_TERMINAL: &str = "import os, pty, sys\nsys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
    let server = fixture.server();
    let scratch = Scratch::new(fixture.mode().identity()).unwrap();
    let agent = new_name("agent");
    let run_cli = |arguments: &[&str]| {
        let command = server.command();
        let mut terminal = Command::new("/usr/bin/python3");
        terminal.env_clear().args(["-c", ON_A_TERMINAL]).arg(command.get_program()).args(command.get_args());
        terminal.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
        terminal.args(&arguments[..2]).args(["--url", &format!("http://{}", server.address), "--agent", &agent]);
        let output = terminal.args(&arguments[2..]).stdin(Stdio::null()).env("TERM", "xterm").output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let bytes = vec![7; 3_000_000];
    scratch.directory("s").unwrap();
    scratch.file("s/SKILL.md", b"---\nname: s\n---\n", 0o644).unwrap();
    let local = scratch.file("s/data", &bytes, 0o644).unwrap();
    let text = scratch.file("text", &vec![b'x'; 3_000_000], 0o644).unwrap();
    let (folder, back) = (scratch.join("s"), scratch.join("back"));
    let pulled = scratch.join("pulled");
    let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    for (arguments, total) in [
        (vec!["files", "put", &path(&local)], Some("3.00 MB")),
        (vec!["files", "put", &path(&text), "files/d/text"], Some("3.00 MB")),
        (vec!["files", "get", "files/data", &path(&back)], Some("3.00 MB")),
        (vec!["skills", "push", &path(&folder)], Some("3.00 MB")),
        // The length of an archive that is created while it is sent is unknown.
        (vec!["skills", "pull", "s", &path(&pulled)], None),
    ] {
        let shown = run_cli(&arguments);
        let doing = if ["get", "pull"].contains(&arguments[1]) { "receiving" } else { "sending" };
        assert!(shown.contains(doing), "{arguments:?}: {shown:?}");
        assert!(total.is_none_or(|total| shown.contains(&format!("% of {total}"))), "{arguments:?}: {shown:?}");
        // The line is cleared before the final message.
        let last = shown.rsplit("\u{1b}[2K").next().unwrap();
        assert!(!last.contains(doing), "{arguments:?}: {shown:?}");
    }
    assert_eq!(fs::read(pulled.join("data")).unwrap(), bytes);
}

/// A malicious server sends archives that would write elsewhere.
pub(crate) fn malicious_archive_is_not_unpacked(fixture: &Fixture) {
    let server = fixture.server();
    let scratch = Scratch::new(fixture.mode().identity()).unwrap();
    let home = scratch.directory("home").unwrap();
    for entry in [
        Entry::file("../planted", b"x"),
        Entry::file("s/../../planted", b"x"),
        Entry::file("/tmp/rw-planted", b"x"),
        Entry::link("s/link", "/etc/passwd"),
        Entry::file("s\\..\\planted", b"x"),
    ] {
        let archive = zip(&[Entry::file("s/good", b"x"), entry.clone()]);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let target = home.join("s");
        let output = std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut buffer = [0; 4096];
                let _ = stream.read(&mut buffer).unwrap();
                let head = "HTTP/1.1 200 OK\r\nContent-Type: application/zip\r\nConnection: close\r\nContent-Length:";
                stream.write_all(format!("{head} {}\r\n\r\n", archive.len()).as_bytes()).unwrap();
                stream.write_all(&archive).unwrap();
            });
            run_cli(&server, &url, &["skills", "pull", "s", target.to_str().unwrap()], b"")
        });
        assert!(output.0 == Some(2) && output.2.contains("could not unpack"), "{entry:?}: {output:?}");
        assert_eq!(fs::read_dir(&home).unwrap().count(), 0, "{entry:?} left something");
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1, "{entry:?} left something");
    }
}

pub(crate) fn errors_have_hints(fixture: &Fixture) {
    let server = fixture.server();
    let url = format!("http://{}", server.address);
    let scratch = Scratch::new(fixture.mode().identity()).unwrap();
    let agent = new_name("agent");
    let run = |arguments: &[&str]| {
        run_cli(&server, &url, &[&arguments[..2], &["--agent", &agent], &arguments[2..]].concat(), b"")
    };
    for (arguments, text) in [
        (&["files", "cat", "files/none"][..], "ringwall: Path not found: files/none\n"),
        (&["files", "get", "files/none", "-"], "ringwall: Path not found: files/none\n"),
        (&["files", "rm", "files/none"], "ringwall: Path not found: files/none\n"),
        (
            &["files", "ls", "other"],
            "ringwall: Security Error: Path must start with 'skills/' or 'files/'. Current path: other\n",
        ),
        (&["files", "rm", "files/../x"], "ringwall: Security Error: Access out of scope. Path: files/../x\n"),
        (
            &["files", "cat", "files"],
            "ringwall: files is a directory\n  hint: `ringwall files ls` lists it, `ringwall files get` downloads it\n",
        ),
        (
            &["files", "get", "files", "/nonexistent/x"],
            "ringwall: /nonexistent: No such file or directory (os error 2)\n  \
             hint: create the directory first, or choose another one\n",
        ),
    ] {
        let output = run(arguments);
        assert_eq!((output.0, output.1.as_str(), output.2.as_str()), (Some(2), "", text), "{arguments:?}");
    }
    let output = run(&["files", "cat", "--json", "files/none"]);
    let error: Value = serde_json::from_str(&output.1).unwrap();
    assert_eq!((output.0, &error["error"]["message"]), (Some(2), &json!("Path not found: files/none")));
    assert_eq!(error["error"]["code"], "NOT_FOUND", "the server's code, not a usage error");
    let wrong = run(&["skills", "ls", "--token", "wrong"]);
    assert!(wrong.0 == Some(2) && wrong.2.contains("hint: give a token"), "{wrong:?}");
    let zip = scratch.file("x.zip", &zips::skill("s", "1"), 0o644).unwrap();
    let wrong = run(&["skills", "push", "--token", "wrong", zip.to_str().unwrap()]);
    assert!(wrong.0 == Some(2) && wrong.2.contains("hint: give a token"), "{wrong:?}");
    let unreachable = run_cli(&server, "http://127.0.0.1:1", &["files", "ls"], b"");
    assert!(unreachable.0 == Some(125) && unreachable.2.contains("ringwall serve"), "{unreachable:?}");
    let unreachable = run_cli(&server, "http://127.0.0.1:1", &["files", "ls", "--json"], b"");
    let error: Value = serde_json::from_str(&unreachable.1).unwrap();
    assert_eq!((unreachable.0, &error["error"]["code"]), (Some(125), &json!("UNREACHABLE")), "{error}");
    let small = scratch.file("small", b"x", 0o644).unwrap();
    assert_eq!(run(&["files", "put", small.to_str().unwrap()]).0, Some(0));
    let nowhere = run(&["files", "get", "files/small", "/nonexistent/x"]);
    let text = "ringwall: /nonexistent: No such file or directory (os error 2)\n";
    assert!(nowhere.0 == Some(2) && nowhere.2.starts_with(text), "no temporary name is shown: {nowhere:?}");
    let none = run(&["files", "put", "/nonexistent"]);
    assert!(none.0 == Some(2) && none.2.contains("/nonexistent"), "{none:?}");
    let none = run(&["files", "put", "--json", "/nonexistent"]);
    assert_eq!(serde_json::from_str::<Value>(&none.1).unwrap()["error"]["code"], "IO", "{none:?}");
    // Larger than the limit: rejected before or while it is sent; the error is reported in both
    // cases.
    let large = scratch.join("large");
    fs::File::create(&large).unwrap().set_len(60 << 20).unwrap();
    give(&large, fixture.mode().identity()).unwrap();
    let output = run(&["files", "put", large.to_str().unwrap()]);
    assert!(output.0 == Some(2) && !output.2.contains("could not reach"), "{output:?}");
}

pub(crate) fn help_lists_commands_and_options(fixture: &Fixture) {
    let server = fixture.server();
    let help = |arguments: &[&str]| {
        let output = server.command().args(arguments).arg("--help").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for (arguments, expected) in [
        (&["files"][..], &["ls", "cat", "put", "get", "edit", "rm"][..]),
        (&["skills"], &["push", "ls", "rm", "pull"]),
        (&["files", "put"], &["--agent", "--user", "--json", "--url", "--token", "standard input"]),
        (&["skills", "push"], &["--agent", "--user", "--json", "--baseline", "SKILL.md"]),
        (&[], &["files", "skills"]),
    ] {
        let text = help(arguments);
        for word in expected {
            assert!(text.contains(word), "{arguments:?} does not contain {word}:\n{text}");
        }
    }
}
