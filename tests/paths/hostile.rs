//! Attempts to bypass the path list: links, indirect paths, words that the parser cannot resolve, replaced directories.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use tests::support::actor::tester_is_root;
use tests::support::scratch::give;

use crate::fixture::{Fixture, TestServer, link, open_to_all, scratch};
use crate::uncontrolled::FULL;

const SECRET: &str = "content of the canary";

/// An allowed directory that every user may write to, and a secret beside it.
fn fixture(test_server: &TestServer) -> Fixture {
    let fixture = Fixture::new(test_server);
    let mine = fixture.directory("mine");
    open_to_all(&mine);
    fixture.directory("secret");
    fixture.file("secret/file", SECRET);
    fixture.allow(&mine);
    fixture
}

pub(crate) fn link_out_of_allowed_directory_is_not_followed(test_server: &TestServer) {
    let fixture = fixture(test_server);
    let (mine, secret) = (fixture.host.join("mine"), fixture.host.join("secret"));
    // A link planted by a box is followed neither by the box nor by the server.
    let planted = fixture.run(&format!("cd {}; ln -s $(echo ..)/secret link; cat $(echo link)/file", mine.display()));
    assert!(!planted.to_string().contains(SECRET), "{planted}");
    let (_, question) = fixture.ask(&format!("cat {}/link/file", mine.display()));
    let blocked = question["blocked_paths"].as_array().unwrap();
    assert!(blocked.contains(&json!(secret.join("file"))), "the question does not name the target: {question}");
    assert_eq!(question["requested_paths"], json!([secret]));
    // Allowing the link's own name allows nothing.
    fixture.allow(mine.join("link"));
    let (_, question) = fixture.ask(&format!("ls {}/link", mine.display()));
    assert!(question["blocked_paths"].as_array().unwrap().contains(&json!(secret)), "{question}");
    let around = fixture.run(&format!("cd {}; cd $(echo link) && cat file", mine.display()));
    assert!(!around.to_string().contains(SECRET), "{around}");
    fixture.allow(&secret);
    assert_eq!(fixture.output(&format!("cat {}/link/file", mine.display())), SECRET, "link and target are allowed");
}

pub(crate) fn indirect_paths_are_resolved_and_asked(test_server: &TestServer) {
    let fixture = fixture(test_server);
    let (mine, secret) = (fixture.host.join("mine"), fixture.host.join("secret"));
    let (mine, secret) = (mine.display(), secret.display());
    for command in [
        format!("cat {mine}/../secret/file"),
        format!("cd {mine} && cat ../secret/file"),
        format!("(cd {mine}; cd ../secret; cat file)"),
        format!("cat < {secret}/file"),
        format!("echo x > {secret}/new"),
        format!("X={secret}; cat $X/file"),
        format!("cat {secret}/f*"),
        format!("bash -c 'cat {secret}/file'"),
        format!("echo $(cat {secret}/file)"),
        format!("cat /workspace/../{secret}/file"),
    ] {
        let (exec, question) = fixture.ask(&command);
        let named = question["blocked_paths"].to_string();
        assert!(named.contains(&secret.to_string()), "{command}: {question}");
        fixture.server.ask("DELETE", &format!("/sandbox/execs/{exec}"), None).expect(202);
    }
    assert_eq!(fs::read_dir(fixture.host.join("secret")).unwrap().count(), 1);
}

