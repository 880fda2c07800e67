//! Secrets planted on the host, which a session's box tries to read while path control is off.
//!
//! The server's user can read each secret, as the control shows. Rootless, file permissions do not protect them, because the
//! box has the uid of the server's user.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;
use tests::support::actor::{Identity, tester_is_root};
use tests::support::scratch::{Scratch, give};
use tests::support::server::Server;

use crate::fixture::{Fixture, TestServer, scratch};
use crate::uncontrolled::{FULL, system_directory};

const SECRET: &str = "planted-secret";

/// Private files that agents, shells and people keep in a home directory.
const IN_HOME: [&str; 8] = [
    ".claude/.credentials.json",
    ".codex/auth.json",
    ".bash_history",
    ".ssh/id_ed25519",
    ".config/gh/hosts.yml",
    ".env",
    "project/deep/.env",
    ".local/share/ringwall/owner.token",
];

/// Plants a secret that belongs to the server's user, with its parent directories.
fn plant(test_server: &TestServer, top: &Path, name: &str, mode: u32) -> PathBuf {
    let path = top.join(name);
    let parents: Vec<&Path> = path.ancestors().skip(1).take_while(|parent| *parent != top).collect();
    for parent in parents.into_iter().rev() {
        if !parent.exists() {
            fs::create_dir(parent).unwrap();
            fs::set_permissions(parent, fs::Permissions::from_mode(0o755)).unwrap();
            give(parent, test_server.mode.identity()).unwrap();
        }
    }
    plant_at(test_server.mode.identity(), &path, mode);
    path
}

fn plant_at(owner: Identity, path: &Path, mode: u32) {
    fs::write(path, SECRET).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    give(path, owner).unwrap();
}

/// Control: on the host the server's user can read each of them.
fn check_readable_outside(test_server: &TestServer, secrets: &[PathBuf]) {
    for secret in secrets {
        let read = test_server.mode.identity().command("cat").arg(secret).output().unwrap();
        assert!(String::from_utf8_lossy(&read.stdout).contains(SECRET), "{}: {read:?}", secret.display());
    }
}

/// Tries each path, and a search of the directories.
fn check_hidden(fixture: &Fixture, secrets: &[PathBuf]) {
    for secret in secrets {
        let told = fixture.run(&format!("cat {}", secret.display()));
        assert!(!told["stdout"].as_str().unwrap().contains(SECRET), "{}: {told}", secret.display());
    }
    let tops = secrets.iter().map(|secret| secret.parent().unwrap().display().to_string()).collect::<Vec<_>>();
    let found = fixture.run(&format!("grep -rls {SECRET} {}; true", tops.join(" ")));
    assert_eq!(found["stdout"], "", "{found}");
}

/// A second server of the same user with its data directory inside of `inside`. Returns its token's path.
fn other_instance(test_server: &TestServer, inside: &Path) -> (Server, PathBuf) {
    let data = TempDir::with_prefix_in("rw-other-", inside).unwrap();
    let server = Server::start_as_under(&test_server.starter(), data, &[], &[]);
    let token = server.data().join("owner.token");
    (server, token)
}

pub(crate) fn readonly_hides_home_directories(test_server: &TestServer) {
    let host = scratch(test_server);
    let home = host.directory("home").unwrap();
    // As root file permissions protect the private ones, so one is readable for every user.
    let mut secrets: Vec<PathBuf> = IN_HOME.iter().map(|name| plant(test_server, &home, name, 0o600)).collect();
    secrets.push(plant(test_server, &home, "notes/plain", 0o644));
    let fixture = Fixture::off(test_server, host, &[], &[("HOME", home.to_str().unwrap())]);
    check_readable_outside(test_server, &secrets);
    check_hidden(&fixture, &secrets);
    assert_eq!(fixture.output(&format!("ls -A {} 2>/dev/null | wc -l", home.display())).trim(), "0");
}

/// `/opt` is shown, and a home directory in it is not.
pub(crate) fn readonly_hides_home_directory_in_opt(test_server: &TestServer) {
    if !tester_is_root() {
        println!("readonly_hides_home_directory_in_opt is not tried: only root makes directories in /opt");
        return;
    }
    let opt = Scratch::inside(Path::new("/opt"), Identity::Tester).unwrap();
    let home = opt.directory("home").unwrap();
    give(&home, test_server.mode.identity()).unwrap();
    let secrets =
        [plant(test_server, &home, "notes/plain", 0o644), plant(test_server, &home, ".ssh/id_ed25519", 0o600)];
    let beside = opt.file("beside", b"for every user", 0o644).unwrap();
    check_readable_outside(test_server, &secrets);
    // Control: other files of `/opt` are shown.
    let fixture = Fixture::off(test_server, scratch(test_server), &[], &[("HOME", home.to_str().unwrap())]);
    assert_eq!(fixture.output(&format!("cat {}", beside.display())), "for every user");
    check_hidden(&fixture, &secrets);
    assert_eq!(fixture.output(&format!("ls -A {} 2>/dev/null | wc -l", home.display())).trim(), "0");
}

