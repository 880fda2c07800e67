//! Host paths in a session's box while path control is off: `sandbox.when_disabled`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use serde_json::json;
use tests::support::actor::{Identity, Mode, tester_is_root};
use tests::support::scratch::{Scratch, give};

use crate::fixture::{Fixture, TestServer, open_to_all, scratch};
use crate::hostile::Bound;
use crate::reach::mounts;

/// Sets `sandbox.when_disabled`.
pub(crate) const FULL: (&str, &str) = ("RINGWALL_SANDBOX_WHEN_DISABLED", "full");

/// A directory of root in `/srv`, or `None` if the tests do not run as root.
pub(crate) fn system_directory(test: &str) -> Option<Scratch> {
    if !tester_is_root() {
        println!("{test} is not tried: only root makes directories in /srv");
        return None;
    }
    Some(Scratch::inside(Path::new("/srv"), Identity::Tester).unwrap())
}

pub(crate) fn readonly_shows_public_system_files(test_server: &TestServer) {
    let Some(system) = system_directory("readonly_shows_public_system_files") else { return };
    let public = system.file("public", b"for every user", 0o644).unwrap();
    std::os::unix::fs::symlink("public", system.join("link")).unwrap();
    let fixture = Fixture::uncontrolled(test_server);
    assert_eq!(fixture.output(&format!("cat {}", public.display())), "for every user");
    assert_eq!(fixture.output(&format!("cat {}/link", system.path().display())), "for every user");
    assert_eq!(fixture.output("cat /etc/hostname"), fs::read_to_string("/etc/hostname").unwrap());
    fixture.output("cat /etc/passwd /usr/bin/env > /dev/null; ls /proc/1 > /dev/null; python3 -c 'import ssl'");
    for hidden in ["/root", "/run", "/home", "/mnt", "/media", "/boot", "/var/lib", "/var/log", "/sys"] {
        let listed = fixture.output(&format!("ls -A {hidden} 2>/dev/null | grep -vx sandbox; true"));
        assert_eq!(listed, "", "{hidden}");
    }
    let exec = fixture.server.exec(fixture.run("true")["exec_id"].as_str().unwrap());
    assert_eq!(exec["policy_snapshot"]["path_control"], "off");
    assert_eq!(exec["policy_snapshot"]["when_disabled"], "readonly");
    let shown = ["/etc", "/opt", "/srv"].map(|top| json!({ "source": top, "target": top, "mode": "ro" }));
    assert_eq!(mounts(&fixture, &exec).iter().filter(|mount| shown.contains(mount)).count(), 3, "{exec}");
}

