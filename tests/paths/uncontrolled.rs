//! What a session's box shows while path control is off, and what it hides all the same.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};

use serde_json::json;
use tests::support::actor::tester_is_root;
use tests::support::scratch::give;

use crate::hostile::Bound;
use crate::lab::{Lab, Site};
use crate::reach::mounts;

pub(crate) fn the_hosts_files_are_seen_and_its_secrets_are_not(site: &Site) {
    let secret_files = [".ssh/id_ed25519", ".aws/credentials", ".config/gh/hosts.yml"];
    let (lab, home) = Lab::at_home(site, &[&secret_files[..], &["notes/plain"]].concat());
    lab.file("plain", "the host's");
    lab.directory("sockets");
    let socket = lab.host.join("sockets/listening");
    let _listener = UnixListener::bind(&socket).unwrap();
    give(&socket, site.mode.identity()).unwrap();
    let top = lab.host.path().display();
    assert_eq!(lab.output(&format!("cat {top}/plain")), "the host's", "nobody is asked");
    assert_eq!(lab.output("cat /etc/hostname"), std::fs::read_to_string("/etc/hostname").unwrap());
    assert_eq!(lab.output(&format!("ls -A {} | wc -l", lab.server.data().display())).trim(), "0");
    assert_eq!(lab.output(&format!("ls -A {top}/sockets | wc -l")).trim(), "0", "where somebody listens is covered");
    assert_eq!(lab.output("ls -A /run 2>/dev/null | wc -l").trim(), "0");
    assert_eq!(lab.output("echo own > /tmp/x; ls -A /tmp; id -u; echo $HOME"), "x\n1000\n/tmp\n");
    lab.output("cat /usr/bin/env > /dev/null; echo kept > note; ls /proc/1 > /dev/null");
    assert_eq!(lab.output("cat note"), "kept\n");
    // Everybody may read these, and only the one whose name says nothing is there.
    let read = |file: &str| lab.run(&format!("cat {}/{file}", home.display()))["stdout"].clone();
    assert_eq!(read("notes/plain"), "of the home");
    for secret in secret_files {
        assert_eq!(std::fs::read_to_string(home.join(secret)).unwrap(), "of the home", "the control");
        assert_eq!(read(secret), "", "{secret}");
    }
    let secrets = lab.output("for f in /root/.ssh /home/*/.ssh /etc/ssh; do ls -A $f 2>/dev/null; done; true");
    assert_eq!(secrets, "");
    let written = lab.run("echo x > /etc/ringwall-test");
    assert_ne!(written["status"], "SUCCEEDED");
    // That it was not controlled is on record.
    let exec = lab.server.exec(written["exec_id"].as_str().unwrap());
    assert_eq!(exec["policy_snapshot"]["path_control"], "off");
    assert!(mounts(&lab, &exec).iter().any(|mount| mount["source"] == "/"), "{exec}");
}

/// A box of an ordinary user is that user to the host: it must not change what that user owns.
pub(crate) fn what_is_the_servers_users_is_only_seen(site: &Site) {
    let lab = Lab::uncontrolled(site);
    let (profile, config) = (lab.file(".bashrc", "as it was"), lab.directory(".config"));
    give(&config, site.mode.identity()).unwrap();
    for command in [
        format!("echo x > {}", profile.display()),
        format!("mv {} {}2", config.display(), config.display()),
        format!("rm {}", profile.display()),
    ] {
        assert_ne!(lab.run(&command)["status"], "SUCCEEDED", "{command}");
    }
    assert_eq!(std::fs::read_to_string(&profile).unwrap(), "as it was");
}

pub(crate) fn only_sessions_are_uncontrolled(site: &Site) {
    let lab = Lab::uncontrolled(site);
    let file = lab.file("plain", "the host's");
    assert_eq!(lab.output(&format!("cat {}", file.display())), "the host's");
    let exec = lab.server.shell(&format!("cat {}", file.display()));
    assert_eq!(exec["status"], "FAILED", "other doors keep their box");
    let body = json!({ "command": format!("cat {}", file.display()) });
    let told = lab.server.ask("POST", "/v1/default/execute", Some(&body)).expect(200);
    assert_ne!(told["data"]["exit_code"], 0, "{told}");
    lab.switch(true);
    lab.ask(&format!("cat {}", file.display()));
}

/// A socket is reached by its file, whatever that is called by now: the kernel's list has the name that it was made with.
pub(crate) fn nobody_who_listens_is_reached(site: &Site) {
    let lab = Lab::uncontrolled(site);
    let place = lab.directory("place");
    let made = place.join("made");
    let listener = UnixListener::bind(&made).unwrap();
    listener.set_nonblocking(true).unwrap();
    let renamed = lab.host.join("renamed");
    std::fs::rename(&made, &renamed).unwrap();
    give(&renamed, site.mode.identity()).unwrap();
    std::fs::set_permissions(&renamed, std::fs::Permissions::from_mode(0o777)).unwrap();
    // The control: outside it is there.
    UnixStream::connect(&renamed).unwrap();
    listener.accept().unwrap();
    let (full, top) = (renamed.display(), lab.host.path().display());
    let link = lab.host.join("link");
    crate::lab::link(&renamed, &link);
    let mut ways = vec![("/tmp".to_owned(), full.to_string()), (top.to_string(), "renamed".to_owned())];
    ways.push((top.to_string(), "/proc/self/cwd/renamed".to_owned()));
    ways.push(("/tmp".to_owned(), link.display().to_string()));
    // A directory that is mounted a second time has other names, which nobody's list has.
    let bound = tester_is_root().then(|| Bound::mount(lab.host.path(), lab.host.path().with_extension("again")));
    ways.extend(bound.as_ref().map(|bound| ("/tmp".to_owned(), format!("{}/renamed", bound.0.display()))));
    for (directory, name) in ways {
        let connect = format!("socket.socket(socket.AF_UNIX).connect('{name}')");
        let told = lab.run(&format!("cd {directory} && python3 -c \"import socket; {connect}\""));
        assert_ne!(told["status"], "SUCCEEDED", "{told}");
        assert!(told["stderr"].as_str().unwrap().contains("PermissionError"), "{name}: {told}");
    }
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    // What programs need for themselves works.
    let own =
        "import socket, asyncio, multiprocessing as m; a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))";
    assert_eq!(lab.output(&format!("python3 -c \"{own}; asyncio.run(asyncio.sleep(0)); m.Pipe()\"")), "b'x'\n");
    assert_eq!(lab.output("python3 -c \"import socket; socket.socket().bind(('127.0.0.1', 0)); print(1)\""), "1\n");
}