pub(crate) fn readonly_hides_private_files_of_server_user(test_server: &TestServer) {
    let name = "readonly_hides_private_files_of_server_user";
    let (Some(system), Ok(opt)) = (system_directory(name), Scratch::inside(Path::new("/opt"), Identity::Tester)) else {
        return;
    };
    let owner = test_server.mode.identity();
    let etc = tempfile::Builder::new().prefix("rw-").suffix(".toml").tempfile_in("/etc").unwrap();
    plant_at(owner, etc.path(), 0o600);
    let mut secrets = vec![etc.path().to_owned()];
    for top in [system.path(), opt.path()] {
        // In a directory of root, alone and beside a public file.
        plant_at(owner, &top.join("private.conf"), 0o600);
        fs::create_dir(top.join("app")).unwrap();
        fs::set_permissions(top.join("app"), fs::Permissions::from_mode(0o755)).unwrap();
        plant_at(owner, &top.join("app/private.conf"), 0o600);
        plant_at(Identity::Tester, &top.join("app/group.conf"), 0o640);
        chown(top.join("app/group.conf"), None, Some(owner.id().1)).unwrap();
        // In directories of the server's user, one of them closed to other users.
        secrets.push(plant(test_server, top, "state/private", 0o600));
        let closed = plant(test_server, top, "closed/public", 0o644);
        fs::set_permissions(top.join("closed"), fs::Permissions::from_mode(0o700)).unwrap();
        secrets.extend([top.join("private.conf"), top.join("app/private.conf"), top.join("app/group.conf"), closed]);
    }
    let public = system.file("app/public", b"for every user", 0o644).unwrap();
    let (other, token) = other_instance(test_server, system.path());
    let fixture = Fixture::uncontrolled(test_server);
    check_readable_outside(test_server, &secrets);
    assert_eq!(
        fixture.output(&format!("cat {}", public.display())),
        "for every user",
        "control: a public file is shown"
    );
    check_hidden(&fixture, &secrets);
    let told = fixture.run(&format!("cat {}", token.display()));
    assert!(!told["stdout"].as_str().unwrap().contains(&other.token), "{told}");
}

/// The configuration file may contain a password, also if every user can read it.
pub(crate) fn configuration_file_is_hidden(test_server: &TestServer) {
    let Some(system) = system_directory("configuration_file_is_hidden") else { return };
    let config = system.file("server.conf", format!("# {SECRET}\n").as_bytes(), 0o644).unwrap();
    for environment in [&[][..], &[FULL][..]] {
        let fixture =
            Fixture::off(test_server, scratch(test_server), &["--config", config.to_str().unwrap()], environment);
        check_readable_outside(test_server, std::slice::from_ref(&config));
        check_hidden(&fixture, std::slice::from_ref(&config));
        let added = fixture.server.ask("POST", "/api/sandbox/paths", Some(&json!({ "path": config })));
        assert!(added.expect(400)["error"].is_string());
    }
}

pub(crate) fn full_hides_known_secrets(test_server: &TestServer) {
    let host = scratch(test_server);
    let home = host.directory("home").unwrap();
    let secrets: Vec<PathBuf> = IN_HOME.iter().map(|name| plant(test_server, &home, name, 0o644)).collect();
    let notes = plant(test_server, &home, "notes/plain", 0o644);
    let (other, token) = other_instance(test_server, &home);
    let fixture = Fixture::off(test_server, host, &[], &[("HOME", home.to_str().unwrap()), FULL]);
    check_readable_outside(test_server, &secrets);
    assert_eq!(fixture.output(&format!("cat {}", notes.display())), SECRET, "control: the home directory is shown");
    for secret in &secrets {
        let told = fixture.run(&format!("cat {}", secret.display()));
        assert!(!told["stdout"].as_str().unwrap().contains(SECRET), "{}: {told}", secret.display());
    }
    let found = fixture.run(&format!("grep -rls -e {SECRET} -e {} {}; true", other.token, home.display()));
    assert_eq!(found["stdout"], format!("{}\n", notes.display()), "{found}");
    let told = fixture.run(&format!("ls {}", token.parent().unwrap().display()));
    assert_eq!(told["stdout"], "", "{told}");
}

/// If a file is renamed over a mount point, the kernel removes the mount. Shells replace their history files that way.
pub(crate) fn full_hides_replaced_history(test_server: &TestServer) {
    let host = scratch(test_server);
    let home = host.directory("home").unwrap();
    let history = plant(test_server, &home, ".bash_history", 0o600);
    let notes = plant(test_server, &home, "notes/begin", 0o644);
    let fixture = Fixture::off(test_server, host, &[], &[("HOME", home.to_str().unwrap()), FULL]);
    let (place, go) = (home.display(), notes.with_file_name("go"));
    let wait = format!("cat {place}/notes/begin; until test -e {}; do sleep 0.05; done", go.display());
    let body =
        json!({ "session_id": "s", "command": format!("{wait}; cat {place}/.bash_history; echo over"), "wait": false });
    let exec = fixture.execute(&fixture.server.token, &body).expect(202)["exec_id"].as_str().unwrap().to_owned();
    fixture.server.wait_for_output(&exec);
    let next = plant(test_server, &home, "notes/next", 0o600);
    fs::rename(next, &history).unwrap();
    plant(test_server, &home, "notes/go", 0o644);
    check_readable_outside(test_server, &[history]);
    let ended = fixture.ended(&exec);
    assert_eq!(ended["stdout"], format!("{SECRET}over\n"), "{ended}");
}
