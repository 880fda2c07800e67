//! Concurrent requests: on one file, on one workspace, on several, and beside a box that writes the
//! same files.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::client::ApiResponse;
use crate::fixture::{Fixture, is_soak, workspace_on};
use crate::workspace::Workspace;
use crate::zips;

const MANY: usize = 50;
/// Long enough that a torn write would show.
const LINES: usize = 3000;
/// Exceeded only if readers and writers no longer make progress.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Content that shows whether it is complete: the name on each of [`LINES`] lines.
fn version(name: &str) -> String {
    format!("{name}\n").repeat(LINES)
}

/// Checks that the content is one complete version, and returns its name.
fn name_of(content: &str) -> &str {
    let name = content.lines().next().unwrap_or_default();
    assert!(content.len() == (name.len() + 1) * LINES, "incomplete: {} bytes of {name}", content.len());
    assert!(content.lines().all(|line| line == name), "mixed versions");
    name
}

/// Repeats a request while the workspace is busy, which may happen on a slow machine.
fn retry_while_busy(ask: impl Fn() -> ApiResponse) -> Value {
    loop {
        let response = ask();
        if response.status != 503 {
            return response.success();
        }
        let message = response.expect_error(503);
        let operations = ["Read", "Update"];
        let expected_message =
            operations.map(|one| format!("Server busy: {one} operation timed out. Please try again."));
        assert!(expected_message.contains(&message), "{message}");
    }
}

/// Writers continue until every reader has seen two versions, and readers until every writer has
/// finished, so that all overlap.
pub(crate) fn concurrent_readers_see_whole_versions(fixture: &Fixture) {
    let agent = fixture.workspace();
    agent.put("files/x", &version("first"));
    let rounds = if is_soak() { 40 } else { 3 };
    let (begin, deadline) = (Barrier::new(2 * MANY), Instant::now() + TIMEOUT);
    let (writing, unsatisfied) = (AtomicUsize::new(MANY), AtomicUsize::new(MANY));
    std::thread::scope(|scope| {
        let (agent, begin, writing, unsatisfied) = (&agent, &begin, &writing, &unsatisfied);
        for writer in 0..MANY {
            scope.spawn(move || {
                begin.wait();
                let mut round = 0;
                while round < rounds || unsatisfied.load(Ordering::SeqCst) > 0 {
                    assert!(Instant::now() < deadline, "some readers see no new version");
                    retry_while_busy(|| agent.write("files/x", &version(&format!("w{writer}-{round}"))));
                    round += 1;
                }
                writing.fetch_sub(1, Ordering::SeqCst);
            });
        }
        for reader in 0..MANY {
            scope.spawn(move || {
                begin.wait();
                let (mut seen, mut round) = (BTreeSet::new(), 0);
                while round < rounds || writing.load(Ordering::SeqCst) > 0 {
                    // The whole file and each page show one version.
                    let found = retry_while_busy(|| agent.content("files/x"));
                    let is_new = seen.insert(name_of(found["content"].as_str().unwrap()).to_owned());
                    if is_new && seen.len() == 2 {
                        unsatisfied.fetch_sub(1, Ordering::SeqCst);
                    }
                    if (reader + round) % 5 == 0 {
                        let page = retry_while_busy(|| agent.page("files/x", "&offset=100&limit=2000"));
                        let lines: BTreeSet<&str> =
                            page["lines"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
                        assert_eq!(lines.len(), 1, "{lines:?}");
                    }
                    round += 1;
                }
            });
        }
    });
    name_of(&agent.text("files/x"));
    assert_eq!(agent.listed("files"), ["files/x"]);
}

/// An edit reads and writes atomically: no concurrent edit is lost.
pub(crate) fn concurrent_edits_are_not_lost(fixture: &Fixture) {
    let agent = fixture.workspace();
    let names: Vec<String> = (0..20).map(|number| format!("<{number}>")).collect();
    agent.put("files/x", &names.concat());
    agent.put("files/lines", &"line\n".repeat(20));
    std::thread::scope(|scope| {
        for (number, name) in names.iter().enumerate() {
            let agent = &agent;
            scope.spawn(move || {
                retry_while_busy(|| agent.edit("files/x", name, "done ", None));
                let route = agent.sandbox_route(&format!("edit?path=lines&start={0}&end={0}", number + 1));
                retry_while_busy(|| agent.client.put(&route, "done"));
            });
        }
    });
    assert_eq!(agent.text("files/x"), "done ".repeat(20));
    assert_eq!(agent.text("files/lines"), "done\n".repeat(20));
}

/// An upload without progress blocks neither other agents nor its own.
pub(crate) fn stalled_upload_blocks_no_request(fixture: &Fixture) {
    let server = fixture.start();
    let (ann, bob) = (workspace_on(&server), workspace_on(&server));
    ann.put("files/x", "old");
    ann.push(&zips::skill("s", "old")).success();
    let token = server.make_token(&["--role", "user", "--user", &ann.user]);
    let mut stalled = Vec::new();
    for path in [
        format!("/v1/files/{}/upload", ann.agent),
        format!("/v1/skills/{}/upload", ann.agent),
        format!("/v1/{}/write", ann.agent),
    ] {
        for _ in 0..5 {
            let mut stream = server.connect();
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Length: 100000\r\n\
                 Content-Type: multipart/form-data; boundary=b\r\n\r\n--b\r\n\
                 Content-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\nhalf"
            );
            stream.write_all(head.as_bytes()).unwrap();
            stalled.push(stream);
        }
    }
    for agent in [&bob, &ann] {
        agent.put("files/x", "new");
        assert_eq!(agent.text("files/x"), "new");
        agent.push(&zips::skill("s", "new")).success();
        assert_eq!(agent.run("cat files/x skills/s/main.py").stdout, "newnew");
    }
    drop(stalled);
    assert_eq!(ann.text("files/x"), "new");
}