/// Only `/workspace` and the private directories are writable.
pub(crate) fn readonly_makes_host_read_only(test_server: &TestServer) {
    let Some(system) = system_directory("readonly_makes_host_read_only") else { return };
    let shared = system.directory("shared").unwrap();
    open_to_all(&shared);
    let file = system.file("file", b"as it was", 0o666).unwrap();
    // Control: on the host any user can write to both.
    let write = format!("echo x >> {}; echo x > {}/outside", file.display(), shared.display());
    assert!(Identity::Unprivileged.command("sh").args(["-c", &write]).status().unwrap().success());
    let fixture = Fixture::uncontrolled(test_server);
    for command in [
        format!("echo y > {}", file.display()),
        format!("echo y > {}/inside", shared.display()),
        "echo y > /etc/ringwall-test".to_owned(),
        "mkdir /opt/ringwall-test".to_owned(),
    ] {
        assert_ne!(fixture.run(&command)["status"], "SUCCEEDED", "{command}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "as it wasx\n");
    assert!(!shared.join("inside").exists());
    fixture.output("echo kept > note; for d in /tmp /var/tmp /dev/shm $HOME; do echo x > $d/own || exit 1; done");
    assert_eq!(fixture.output("cat note"), "kept\n");
}

/// A box has its own `/var/tmp`, `/dev/shm` and `/tmp`. A host directory that all users may write to is read-only, except
/// as root with `full`.
pub(crate) fn tenants_share_no_writable_directory(test_server: &TestServer) {
    let Some(system) = system_directory("tenants_share_no_writable_directory") else { return };
    let shared = system.directory("shared").unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
    let name = system.path().file_name().unwrap().to_string_lossy().into_owned();
    for environment in [&[][..], &[FULL][..]] {
        let fixture = Fixture::off(test_server, scratch(test_server), &[], environment);
        let directories = ["/var/tmp", "/dev/shm", "/tmp"];
        let run = |user: &str, command: String| {
            let body = json!({ "session_id": "s", "user_id": user, "command": command });
            fixture.execute(&fixture.server.token, &body).expect(200)
        };
        let told = run("ann", format!("for d in {}; do echo x > $d/{name} || exit 1; done", directories.join(" ")));
        assert_eq!(told["status"], "SUCCEEDED", "{told}");
        for directory in directories {
            assert!(!Path::new(directory).join(&name).exists(), "a box wrote to {directory} of the host");
            let seen = run("bob", format!("ls {directory}/{name}"));
            assert_ne!(seen["status"], "SUCCEEDED", "{seen}");
        }
        let written = run("ann", format!("echo x > {}/by-a-box", shared.display()));
        // As root with `full` a box can write where every user may.
        let may_write = !environment.is_empty() && test_server.mode == Mode::Root;
        assert_eq!(written["status"] == "SUCCEEDED", may_write, "{written}");
        assert_eq!(shared.join("by-a-box").exists(), may_write);
    }
}

pub(crate) fn full_shows_host_and_reports_it(test_server: &TestServer) {
    let fixture = Fixture::off(test_server, scratch(test_server), &[], &[FULL]);
    let file = fixture.file("plain", "the host's");
    assert_eq!(fixture.output(&format!("cat {}", file.display())), "the host's");
    let private = fixture.host.file("private", b"of the server's user", 0o600).unwrap();
    // As root the box has another uid, rootless the server's.
    let seen = fixture.run(&format!("cat {}", private.display()));
    assert_eq!(seen["status"] == "SUCCEEDED", test_server.mode == Mode::Rootless, "{seen}");
    assert_eq!(fixture.output("ls -A /run 2>/dev/null | wc -l").trim(), "0");
    assert_eq!(fixture.output(&format!("ls -A {} 2>/dev/null | wc -l", fixture.server.data().display())).trim(), "0");
    let exec = fixture.server.exec(fixture.run("true")["exec_id"].as_str().unwrap());
    assert_eq!(exec["policy_snapshot"]["when_disabled"], "full");
    assert!(mounts(&fixture, &exec).iter().any(|mount| mount["source"] == "/"), "{exec}");
    assert_eq!(fixture.server.ask("GET", "/healthz", None).expect(200)["when_disabled"], "full");
    assert!(fixture.server.log().contains("shows all paths of the host"), "{}", fixture.server.log());
}

/// Rootless the box has the uid of the server's user: it must not change what that user owns.
pub(crate) fn full_keeps_files_of_server_user_unwritable(test_server: &TestServer) {
    let fixture = Fixture::off(test_server, scratch(test_server), &[], &[FULL]);
    let (profile, config) = (fixture.file(".bashrc", "as it was"), fixture.directory(".config"));
    for command in [
        format!("echo x > {}", profile.display()),
        format!("mv {} {}2", config.display(), config.display()),
        format!("rm {}", profile.display()),
    ] {
        assert_ne!(fixture.run(&command)["status"], "SUCCEEDED", "{command}");
    }
    assert_eq!(fs::read_to_string(&profile).unwrap(), "as it was");
}

pub(crate) fn switching_off_reports_visible_paths(test_server: &TestServer) {
    let fixture = Fixture::uncontrolled(test_server);
    let health = fixture.server.ask("GET", "/healthz", None).expect(200);
    assert_eq!((&health["path_control"], &health["when_disabled"]), (&json!("off"), &json!("readonly")));
    assert!(fixture.server.log().contains("It shows no home directories"), "{}", fixture.server.log());
    let off = fixture.server.ask("PUT", "/api/sandbox", Some(&json!({ "enabled": false }))).expect(200);
    let message = off["message"].as_str().unwrap();
    for words in ["/etc, /opt and /srv", "sandbox.when_disabled = full", "RINGWALL_SANDBOX_WHEN_DISABLED=full"] {
        assert!(message.contains(words), "{off}");
    }
    let on = fixture.server.ask("PUT", "/api/sandbox", Some(&json!({ "enabled": true }))).expect(200);
    assert_eq!(on, json!({ "enabled": true }));
    assert_eq!(fixture.server.ask("GET", "/healthz", None).expect(200)["when_disabled"], json!(null));
    // No role can set it at run time.
    let wanted = json!({ "sandbox": { "when_disabled": "full" } });
    fixture.server.ask("PUT", "/settings", Some(&wanted)).expect(409);
    assert_eq!(fixture.server.ask("GET", "/settings", None).expect(200)["sandbox"]["when_disabled"], "readonly");
}

pub(crate) fn full_does_not_affect_other_routes(test_server: &TestServer) {
    let fixture = Fixture::off(test_server, scratch(test_server), &[], &[FULL]);
    let file = fixture.file("plain", "the host's");
    assert_eq!(fixture.output(&format!("cat {}", file.display())), "the host's");
    let exec = fixture.server.shell(&format!("cat {}", file.display()));
    assert_eq!(exec["status"], "FAILED");
    let body = json!({ "command": format!("cat {}", file.display()) });
    let told = fixture.server.ask("POST", "/v1/default/execute", Some(&body)).expect(200);
    assert_ne!(told["data"]["exit_code"], 0, "{told}");
    fixture.switch(true);
    fixture.ask(&format!("cat {}", file.display()));
}

/// The kernel's list of sockets has the name at bind time, so the test renames the socket.
pub(crate) fn host_sockets_are_unreachable(test_server: &TestServer) {
    let fixture = Fixture::off(test_server, scratch(test_server), &[], &[FULL]);
    let place = fixture.directory("place");
    let made = place.join("made");
    let listener = UnixListener::bind(&made).unwrap();
    listener.set_nonblocking(true).unwrap();
    let renamed = fixture.host.join("renamed");
    fs::rename(&made, &renamed).unwrap();
    give(&renamed, test_server.mode.identity()).unwrap();
    fs::set_permissions(&renamed, fs::Permissions::from_mode(0o777)).unwrap();
    // Control: on the host it can be reached.
    UnixStream::connect(&renamed).unwrap();
    listener.accept().unwrap();
    let (full, top) = (renamed.display(), fixture.host.path().display());
    let link = fixture.host.join("link");
    crate::fixture::link(&renamed, &link);
    let mut ways = vec![("/tmp".to_owned(), full.to_string()), (top.to_string(), "renamed".to_owned())];
    ways.push((top.to_string(), "/proc/self/cwd/renamed".to_owned()));
    ways.push(("/tmp".to_owned(), link.display().to_string()));
    // A second mount of the directory gives the socket another path.
    let bound =
        tester_is_root().then(|| Bound::mount(fixture.host.path(), fixture.host.path().with_extension("again")));
    ways.extend(bound.as_ref().map(|bound| ("/tmp".to_owned(), format!("{}/renamed", bound.0.display()))));
    for (directory, name) in ways {
        let connect = format!("socket.socket(socket.AF_UNIX).connect('{name}')");
        let told = fixture.run(&format!("cd {directory} && python3 -c \"import socket; {connect}\""));
        assert_ne!(told["status"], "SUCCEEDED", "{told}");
        assert!(told["stderr"].as_str().unwrap().contains("PermissionError"), "{name}: {told}");
    }
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    // Sockets inside of the box work.
    let own =
        "import socket, asyncio, multiprocessing as m; a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))";
    assert_eq!(fixture.output(&format!("python3 -c \"{own}; asyncio.run(asyncio.sleep(0)); m.Pipe()\"")), "b'x'\n");
    assert_eq!(fixture.output("python3 -c \"import socket; socket.socket().bind(('127.0.0.1', 0)); print(1)\""), "1\n");
}