pub(crate) fn unparsed_path_is_not_in_box(test_server: &TestServer) {
    let fixture = fixture(test_server);
    let secret = fixture.host.join("secret/file");
    let half = secret.to_str().unwrap().split_at(6);
    let script = format!("open('{}' + '{}').read()", half.0, half.1);
    let mut ran = 0;
    for command in [
        format!("python3 -c \"print({script})\""),
        format!("printf '%s' \"print({script})\" > a.py; python3 a.py"),
        format!("a={}; b={}; cat \"$a$b\" || cat $(printf '%s%s' $a $b)", half.0, half.1),
        format!("eval \"$(echo {} | base64 -d)\"", encoded(&format!("cat {}", secret.display()))),
        format!(
            "find / -xdev -name file -exec cat {{}} + 2>/dev/null; cat /proc/self/root{}",
            half.0.to_owned() + half.1
        ),
    ] {
        let begun =
            fixture.execute(&fixture.server.token, &json!({ "session_id": "s", "command": command, "wait": false }));
        let begun = begun.expect(202);
        if begun["status"] == "AWAITING_APPROVAL" {
            // The parser did resolve it.
            fixture
                .server
                .ask("DELETE", &format!("/sandbox/execs/{}", begun["exec_id"].as_str().unwrap()), None)
                .expect(202);
            continue;
        }
        let ended = fixture.ended(begun["exec_id"].as_str().unwrap());
        assert!(!ended["stdout"].as_str().unwrap().contains(SECRET), "{command}: {ended}");
        ran += 1;
    }
    assert!(ran >= 3, "the parser let only {ran} commands reach the box");
    // Control: the same script reads an allowed file.
    fixture.file("mine/file", "allowed");
    let found = fixture
        .output(&format!("python3 -c \"print(open('{}' + '/mine/file').read())\"", fixture.host.path().display()));
    assert_eq!(found, "allowed\n");
}

fn encoded(text: &str) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::new();
    for part in text.as_bytes().chunks(3) {
        let bits = part.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - part.len()));
        for index in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * index) & 63) as usize];
            encoded.push(if index <= part.len() { char::from(letter) } else { '=' });
        }
    }
    encoded
}

/// The owner of an entry's parent directory can replace it by a link, also between question and
/// start.
pub(crate) fn allowed_path_replaced_by_link_shows_nothing(test_server: &TestServer) {
    let fixture = fixture(test_server);
    let (docs, away) = (fixture.directory("docs"), fixture.host.join("away"));
    fixture.file("docs/file", "harmless");
    let command = format!("cat {}/file", docs.display());
    let (exec, question) = fixture.ask(&command);
    fs::rename(&docs, &away).unwrap();
    link(fixture.host.join("secret"), &docs);
    let answer = fixture.answer(&fixture.server.token, &question, &json!({ "approved": true, "remember": false }));
    assert_eq!(answer.status, 409, "the path is no longer the one that was shown: {answer:?}");
    fixture.server.ask("DELETE", &format!("/sandbox/execs/{exec}"), None).expect(202);
    // The same with an entry of the list.
    fs::remove_file(&docs).unwrap();
    fs::rename(&away, &docs).unwrap();
    fixture.allow(&docs);
    assert_eq!(fixture.output(&command), "harmless");
    fs::rename(&docs, &away).unwrap();
    link(fixture.host.join("secret"), &docs);
    let (_, question) = fixture.ask(&command);
    assert!(question["blocked_paths"].to_string().contains("/secret/file"), "{question}");
    let quiet = fixture.run(&format!("d=$(echo {}); cat $d/$(echo file)", docs.display()));
    assert!(!quiet.to_string().contains(SECRET), "{quiet}");
}

pub(crate) fn entry_of_other_user_is_not_in_box(test_server: &TestServer) {
    let fixture = fixture(test_server);
    let secret = fixture.host.join("secret");
    let [ann, bob] = ["ann", "bob"].map(|user| fixture.server.make_token(&["--role", "user", "--user", user]));
    let (exec, question) = fixture.ask_as(&ann, "s", &format!("ls {}", secret.display()));
    fixture.answer(&ann, &question, &json!({ "approved": true, "remember": true })).expect(200);
    fixture.ended(&exec);
    let look = format!("cd $(echo {}) && cat $(echo secret)/file", fixture.host.path().display());
    let body = json!({ "session_id": "s", "command": look });
    assert_eq!(fixture.execute(&ann, &body).expect(200)["stdout"], SECRET);
    let foreign = fixture.execute(&bob, &body).expect(200);
    assert!(!foreign.to_string().contains(SECRET), "{foreign}");
    let owner = fixture.execute(&fixture.server.token, &body).expect(200);
    assert!(!owner.to_string().contains(SECRET), "ann's entry must not apply to the owner's session: {owner}");
}