/// Concurrent requests of several agents all succeed, and none sees files of another agent.
pub(crate) fn concurrent_agents_are_independent(fixture: &Fixture) {
    let agents: Vec<Workspace> = (0..6).map(|_| fixture.workspace()).collect();
    std::thread::scope(|scope| {
        for (number, agent) in agents.iter().enumerate() {
            scope.spawn(move || {
                for round in 0..15 {
                    let text = format!("{number}-{round}");
                    agent.put("files/x", &text);
                    agent.push(&zips::skill("s", &text)).success();
                    assert_eq!(agent.run("cat files/x").stdout, text);
                    assert_eq!(agent.text("skills/s/main.py"), text);
                    agent.edit("files/x", &text, "edited", None).success();
                    assert_eq!(agent.listed("files"), ["files/x"]);
                }
            });
        }
    });
}

/// Routes and boxes see one complete version of a skill while new ones are installed.
pub(crate) fn skill_is_replaced_atomically(fixture: &Fixture) {
    let agent = fixture.workspace();
    let archive = |number: usize| {
        let text = format!("{number:04}");
        let names: Vec<String> = (0..30).map(|file| format!("s/d{}/{file}", file % 3)).collect();
        let mut files = vec![("s/SKILL.md", "name: s\n")];
        files.extend(names.iter().map(|name| (name.as_str(), text.as_str())));
        zips::of(&files)
    };
    agent.push(&archive(0)).success();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..30 {
                agent.push(&archive(number)).success();
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
            // The box enters the directory first, so it reads one version.
            let result = agent.run("ls > /dev/null && cd skills/s && cat d0/* d1/* d2/*");
            // If that version is deleted meanwhile, the command may fail, but never reads two
            // versions.
            assert!(result.code != 0 || result.stdout.len() == 30 * 4, "{result:?}");
            let pieces: BTreeSet<&[u8]> = result.stdout.as_bytes().chunks(4).collect();
            assert!(pieces.len() <= 1, "{result:?}");
            assert_eq!(agent.listed("skills").len(), 31);
            assert_eq!(agent.skill_names(), ["s"]);
        }
    });
    assert_eq!(agent.text("skills/s/d2/29"), "0029");
}

/// A box and the routes write the same file. Both replace it by a rename, so each version is
/// complete.
pub(crate) fn writes_of_box_and_routes_are_whole(fixture: &Fixture) {
    let agent = fixture.workspace();
    agent.put("files/x", &version("first"));
    agent.put(
        "files/writer.py",
        "import os, sys\nfor n in range(200):\n    t = 'files/.t%s' % sys.argv[1]\n    \
         open(t, 'w').write(('b%s-%d\\n' % (sys.argv[1], n)) * 3000)\n    os.rename(t, 'files/x')\n",
    );
    std::thread::scope(|scope| {
        let agent = &agent;
        let boxes: Vec<_> =
            (0..2).map(|number| scope.spawn(move || agent.run(&format!("python3 files/writer.py {number}")))).collect();
        let routes = scope.spawn(move || {
            for round in 0..40 {
                agent.put("files/x", &version(&format!("r-{round}")));
                name_of(&agent.text("files/x"));
                // A box may have replaced the version that the edit expects. No other error is
                // possible.
                let response = agent.edit("files/x", &format!("r-{round}\n"), "", Some(LINES as u64 + 1));
                assert_eq!(response.status, 409, "{response:?}");
            }
        });
        for result in boxes {
            assert_eq!(result.join().unwrap().code, 0);
        }
        routes.join().unwrap();
    });
    name_of(&agent.text("files/x"));
    assert_eq!(agent.listed("files"), ["files/writer.py", "files/x"]);
}