/// The mask over Ringwall's data stays: no directory between it and the allowed one can be moved.
pub(crate) fn parent_of_masked_data_cannot_be_moved(test_server: &TestServer) {
    let host = scratch(test_server);
    let above = host.path().join("home/share");
    fs::create_dir_all(&above).unwrap();
    for made in [host.path().join("home"), above.clone()] {
        give(&made, test_server.mode.identity()).unwrap();
    }
    let data = tempfile::Builder::new().prefix("data-").tempdir_in(&above).unwrap();
    let fixture = Fixture::start_in(test_server, data, host);
    fixture.switch(true);
    fixture.allow(fixture.host.path());
    let (home, top) = (fixture.host.path().join("home"), fixture.host.path().display());
    for (from, to) in [(home.clone(), format!("{top}/away")), (above.clone(), format!("{}/away", home.display()))] {
        let moved = fixture.run(&format!("mv {} {to}", from.display()));
        assert_ne!(moved["status"], "SUCCEEDED", "{moved}");
    }
    assert_eq!(fixture.output(&format!("ls -A {}", above.display())).lines().count(), 1, "the directory exists");
    assert_eq!(fixture.output(&format!("find {top} -name owner.token | wc -l")).trim(), "0");
}

/// A bind mount, until the value is dropped.
pub(crate) struct Bound(pub(crate) PathBuf);

impl Bound {
    pub(crate) fn mount(from: &Path, at: PathBuf) -> Self {
        fs::create_dir_all(&at).unwrap();
        let done = Command::new("mount").arg("--bind").args([from, &at]).status().unwrap();
        assert!(done.success(), "mount --bind {} {}", from.display(), at.display());
        Self(at)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(&self.0).status().unwrap();
        let _ = fs::remove_dir(&self.0);
    }
}

/// A bind mount of Ringwall's data is recognised as this data.
pub(crate) fn bind_mount_of_data_is_hidden(test_server: &TestServer) {
    if !tester_is_root() {
        println!("bind_mount_of_data_is_hidden is not tried: only root mounts");
        return;
    }
    let fixture = Fixture::controlled(test_server, &[FULL]);
    let data = fixture.server.data();
    let top = fixture.directory("top");
    let whole = Bound::mount(data, top.join("whole"));
    let part = Bound::mount(&data.join("workspaces"), top.join("part"));
    let token = fs::read_to_string(data.join("owner.token")).unwrap();
    for own in [whole.0.clone(), whole.0.join("workspaces"), part.0.clone(), part.0.join("x")] {
        let refused = fixture.server.ask("POST", "/api/sandbox/paths", Some(&json!({ "path": own })));
        assert_eq!(refused.status, 400, "{}: {refused:?}", own.display());
        let body = json!({ "session_id": "s", "command": format!("ls {}", own.display()), "wait": false });
        assert_eq!(fixture.execute(&fixture.server.token, &body).status, 403, "{}", own.display());
    }
    // A parent directory is shown without the server's data, with path control on and off.
    fixture.file("top/file", "shown");
    fixture.allow(&top);
    for controlled in [true, false] {
        fixture.switch(controlled);
        let top = top.display();
        assert_eq!(fixture.output(&format!("cat {top}/file")), "shown");
        let seen = fixture.run(&format!("find {top} -type f -exec cat {{}} + 2>/dev/null; ls -A {top}/$(echo part)"));
        assert_eq!(seen["stdout"], "shown", "{seen}");
        assert!(!seen.to_string().contains(token.trim()));
    }
}
